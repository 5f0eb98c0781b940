// The page of the MCP Inspector in Chromium, talking to a gateway directly: it lists and calls tools, and answers an
// elicitation. Its origin is not of this machine, so it needs `--allow-origin`; a page of another origin gets nowhere.
//
// Usage: node inspector.mjs DIR TENURE        DIR is what `install` filled

import { spawn } from 'node:child_process';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { extname, join, resolve } from 'node:path';

const [directory, tenure] = process.argv.slice(2).map(path => resolve(path));
const modules = join(directory, 'node_modules');
const { chromium } = createRequire(join(modules, 'x.js'))('playwright-core');
const PATIENCE = 20_000;

function check(good, what) {
  if (!good) throw new Error(what);
  console.log(`ok: ${what}`);
}

/** Serves the Inspector's page, and an empty one for those that only fetch. */
function servePage() {
  const dist = join(modules, '@modelcontextprotocol/inspector-client/dist');
  const types = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml' };
  const server = createServer((request, response) => {
    const path = new URL(request.url, 'http://x').pathname;
    const file = extname(path) in types ? path : '/index.html';
    const body = path === '/empty' ? '<!doctype html>' : readFileSync(join(dist, file));
    response.writeHead(200, { 'Content-Type': path === '/empty' ? 'text/html' : types[extname(file)] });
    response.end(body);
  });
  return new Promise(done => server.listen(0, '127.0.0.1', () => done(server)));
}

/** Starts the gateway; it prints its endpoint first. */
function startGateway(origin) {
  const everything = join(modules, '@modelcontextprotocol/server-everything/dist/index.js');
  const gateway = spawn(
    tenure,
    ['serve', '--listen', '127.0.0.1:0', '--store', 'memory:', '--door', 'sse', '--allow-origin', origin]
      .concat(['--', process.execPath, everything, 'stdio']),
    { stdio: ['ignore', 'pipe', 'pipe'] },
  );
  let log = '';
  gateway.stderr.on('data', data => (log += data));
  const url = new Promise((done, failed) => {
    gateway.stdout.once('data', data => done(String(data).split('\n')[0]));
    gateway.once('exit', code => failed(new Error(`the gateway ended (${code}):\n${log}`)));
  });
  return { gateway, url };
}

/** The Inspector connects over this transport, lists, calls, and is asked. */
async function inspect(browser, page, transport, url) {
  const context = await browser.newContext();
  await context.addInitScript(() => localStorage.setItem('lastConnectionType', 'direct'));
  const tab = await context.newPage();
  tab.setDefaultTimeout(PATIENCE);
  const problems = [];
  tab.on('console', message => message.type() === 'error' && problems.push(message.text()));
  const methods = new Set();
  const reached = new Set();
  // The page looks for the Inspector's own proxy, which is not there; whatever is answered counts.
  tab.on('response', response => {
    reached.add(new URL(response.url()).origin);
    if (response.url().startsWith(new URL(url).origin)) methods.add(response.request().method());
  });
  try {
    await tab.goto(`${page}/?transport=${transport}&serverUrl=${encodeURIComponent(url)}`);
    await tab.getByRole('button', { name: 'Connect', exact: true }).click();
    await tab.getByText('Connected', { exact: true }).waitFor();
    check(true, `${transport}: connected`);

    await tab.getByRole('tab', { name: 'Tools' }).click();
    await tab.getByRole('button', { name: 'List Tools' }).click();
    await tab.getByText('Echo Tool', { exact: true }).first().click();
    await tab.locator('textarea#message, input#message').first().fill('from a page');
    await tab.getByRole('button', { name: 'Run Tool' }).click();
    await tab.getByText('Echo: from a page').first().waitFor();
    check(true, `${transport}: listed and called a tool`);

    await tab.getByText('Trigger Elicitation Request Tool', { exact: true }).first().click();
    await tab.getByRole('button', { name: 'Run Tool' }).click();
    const asked = tab.getByTestId('elicitation-request').first();
    await asked.waitFor();
    await asked.getByRole('button', { name: 'Decline' }).click();
    await tab.getByRole('tab', { name: 'Tools' }).click();
    await tab.getByText(/declined/i).first().waitFor();
    check(true, `${transport}: was asked, and its answer reached the tool`);

    check([...reached].every(origin => origin === page || origin === new URL(url).origin), `${transport}: no proxy`);
    check(methods.has('POST') && methods.has('GET'), `${transport}: by ${[...methods].join(', ')}`);
    const refused = problems.filter(text => /CORS|Access-Control/.test(text));
    check(refused.length === 0, `${transport}: the browser kept nothing from the page ${refused.join('\n')}`);
  } catch (error) {
    await tab.screenshot({ path: join(tmpdir(), 'tenure-browser.png'), fullPage: true });
    console.error(`seen last: ${join(tmpdir(), 'tenure-browser.png')}\n${problems.join('\n')}`);
    throw error;
  } finally {
    await context.close();
  }
}

