// The TypeScript SDK 2.x, as its README shows it, in one of its modes.
//
// Usage: node typescript_v2.mjs legacy|auto URL

import process from 'node:process';

import { answerCalls, require } from './lines.mjs';

const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');

const [mode, url] = process.argv.slice(2);
const client = new Client({ name: 'matrix-typescript-v2', version: '1.0.0' }, { versionNegotiation: { mode } });
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
answerCalls(client.getNegotiatedProtocolVersion(), (name, args) => client.callTool({ name, arguments: args }));
