// A node that is made up: the operator's page from its folder, and the admin API with rich data, so that the page can be built, looked at
// and tested without a server. It prints its address first.
//
// Usage: node mock.mjs [--port N] [--sessions N] [--rate CALLS_PER_S] [--running N] [--role ROLE] [--alone] [--well] [--login] [--version V] [--pages N]

import { createServer } from 'node:http';
import { readFileSync } from 'node:fs';
import { dirname, extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Refusal, Routes } from './routes.mjs';
import { makeWorld } from './world.mjs';

const page = join(dirname(fileURLToPath(import.meta.url)), '../../crates/tenure/src/page');
const words = process.argv.slice(2);
const flag = name => words.includes(`--${name}`);
const value = (name, otherwise) => (flag(name) ? words[words.indexOf(`--${name}`) + 1] : otherwise);

const options = { rate: Number(value('rate', '38')), running: Number(value('running', '14')), role: value('role', 'admin'), cluster: !flag('alone'), well: flag('well'), version: value('version', '0.1.0') };
const routes = new Routes(makeWorld({ sessions: Number(value('sessions', '1200')) }), options);

// What the real listener sends; `page/mod.rs` has the same.
const HEADERS = Object.fromEntries(
  [...readFileSync(join(page, 'mod.rs'), 'utf8').matchAll(/^ +\(\s*"([a-z-]+)",\s*"((?:[^"\\]|\\\n\s*)*)"/gm)].map(([, name, text]) => [name, text.replace(/\\\n\s*/g, '')]),
);
if (!HEADERS['content-security-policy']) throw new Error('page/mod.rs has no content-security-policy');
const TYPES = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript; charset=utf-8', '.css': 'text/css; charset=utf-8', '.svg': 'image/svg+xml' };
const COOKIE = 'tenure=mock';
let isIn = !flag('login');
let requests = 0;
const MOST_PAGES = Number(value('pages', '16'));

function asset(path, response) {
  const name = path === '/' || path === '/login' ? 'index.html' : normalize(path).replace(/^\/assets\/[^/]+\//, '');
  try {
    let body = readFileSync(join(page, name));
    if (name === 'index.html') body = String(body).replaceAll('{version}', 'mock');
    response.writeHead(200, { ...HEADERS, 'Content-Type': TYPES[extname(name)], 'Cache-Control': 'no-store' }).end(body);
  } catch {
    answer(response, 404, { reason: 'not_found', message: 'there is no such file' });
  }
}

function answer(response, status, body, headers = {}) {
  const text = body === undefined ? '' : JSON.stringify(body);
  response.writeHead(status, { ...HEADERS, 'Content-Type': 'application/json', 'Cache-Control': 'no-store', ...headers }).end(text);
}

function live(response, query) {
  response.writeHead(200, { ...HEADERS, 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store' });
  const send = (kind, row) => {
    if (kind === 'call' && query.calls !== 'true') return;
    // A page that does not read loses rows; the real node counts them in the same way.
    if (kind === 'call' && response.writableLength > 1 << 20) return;
    response.write(`event: ${kind}\ndata: ${JSON.stringify(row)}\n\n`);
  };
  routes.listeners.add(send);
  send('overview', routes.overview());
  response.on('close', () => routes.listeners.delete(send));
}

async function read(request) {
  let text = '';
  for await (const part of request) text += part;
  return text === '' ? {} : JSON.parse(text);
}

const server = createServer(async (request, response) => {
  const url = new URL(request.url, 'http://mock');
  const isChange = request.method !== 'GET';
  try {
    if (isChange && (request.headers['x-tenure'] !== '1' || request.headers['content-type'] !== 'application/json' || (request.headers['sec-fetch-site'] ?? 'same-origin') !== 'same-origin')) {
      throw new Refusal(403, 'cross_site', 'changes come from this page alone', 'send `Content-Type: application/json` and `X-Tenure: 1`');
    }
    if (url.pathname === '/login' && isChange) {
      const { code } = await read(request);
      if (code !== 'good') throw new Refusal(401, 'code_unknown', 'this link was used already, or is too old', 'make another: `tenure admin open`');
      isIn = true;
      return void response.writeHead(204, { ...HEADERS, 'Set-Cookie': `${COOKIE}; HttpOnly; SameSite=Strict; Path=/` }).end();
    }
    if (url.pathname === '/logout' && isChange) {
      isIn = false;
      return void response.writeHead(204, HEADERS).end();
    }
    // For tests: how much the page asks.
    if (url.pathname === '/mock') return void answer(response, 200, { requests, listeners: routes.listeners.size });
    if (!url.pathname.startsWith('/api/v1/')) return void asset(url.pathname, response);
    requests += 1;
    if (!isIn) throw new Refusal(401, 'login_needed', 'nobody is logged in', 'open the link that `tenure admin open` prints');
    const parts = url.pathname.slice('/api/v1/'.length).split('/').map(decodeURIComponent);
    if (parts[0] === 'live') {
      if (routes.listeners.size >= MOST_PAGES) throw new Refusal(503, 'unavailable', `${MOST_PAGES} pages follow already`, 'close one of them');
      return void live(response, Object.fromEntries(url.searchParams));
    }
    const query = Object.fromEntries(url.searchParams);
    answer(response, 200, isChange ? routes.change(request.method, parts, await read(request)) : routes.read(parts, query));
  } catch (error) {
    if (!(error instanceof Refusal)) console.error(error);
    const { status = 500, reason = 'bug', message, hint } = error;
    answer(response, status, { reason, message, hint });
  }
  return undefined;
});

const PART_MS = 50;
setInterval(() => routes.tick(PART_MS / 1000), PART_MS);
setInterval(() => routes.second(), 1000);
server.listen(Number(value('port', '0')), '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}/`));
process.on('SIGTERM', () => process.exit(0));
process.on('SIGINT', () => process.exit(0));
