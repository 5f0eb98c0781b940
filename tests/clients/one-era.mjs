// Makes sure that a server knows one era and not the other: what is proven through a gateway to it would else prove
// nothing. It must answer that era's first request, and refuse the other's.
//
// Usage: node one-era.mjs legacy|modern URL
//        node one-era.mjs legacy|modern -- COMMAND [ARG...]

import { spawn } from 'node:child_process';
import process from 'node:process';
import { createInterface } from 'node:readline';

const DEADLINE_MS = 40_000;
const [era, target, ...command] = process.argv.slice(2);
const meta = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientCapabilities': {},
};
const clientInfo = { name: 'one-era', version: '1.0.0' };
const first = {
  legacy: ['initialize', { protocolVersion: '2025-11-25', capabilities: {}, clientInfo }],
  modern: ['server/discover', { _meta: meta }],
};

setTimeout(() => end('no answer in time'), DEADLINE_MS).unref();
// The era that it should not know goes first: a server may settle for one by the first request that it takes.
for (const asked of era === 'legacy' ? ['modern', 'legacy'] : ['legacy', 'modern']) {
  const answer = await (target === '--' ? overStdio : overHttp)(asked, ...first[asked]);
  const takes = answer?.result !== undefined;
  if (takes !== (asked === era)) end(`${asked}: ${JSON.stringify(answer).slice(0, 300)}`);
}
process.exit(0);

async function overHttp(asked, method, params) {
  const modern = { 'mcp-protocol-version': '2026-07-28', 'mcp-method': method };
  const headers = {
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    ...(asked === 'modern' ? modern : {}),
  };
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method, params });
  const response = await fetch(target, { method: 'POST', headers, body });
  const text = await response.text();
  // Of an event stream, only what it says.
  const lines = text.split('\n').map(line => line.replace(/^data:\s*/, ''));
  return lines.map(parse).find(message => message?.id === 1) ?? parse(text) ?? { status: response.status, text };
}

/** A program of its own for each, since many settle for an era. */
async function overStdio(_, method, params) {
  const program = spawn(command[0], command.slice(1), { stdio: ['pipe', 'pipe', 'ignore'] });
  program.stdin.on('error', () => {});
  program.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id: 1, method, params })}\n`);
  try {
    for await (const line of createInterface({ input: program.stdout })) {
      const message = parse(line);
      if (message?.id === 1) return message;
    }
    return { ended: true };
  } finally {
    program.kill();
  }
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function end(why) {
  console.log(`error: this server should know the ${era} era alone: ${why}`);
  process.exit(1);
}
