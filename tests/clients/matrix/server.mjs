// The server behind the gateway in the matrix: two slow tools, and a record of who ran them.
//
// Usage: node server.mjs v1|v2 stdio|http RECORD [PORT]
//
// v1 is on the TypeScript SDK 1.x and knows sessions alone; v2 is on 2.x and knows both eras. Both tools wait for `seconds`
// and say `done KEY`: `look` is marked as read-only, so that it may be run again; `change` is marked as nothing, so that it
// may not. RECORD gets a line `begin TOOL KEY PID` for every run and `end TOOL KEY PID` when it is over. With `held` the
// seconds begin when there is a file RECORD.go, so that no run is over before something happens to it.

import { appendFileSync, existsSync } from 'node:fs';
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import process from 'node:process';
import { setTimeout as pause } from 'node:timers/promises';

const require = createRequire(process.execPath);
const { z } = require('zod');
const [version, transport, record, port = '0'] = process.argv.slice(2);

function tools(server, schema) {
  const inputSchema = schema({ key: z.string(), seconds: z.coerce.number(), held: z.coerce.boolean().optional() });
  const run = tool => async ({ key, seconds, held }) => {
    appendFileSync(record, `begin ${tool} ${key} ${process.pid}\n`);
    while (held && !existsSync(`${record}.go`)) await pause(20);
    await pause(seconds * 1000);
    appendFileSync(record, `end ${tool} ${key} ${process.pid}\n`);
    return { content: [{ type: 'text', text: `done ${key}` }] };
  };
  server.registerTool('look', { description: 'Looks', inputSchema, annotations: { readOnlyHint: true } }, run('look'));
  server.registerTool('change', { description: 'Changes', inputSchema }, run('change'));
  return server;
}

const info = { name: 'matrix', version: '1.0.0' };
let answer;
if (version === 'v2') {
  const { McpServer, createMcpHandler } = require('@modelcontextprotocol/server');
  const { serveStdio } = require('@modelcontextprotocol/server/stdio');
  const { toNodeHandler } = require('@modelcontextprotocol/node');
  const make = () => tools(new McpServer(info), shape => z.object(shape));
  if (transport === 'stdio') serveStdio(make, { legacy: 'serve' });
  else answer = toNodeHandler(createMcpHandler(make, { legacy: 'stateless' }));
} else {
  const { McpServer } = require('@modelcontextprotocol/sdk/server/mcp.js');
  const { StdioServerTransport } = require('@modelcontextprotocol/sdk/server/stdio.js');
  const { StreamableHTTPServerTransport } = require('@modelcontextprotocol/sdk/server/streamableHttp.js');
  const make = () => tools(new McpServer(info), shape => shape);
  const sessions = new Map();
  if (transport === 'stdio') await make().connect(new StdioServerTransport());
  answer = async (request, response) => {
    const id = request.headers['mcp-session-id'];
    if (sessions.has(id)) return sessions.get(id).handleRequest(request, response);
    // A session of the process that was here before.
    if (id !== undefined) return response.writeHead(404).end();
    const session = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: id => sessions.set(id, session),
    });
    session.onclose = () => sessions.delete(session.sessionId);
    await make().connect(session);
    return session.handleRequest(request, response);
  };
}

if (transport === 'http') {
  const listener = createServer((request, response) => {
    Promise.resolve(answer(request, response)).catch(error => {
      console.error(error);
      response.destroy();
    });
  });
  listener.listen(Number(port), '127.0.0.1', () => console.log(`http://127.0.0.1:${listener.address().port}/mcp`));
}
