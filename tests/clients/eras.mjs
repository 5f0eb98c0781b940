// One client of the matrix of eras on the TypeScript SDKs, at one server, which may be a gateway: all that clients and
// servers say to each other, step by step. One line for each step.
//
// Usage: node eras.mjs ts1|ts2-legacy|ts2-modern SERVER URL
//        node eras.mjs ts1|ts2-legacy|ts2-modern SERVER -- COMMAND [ARG...]
//
// SERVER is what the server is called in the lines. The servers are in `servers/`.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import process from 'node:process';

const STEP_DEADLINE_MS = 40_000;
const NOTE = 'note://today';
const require = createRequire(process.execPath);

const [name, server, target, ...command] = process.argv.slice(2);
const kinds = { ts1: first, 'ts2-legacy': () => second('legacy'), 'ts2-modern': () => second('modern') };
if (kinds[name] === undefined || target === undefined) {
  console.error('usage: node eras.mjs ts1|ts2-legacy|ts2-modern SERVER URL|-- COMMAND...');
  process.exit(2);
}

/** What the client heard and was asked, and who waits for more of it. */
const heard = [];
const waiting = new Set();
function hear(what, params) {
  heard.push({ what, params });
  for (const wake of waiting) wake();
}
async function until(what, matches = () => true) {
  for (;;) {
    const found = heard.find(it => it.what === what && matches(it.params));
    if (found !== undefined) return found.params;
    await new Promise(resolve => waiting.add(resolve));
  }
}

const client = kinds[name]();
const steps = {
  async tools() {
    const names = (await client.listTools()).tools.map(tool => tool.name);
    for (const wanted of ['add', 'count', 'talk', 'ask_name', 'ask_model', 'set_note', 'grow']) {
      assert.ok(names.includes(wanted), `${wanted} is not in ${names}`);
    }
    assert.equal(await call('add', { a: 2, b: 3 }), '5');
  },
  async resources() {
    const uris = (await client.listResources()).resources.map(resource => resource.uri);
    assert.ok(uris.includes('static://greeting'), `${uris}`);
    assert.equal(await read('static://greeting'), 'Hello from the server');
  },
  async prompts() {
    const names = (await client.listPrompts()).prompts.map(prompt => prompt.name);
    assert.ok(names.includes('greet'), `${names}`);
    const { messages } = await client.getPrompt({ name: 'greet', arguments: { name: 'Ann' } });
    assert.equal(messages[0].content.text, 'Please greet Ann.');
  },
  async progress() {
    // The SDKs forget who wants to hear of a request's progress as soon as its answer is read, and so lose what came in
    // the same read, as it may on a busy machine. What is lost thrice was not lost by them.
    for (let tries = 3; ; tries -= 1) {
      const reports = [];
      const onprogress = ({ progress, total }) => reports.push(`${progress}/${total}`);
      assert.equal(await call('count', { steps: 3 }, { onprogress }), 'counted to 3');
      if (tries > 1 && reports.length < 3) continue;
      assert.deepEqual(reports, ['1/3', '2/3', '3/3']);
      return;
    }
  },
  async logging() {
    await client.wantLogs();
    assert.equal(await call('talk', { message: 'as it were' }), 'said as it were');
    const { level } = await until('message', ({ data }) => JSON.stringify(data).includes('as it were'));
    assert.equal(level, 'info');
  },
  async subscription() {
    const words = `note of ${name} ${Math.random()}`;
    await client.watch(NOTE);
    assert.equal(await call('set_note', { text: words }), 'noted');
    await until('updated', ({ uri }) => uri === NOTE);
    assert.equal(await read(NOTE), words);
  },
  async list_changed() {
    await client.awaitTools();
    assert.equal(await call('grow', {}), 'grown');
    await until('tools');
  },
  async elicitation() {
    assert.equal(await call('ask_name', {}), 'Hello, Ann!');
    assert.equal((await until('elicitation')).message, 'Who are you?');
  },
  async sampling() {
    assert.equal(await call('ask_model', { prompt: 'Well?' }), 'The model says: Very well.');
    assert.equal((await until('sampling')).messages[0].content.text, 'Well?');
  },
};

let failed = 0;
const connected = await run('connect', () => client.open());
for (const [step, go] of Object.entries(steps)) {
  if (connected) await run(step, go);
}
await client.close().catch(() => {});
process.exit(failed === 0 ? 0 : 1);

async function run(step, go) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error('no end in time')), STEP_DEADLINE_MS);
  });
  try {
    await Promise.race([go(), late]);
    console.log(`${name} ${server} ${step} ok`);
    return true;
  } catch (error) {
    failed += 1;
    console.log(`${name} ${server} ${step} FAILED: ${`${error.message}`.split('\n').join(' ')}`);
    return false;
  } finally {
    clearTimeout(timer);
  }
}

