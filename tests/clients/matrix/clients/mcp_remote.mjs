// A client that knows only programs, and reaches the server by mcp-remote, as desktop clients do.
//
// Usage: node mcp_remote.mjs PACKAGES URL     PACKAGES: the `node_modules` with mcp-remote

import process from 'node:process';

import { answerCalls, require } from './lines.mjs';

const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js');

const [packages, url] = process.argv.slice(2);
const client = new Client({ name: 'matrix-mcp-remote', version: '1.0.0' });
const args = [`${packages}/mcp-remote/dist/proxy.js`, url, '--allow-http'];
// It keeps what it knows of servers in a folder, which must be no other cell's.
const env = { ...process.env, MCP_REMOTE_CONFIG_DIR: process.cwd() };
await client.connect(new StdioClientTransport({ command: process.execPath, args, env }));
answerCalls(null, (name, args) => client.callTool({ name, arguments: args }));
