// The server of the matrix of eras on the TypeScript SDK v1, which knows sessions alone. See README.md here for what
// every one of these servers offers.
//
// Usage: node ts_v1.mjs http|stdio

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import process from 'node:process';
import { setTimeout as pause } from 'node:timers/promises';

const require = createRequire(process.execPath);
const { McpServer } = require('@modelcontextprotocol/sdk/server/mcp.js');
const { StdioServerTransport } = require('@modelcontextprotocol/sdk/server/stdio.js');
const { StreamableHTTPServerTransport } = require('@modelcontextprotocol/sdk/server/streamableHttp.js');
const types = require('@modelcontextprotocol/sdk/types.js');
const { z } = require('zod');

const text = words => ({ content: [{ type: 'text', text: words }] });
let note = 'nothing yet';

function make() {
  const server = new McpServer(
    { name: 'ts-v1', version: '1.0.0' },
    { capabilities: { logging: {}, resources: { subscribe: true, listChanged: true }, tools: { listChanged: true } } },
  );
  const watched = new Set();
  server.server.setRequestHandler(types.SubscribeRequestSchema, ({ params }) => {
    watched.add(params.uri);
    return {};
  });
  server.server.setRequestHandler(types.UnsubscribeRequestSchema, ({ params }) => {
    watched.delete(params.uri);
    return {};
  });

  const add = { description: 'Adds', inputSchema: { a: z.number(), b: z.number() } };
  server.registerTool('add', add, ({ a, b }) => text(`${a + b}`));
  const count = { description: 'Counts, and reports', inputSchema: { steps: z.number() } };
  server.registerTool('count', count, async ({ steps }, extra) => {
    for (let progress = 1; progress <= steps; progress += 1) {
      const progressToken = extra._meta?.progressToken;
      if (progressToken !== undefined) {
        const params = { progressToken, progress, total: steps };
        await extra.sendNotification({ method: 'notifications/progress', params });
      }
      await pause(50);
    }
    return text(`counted to ${steps}`);
  });
  const talk = { description: 'Logs', inputSchema: { message: z.string() } };
  server.registerTool('talk', talk, async ({ message }, extra) => {
    const params = { level: 'info', logger: 'matrix', data: message };
    await extra.sendNotification({ method: 'notifications/message', params });
    return text(`said ${message}`);
  });
  server.registerTool('ask_name', { description: 'Asks the user' }, async extra => {
    const requestedSchema = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] };
    const request = { method: 'elicitation/create', params: { message: 'Who are you?', requestedSchema } };
    const answer = await extra.sendRequest(request, types.ElicitResultSchema);
    return text(answer.action === 'accept' ? `Hello, ${answer.content.name}!` : `No name: ${answer.action}`);
  });
  const askModel = { description: 'Asks the model', inputSchema: { prompt: z.string() } };
  server.registerTool('ask_model', askModel, async ({ prompt }, extra) => {
    const messages = [{ role: 'user', content: { type: 'text', text: prompt } }];
    const request = { method: 'sampling/createMessage', params: { messages, maxTokens: 50 } };
    const answer = await extra.sendRequest(request, types.CreateMessageResultSchema);
    return text(`The model says: ${answer.content.text}`);
  });
  const setNote = { description: 'Changes the note', inputSchema: { text: z.string() } };
  server.registerTool('set_note', setNote, async ({ text: words }) => {
    note = words;
    if (watched.has('note://today')) await server.server.sendResourceUpdated({ uri: 'note://today' });
    return text('noted');
  });
  server.registerTool('grow', { description: 'Says that the tools changed' }, () => {
    server.sendToolListChanged();
    return text('grown');
  });

  server.registerResource('greeting', 'static://greeting', { mimeType: 'text/plain' }, ({ href }) => ({
    contents: [{ uri: href, mimeType: 'text/plain', text: 'Hello from the server' }],
  }));
  server.registerResource('note', 'note://today', { mimeType: 'text/plain' }, ({ href }) => ({
    contents: [{ uri: href, mimeType: 'text/plain', text: note }],
  }));
  const greet = { description: 'A greeting', argsSchema: { name: z.string() } };
  server.registerPrompt('greet', greet, ({ name }) => ({
    messages: [{ role: 'user', content: { type: 'text', text: `Please greet ${name}.` } }],
  }));
  return server;
}

const sessions = new Map();

async function take(request, response) {
  const known = sessions.get(request.headers['mcp-session-id']);
  if (known !== undefined) return known.handleRequest(request, response);
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: id => sessions.set(id, transport),
  });
  transport.onclose = () => sessions.delete(transport.sessionId);
  await make().connect(transport);
  return transport.handleRequest(request, response);
}

if (process.argv[2] === 'stdio') {
  await make().connect(new StdioServerTransport());
} else {
  const listener = createServer((request, response) => {
    take(request, response).catch(error => {
      console.error(error);
      response.destroy();
    });
  });
  listener.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${listener.address().port}/mcp`));
}