async function call(tool, args, options) {
  const { content, isError } = await client.callTool({ name: tool, arguments: args }, options);
  const text = content.filter(({ type }) => type === 'text').map(item => item.text).join('\n');
  assert.ok(isError !== true, `tool error: ${text}`);
  return text;
}

async function read(uri) {
  return (await client.readResource({ uri })).contents[0].text;
}

function elicited(params) {
  hear('elicitation', params);
  return { action: 'accept', content: { name: 'Ann' } };
}

function sampled(params) {
  hear('sampling', params);
  return { role: 'assistant', model: 'a model', content: { type: 'text', text: 'Very well.' } };
}

/** The SDK v1: sessions. */
function first() {
  const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
  const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js');
  const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');
  const types = require('@modelcontextprotocol/sdk/types.js');
  const sdk = new Client({ name, version: '1.0.0' }, { capabilities: { sampling: {}, elicitation: {} } });
  sdk.setRequestHandler(types.ElicitRequestSchema, ({ params }) => elicited(params));
  sdk.setRequestHandler(types.CreateMessageRequestSchema, ({ params }) => sampled(params));
  const on = (schema, what) => sdk.setNotificationHandler(schema, ({ params }) => hear(what, params));
  on(types.LoggingMessageNotificationSchema, 'message');
  on(types.ResourceUpdatedNotificationSchema, 'updated');
  on(types.ToolListChangedNotificationSchema, 'tools');
  return {
    ...common(sdk, { StdioClientTransport, StreamableHTTPClientTransport }),
    ...inSession(sdk),
    callTool: (params, options) => sdk.callTool(params, undefined, options),
  };
}

/** The SDK v2, which knows both eras and speaks the one that it is told. */
function second(era) {
  const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');
  const { StdioClientTransport } = require('@modelcontextprotocol/client/stdio');
  const mode = era === 'modern' ? { pin: '2026-07-28' } : 'legacy';
  const capabilities = { sampling: {}, elicitation: { form: {} } };
  const sdk = new Client({ name, version: '1.0.0' }, { capabilities, versionNegotiation: { mode } });
  sdk.setRequestHandler('elicitation/create', ({ params }) => elicited(params));
  sdk.setRequestHandler('sampling/createMessage', ({ params }) => sampled(params));
  const on = (method, what) => sdk.setNotificationHandler(method, ({ params }) => hear(what, params));
  on('notifications/message', 'message');
  on('notifications/resources/updated', 'updated');
  on('notifications/tools/list_changed', 'tools');
  const { open, ...rest } = common(sdk, { StdioClientTransport, StreamableHTTPClientTransport });
  const begin = async () => {
    await open();
    assert.equal(sdk.getProtocolEra(), era);
  };
  if (era === 'legacy') return { ...rest, ...inSession(sdk), open: begin };

  let meta = {};
  return {
    ...rest,
    open: begin,
    callTool: (params, options) => sdk.callTool({ ...params, _meta: meta }, options),
    wantLogs: async () => {
      meta = { 'io.modelcontextprotocol/logLevel': 'debug' };
    },
    watch: async uri => {
      const { honoredFilter } = await sdk.listen({ resourceSubscriptions: [uri] });
      assert.deepEqual(honoredFilter.resourceSubscriptions, [uri]);
    },
    awaitTools: async () => {
      const { honoredFilter } = await sdk.listen({ toolsListChanged: true });
      assert.equal(honoredFilter.toolsListChanged, true);
    },
  };
}

/** What is the same in both SDKs and both eras. */
function common(sdk, { StdioClientTransport, StreamableHTTPClientTransport }) {
  const transport =
    target === '--'
      ? new StdioClientTransport({ command: command[0], args: command.slice(1), stderr: 'inherit' })
      : new StreamableHTTPClientTransport(new URL(target));
  return {
    open: () => sdk.connect(transport),
    close: async () => {
      await transport.terminateSession?.();
      await sdk.close();
    },
    callTool: (params, options) => sdk.callTool(params, options),
    listTools: () => sdk.listTools(),
    listResources: () => sdk.listResources(),
    readResource: params => sdk.readResource(params),
    listPrompts: () => sdk.listPrompts(),
    getPrompt: params => sdk.getPrompt(params),
  };
}

/** What only sessions have. */
function inSession(sdk) {
  return {
    wantLogs: () => sdk.setLoggingLevel('debug'),
    watch: uri => sdk.subscribeResource({ uri }),
    awaitTools: async () => {},
  };
}
