// The TypeScript SDK 1.x, as its README shows it.
//
// Usage: node typescript_v1.mjs URL

import process from 'node:process';

import { answerCalls, require } from './lines.mjs';

const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');

const client = new Client({ name: 'matrix-typescript-v1', version: '1.0.0' });
const transport = new StreamableHTTPClientTransport(new URL(process.argv[2]));
await client.connect(transport);
answerCalls(transport.protocolVersion, (name, args) => client.callTool({ name, arguments: args }));
