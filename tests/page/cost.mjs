// AD1, the node's half: what open pages cost a node that answers calls, and how long its lists take. Measured in a release build;
// TENURE names the binary, and TENURE_BENCH the one that fills stores with dormant sessions.
//
// Usage: node cost.mjs [--sessions N] [--dormant N] [--rate CALLS_PER_S] [--seconds S] [--pages N] [--rounds N]
//
// The same load with and without pages, in turns; the processor time of the process is compared, which other work on the machine
// hardly changes. A page is its stream of news: that is all it holds open.

import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from './client.mjs';
import { startReal } from './real.mjs';

const words = process.argv.slice(2);
const BENCH = process.env.TENURE_BENCH;
// The node would take it for a setting.
delete process.env.TENURE_BENCH;
process.env.TENURE_SESSION_MAX_SESSIONS = '2000000';
const value = (name, otherwise) => Number(words.includes(`--${name}`) ? words[words.indexOf(`--${name}`) + 1] : otherwise);
const [sessions, dormant, rate] = [value('sessions', 10_000), value('dormant', 0), value('rate', 500)];
const [seconds, pages, rounds] = [value('seconds', 10), value('pages', 5), value('rounds', 3)];
// Of a processor, in a release build.
const LIMIT = 0.05;
// How long an answer with a list may take.
const LIST_LIMIT_MS = 200;
// A search that finds nothing looks at as many sessions as it may.
const LISTS = ['limit=50', 'limit=50&state=dormant', 'limit=50&principal=nobody-has-this-name', 'limit=50&client=no-such-client'];
const LIST_ROUNDS = 10;

/** Processor time of a process so far, in seconds. */
function cpu(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

const pause = ms => new Promise(done => setTimeout(done, ms));

async function logIn(node) {
  const link = new URL(await node.open('viewer'));
  const response = await fetch(new URL('/login', link), { method: 'POST', headers: { 'Content-Type': 'application/json', 'X-Tenure': '1', 'Sec-Fetch-Site': 'same-origin' }, body: JSON.stringify({ code: link.hash.slice(1) }) });
  if (response.status !== 204) throw new Error(`login: ${response.status} ${await response.text()}`);
  return { origin: link.origin, cookie: response.headers.get('set-cookie').split(';')[0] };
}

/** Follows the news as a page does; one of them shows the calls as they end. */
function follow({ origin, cookie }, isOfCalls) {
  let bytes = 0;
  const asked = request(`${origin}/api/v1/live${isOfCalls ? '?calls=true' : ''}`, { headers: { Cookie: cookie, 'Sec-Fetch-Site': 'same-origin' } }, response => response.on('data', data => (bytes += data.length)));
  asked.on('error', () => {});
  asked.end();
  return { stop: () => asked.destroy(), bytes: () => bytes };
}

/** Fills a store with sessions that no process has awake. */
async function fill(folder) {
  const task = JSON.stringify({ fill: { folder, sessions: dormant, events: 0 } });
  // It ends with its standard input.
  const worker = spawn(BENCH, ['store-worker', task], { stdio: ['pipe', 'inherit', 'inherit'] });
  const code = await new Promise((done, fail) => worker.on('error', fail).on('exit', done));
  if (code !== 0) throw new Error(`the store was not filled: ${code}`);
}

/** The longest time that an answer with a list took, in ms, and how many answers there were. */
async function lists({ origin, cookie }) {
  const taken = {};
  for (let round = 0; round < LIST_ROUNDS; round += 1) {
    for (const query of LISTS) {
      const began = performance.now();
      const response = await fetch(`${origin}/api/v1/sessions?${query}`, { headers: { Cookie: cookie, 'Sec-Fetch-Site': 'same-origin' } });
      const answer = await response.json();
      if (response.status !== 200) throw new Error(`${query}: ${response.status} ${JSON.stringify(answer)}`);
      taken[query] = Math.max(taken[query] ?? 0, performance.now() - began);
    }
  }
  return taken;
}

const folder = mkdtempSync(join(tmpdir(), 'tenure-page-'));
if (dormant > 0) {
  mkdirSync(join(folder, 'store'), { mode: 0o700 });
  await fill(join(folder, 'store'));
}
const node = await startReal({ isPlain: true, folder });
try {
  const clients = [];
  while (clients.length < sessions) {
    const more = Array.from({ length: Math.min(64, sessions - clients.length) }, (_, index) => new Client(node.mcp()).open(`agent-${index % 9}`));
    clients.push(...(await Promise.all(more)));
  }
  const callers = clients.slice(-64);
  const load = async () => {
    const [before, began] = [cpu(node.child.pid), performance.now()];
    let made = 0;
    const running = new Set();
    while (performance.now() - began < seconds * 1000) {
      const due = ((performance.now() - began) / 1000) * rate;
      for (; made < due; made += 1) {
        const call = callers[made % callers.length].call('public_echo', { text: 'x' }).finally(() => running.delete(call));
        running.add(call);
      }
      await pause(5);
    }
    await Promise.all(running);
    return { perCall: (cpu(node.child.pid) - before) / made, made };
  };
  const who = await logIn(node);
  await load();
  const [ratios, extras, longest] = [[], [], {}];
  for (let round = 0; round < rounds; round += 1) {
    const without = await load();
    const open = Array.from({ length: pages }, (_, index) => follow(who, index === 0));
    await pause(500);
    const during = await load();
    // Beside a load of their own: what lists cost is not what open pages cost.
    const [, took] = await Promise.all([load(), lists(who)]);
    for (const [query, ms] of Object.entries(took)) longest[query] = Math.max(longest[query] ?? 0, ms);
    const heard = open.reduce((sum, page) => sum + page.bytes(), 0);
    for (const page of open) page.stop();
    if (heard === 0) throw new Error('the pages heard nothing');
    ratios.push(during.perCall / without.perCall);
    extras.push(((during.perCall - without.perCall) * during.made) / seconds);
    console.log(`${sessions} sessions, ${rate} calls/s: ${(without.perCall * 1e6).toFixed(0)} us of processor time per call without pages, ${(during.perCall * 1e6).toFixed(0)} us with ${pages}; they heard ${(heard / 1e6).toFixed(1)} MB`);
  }
  const median = list => list.sort((a, b) => a - b)[Math.floor(list.length / 2)];
  const extra = median(extras);
  console.log(`${pages} pages take ${(extra * 100).toFixed(1)} % of a processor, and a call takes ${median(ratios).toFixed(3)} times as much of it; ${LIMIT * 100} % are allowed`);
  for (const [query, ms] of Object.entries(longest)) {
    console.log(`sessions?${query}: at most ${ms.toFixed(0)} ms among ${sessions} awake and ${dormant} dormant sessions; ${LIST_LIMIT_MS} ms are allowed`);
  }
  if (extra > LIMIT || Math.max(...Object.values(longest)) > LIST_LIMIT_MS) process.exitCode = 1;
} finally {
  await node.stop();
}