/** What a page gets that sends this with `fetch`: the status and a header, or that the browser did not let it. */
async function fetched(browser, page, url, headers, body) {
  const tab = await browser.newPage();
  await tab.goto(`${page}/empty`);
  const got = await tab.evaluate(
    async ({ url, headers, body }) => {
      try {
        const response = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) });
        return { status: response.status, session: response.headers.get('mcp-session-id'), text: await response.text() };
      } catch (error) {
        return { error: String(error) };
      }
    },
    { url, headers, body },
  );
  await tab.close();
  return got;
}

const server = await servePage();
const { port } = server.address();
const page = `http://app.example.com:${port}`;
const evil = `http://evil.example.com:${port}`;
const { gateway, url: started } = startGateway(page);
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: [
    '--headless',
    '--no-sandbox',
    '--disable-gpu',
    '--disable-quic',
    '--no-first-run',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync',
    '--host-resolver-rules=MAP *.example.com 127.0.0.1',
    // The page needs what browsers give to secure pages alone.
    `--unsafely-treat-insecure-origin-as-secure=${page}`,
  ],
});
let failed = false;
try {
  const url = await started;
  await inspect(browser, page, 'streamable-http', url);
  await inspect(browser, page, 'sse', new URL('/sse', url).href);

  const accept = { 'Content-Type': 'application/json', Accept: 'application/json, text/event-stream' };
  const clientInfo = { name: 'page', version: '1' };
  const initialize = {
    jsonrpc: '2.0',
    id: 1,
    method: 'initialize',
    params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo },
  };
  const opened = await fetched(browser, page, url, accept, initialize);
  check(opened.status === 200 && opened.session?.length > 0, 'a page can read the id of its session');
  const lost = await fetched(browser, page, url, { ...accept, 'Mcp-Session-Id': 'nonexistent' }, initialize);
  check(lost.status === 404 && lost.text.includes('session_not_found'), 'a page can read an error');
  const modern = {
    ...accept,
    'MCP-Protocol-Version': '2026-07-28',
    'Mcp-Method': 'tools/call',
    'Mcp-Name': 'echo',
    traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
    'X-Own': 'header',
  };
  const meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientCapabilities': {},
  };
  const call = {
    jsonrpc: '2.0',
    id: 2,
    method: 'tools/call',
    params: { name: 'echo', arguments: { message: 'without a session' }, _meta: meta },
  };
  const answered = await fetched(browser, page, url, modern, call);
  check(answered.status === 200 && answered.text.includes('without a session'), 'a page can call without a session');
  const forged = await fetched(browser, page, url, { ...accept, 'X-Forwarded-For': '10.0.0.1' }, initialize);
  check(forged.error !== undefined, 'a page cannot say that it is a proxy');
  const foreign = await fetched(browser, evil, url, accept, initialize);
  check(foreign.error !== undefined, 'a page of another origin gets nowhere');
} catch (error) {
  failed = true;
  console.error(error);
} finally {
  await browser.close();
  server.close();
  gateway.removeAllListeners('exit');
  const left = new Promise(done => gateway.once('exit', done));
  if (gateway.exitCode === null) {
    gateway.kill('SIGINT');
    const status = await left;
    if (status !== 0) failed = true;
  }
}
process.exit(failed ? 1 : 0);
