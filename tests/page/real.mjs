// A real node with the operator's page, servers behind it, and clients in trouble.

import { execFile } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { here, start } from './browser.mjs';
import { Client } from './client.mjs';

const run = promisify(execFile);
export const TENURE = resolve(process.env.TENURE ?? join(here, '../../target/debug/tenure'));
// The client that lets a question wait.
const STUCK = 'release-bot';
// Principals of the clients under load.
const KEYS = ['ann', 'bob', 'ci', 'nightly'];
export const HOSTILE_CLIENT = '<img src=x onerror=alert(1)>';

/** Starts the binary: several servers behind, one of them dead, audit log and page on. A plain one has the demo server alone, and no audit log. */
export async function startReal({ port = 0, admin = 0, folder = mkdtempSync(join(tmpdir(), 'tenure-page-')), load = false, isPlain = false } = {}) {
  const config = join(folder, 'tenure.toml');
  const keys = {};
  if (load) for (const name of KEYS) keys[name] = (await run(TENURE, ['keys', 'new', name, '--file', join(folder, 'keys.toml')])).stdout.trim();
  // By its name alone, so that no picture shows where it is here.
  const demo = JSON.stringify(['tenure', 'stdio', '--store', 'memory:']);
  const programs = join(folder, 'bin');
  mkdirSync(programs, { recursive: true });
  rmSync(join(programs, 'tenure'), { force: true });
  symlinkSync(TENURE, join(programs, 'tenure'));
  writeFileSync(
    config,
    `listen = "127.0.0.1:${port}"
store = "disk:${folder}/store"

[admin]
listen = "127.0.0.1:${admin}"
try = true

${load ? `[auth]
keys_file = "${folder}/keys.toml"

[limits]
principal = "600/min"

` : ''}${isPlain ? '' : `[audit]
file = "${folder}/audit.jsonl"

[[backend]]
name = "notes"
command = ${demo}

[[backend]]
name = "desk"
command = ${demo}

[[backend]]
name = "weather"
command = ["/bin/false"]
`}`,
  );
  chmodSync(folder, 0o700);
  const node = await start(TENURE, ['serve', '--config', config, '--log-level', 'info'], { env: { ...process.env, PATH: `${programs}:${process.env.PATH}` } });
  const base = node.url.replace(/\/mcp.*$/, '');
  const cli = async (...words) => (await run(TENURE, [...words, '--store', `disk:${folder}/store`])).stdout;
  const real = {
    keys,
    folder,
    mcp: name => `${base}/mcp${name ? `/${name}` : ''}`,
    ports: { port: new URL(base).port },
    cli,
    /** A link that logs in. */
    open: async (role = 'admin') => JSON.parse(await cli('admin', 'open', '--json', '--role', role)).url,
    kill: () => node.stop('SIGKILL'),
    log: node.log,
    child: node.child,
    stop: async () => {
      real.loading?.abort();
      if (node.child.exitCode === null && node.child.signalCode === null) await node.stop('SIGTERM');
      rmSync(folder, { recursive: true, force: true });
    },
  };
  if (load) await begin(real);
  return real;
}

/** Clients that call, hang up, come back and let questions wait, until the node stops. */
async function begin(real) {
  real.loading = new AbortController();
  const { signal } = real.loading;
  const names = ['claude-code', 'vscode', 'agent-runner', HOSTILE_CLIENT, 'zed', 'cursor'];
  const headers = index => ({ Authorization: `Bearer ${real.keys[KEYS[index % KEYS.length]]}` });
  const clients = await Promise.all(Array.from({ length: 24 }, (_, index) => new Client(real.mcp(index % 2 ? 'notes' : 'desk'), headers(index)).open(index === 0 ? STUCK : names[index % names.length])));
  // As every client does; tools that no list has are counted together.
  await Promise.all(clients.slice(0, 2).map(client => client.call('', {}, { method: 'tools/list' })));
  const [stuck, resumes, slow] = clients;
  // It comes back once after its connection broke. Then a question that nobody answers, on a stream that nobody reads after some seconds.
  (async () => {
    await stuck.abandon('long_task', { seconds: 8 }, 3000);
    await new Promise(done => setTimeout(done, 2500));
    await stuck.resume(6000);
    await stuck.abandon('ask_name', {}, 4000);
  })();
  slow.call('long_task', { seconds: 900 }, { signal }).catch(() => {});
  const pause = ms => new Promise(done => setTimeout(done, ms));
  const loop = async (client, step) => {
    while (!signal.aborted) await step(client).catch(() => pause(500));
  };
  loop(resumes, async client => {
    await client.abandon('long_task', { seconds: 6 }, 1500);
    await pause(700);
    await client.resume(4000);
    await pause(1500);
  });
  for (const [index, client] of clients.slice(3).entries()) {
    loop(client, async () => {
      const dice = Math.random();
      if (dice < 0.45) await client.call('public_echo', { text: 'hello' });
      else if (dice < 0.7) await client.call('link_counter_inc', {});
      else if (dice < 0.9) await client.call('long_task', { seconds: 2, interval_ms: 40 + index });
      else if (dice < 0.92) await client.call('no_such_tool', {});
      else await client.call('ask_name', {}, { answer: { action: 'accept', content: { name: 'Ann' } } });
      await pause(120 + index * 25);
    });
  }
  new Client(real.mcp('weather'), headers(0)).open('vscode').catch(() => {});
  const rows = (await real.cli('sessions', 'list', '--json')).trim().split('\n').map(line => JSON.parse(line));
  const found = rows.find(row => row.client_name === STUCK);
  Object.assign(real, { key: found.key, backend: 'desk', tool: 'long_task', principal: 'key:ann' });
  // Until the question looks stuck, and the figures have minutes to show.
  await pause(Number(process.env.PAGE_LOAD_MS ?? 75_000));
}
