// The server of the matrix of eras on the TypeScript SDK v2, which knows both; `modern` makes it refuse sessions. See
// README.md here for what every one of these servers offers.
//
// Usage: node ts_v2.mjs http|stdio both|modern

import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import process from 'node:process';
import { setTimeout as pause } from 'node:timers/promises';

const require = createRequire(process.execPath);
const { McpServer, acceptedContent, createMcpHandler, inputRequired } = require('@modelcontextprotocol/server');
const { serveStdio } = require('@modelcontextprotocol/server/stdio');
const { toNodeHandler } = require('@modelcontextprotocol/node');
const { z } = require('zod');

const [transport = 'stdio', eras = 'both'] = process.argv.slice(2);
const text = words => ({ content: [{ type: 'text', text: words }] });
let note = 'nothing yet';
/** Over HTTP every request has a server of its own, so what all should hear goes through the handler. */
let handler;

function make() {
  const server = new McpServer(
    { name: 'ts-v2', version: '1.0.0' },
    { capabilities: { logging: {}, resources: { subscribe: true, listChanged: true }, tools: { listChanged: true } } },
  );

  const add = { description: 'Adds', inputSchema: z.object({ a: z.number(), b: z.number() }) };
  server.registerTool('add', add, ({ a, b }) => text(`${a + b}`));
  const count = { description: 'Counts, and reports', inputSchema: z.object({ steps: z.number() }) };
  server.registerTool('count', count, async ({ steps }, { mcpReq }) => {
    for (let progress = 1; progress <= steps; progress += 1) {
      const progressToken = mcpReq._meta?.progressToken;
      if (progressToken !== undefined) {
        await mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress, total: steps } });
      }
      await pause(50);
    }
    return text(`counted to ${steps}`);
  });
  const talk = { description: 'Logs', inputSchema: z.object({ message: z.string() }) };
  server.registerTool('talk', talk, async ({ message }, { mcpReq }) => {
    await mcpReq.log('info', message, 'matrix');
    return text(`said ${message}`);
  });
  server.registerTool('ask_name', { description: 'Asks the user' }, ({ mcpReq }) => {
    const answer = mcpReq.inputResponses?.user;
    if (answer !== undefined && answer.action !== 'accept') return text(`No name: ${answer.action}`);
    const name = acceptedContent(mcpReq.inputResponses, 'user')?.name;
    if (name !== undefined) return text(`Hello, ${name}!`);
    const requestedSchema = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] };
    return inputRequired({ inputRequests: { user: inputRequired.elicit({ message: 'Who are you?', requestedSchema }) } });
  });
  const askModel = { description: 'Asks the model', inputSchema: z.object({ prompt: z.string() }) };
  server.registerTool('ask_model', askModel, ({ prompt }, { mcpReq }) => {
    const answer = mcpReq.inputResponses?.model;
    if (answer !== undefined) return text(`The model says: ${answer.content.text}`);
    const messages = [{ role: 'user', content: { type: 'text', text: prompt } }];
    return inputRequired({
      inputRequests: { model: inputRequired.createMessage({ messages, maxTokens: 50 }) },
      requestState: 'the model was asked',
    });
  });
  const setNote = { description: 'Changes the note', inputSchema: z.object({ text: z.string() }) };
  server.registerTool('set_note', setNote, async ({ text: words }) => {
    note = words;
    if (handler === undefined) await server.server.sendResourceUpdated({ uri: 'note://today' });
    else handler.notify.resourceUpdated('note://today');
    return text('noted');
  });
  server.registerTool('grow', { description: 'Says that the tools changed' }, () => {
    if (handler === undefined) server.sendToolListChanged();
    else handler.notify.toolsChanged();
    return text('grown');
  });

  server.registerResource('greeting', 'static://greeting', { mimeType: 'text/plain' }, ({ href }) => ({
    contents: [{ uri: href, mimeType: 'text/plain', text: 'Hello from the server' }],
  }));
  server.registerResource('note', 'note://today', { mimeType: 'text/plain' }, ({ href }) => ({
    contents: [{ uri: href, mimeType: 'text/plain', text: note }],
  }));
  const greet = { description: 'A greeting', argsSchema: z.object({ name: z.string() }) };
  server.registerPrompt('greet', greet, ({ name }) => ({
    messages: [{ role: 'user', content: { type: 'text', text: `Please greet ${name}.` } }],
  }));
  return server;
}

const refuses = eras === 'modern';
if (transport === 'stdio') {
  serveStdio(make, { legacy: refuses ? 'reject' : 'serve' });
} else {
  handler = createMcpHandler(make, { legacy: refuses ? 'reject' : 'stateless' });
  const listener = createServer(toNodeHandler(handler));
  listener.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${listener.address().port}/mcp`));
}
