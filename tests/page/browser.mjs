// What the tests of the page share: a Chromium, a node that is made up, and a page whose every violation is noted.

import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

export const here = dirname(fileURLToPath(import.meta.url));
const folder = resolve(process.env.PAGE_BROWSER ?? join(here, '../../.dev/page'));
const { chromium } = createRequire(join(folder, 'node_modules/x.js'))('playwright-core');
export const PATIENCE = 15_000;

export const launch = () =>
  chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: process.getuid?.() === 0 ? ['--no-sandbox'] : [] });

/** Starts a program that prints its address first. */
export function start(command, args, options = {}) {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], ...options });
  let log = '';
  child.stderr.on('data', data => (log += data));
  const ended = new Promise(done => child.once('exit', done));
  const url = new Promise((done, failed) => {
    child.stdout.once('data', data => done(String(data).split('\n')[0].trim()));
    child.once('exit', code => failed(new Error(`${command} ended (${code}):\n${log}`)));
  });
  const stop = async (signal = 'SIGTERM') => {
    child.kill(signal);
    await ended;
  };
  return url.then(address => ({ url: address, child, stop, log: () => log }));
}

/** The node that is made up. */
export const startMock = (...words) => start(process.execPath, [join(here, 'mock.mjs'), ...words.map(String)]);

/** A page, and what it must not do: run what was not meant to run, break the policy, or fail. */
export async function openPage(browser, url, options = {}) {
  const context = await browser.newContext({ locale: 'en-US', viewport: { width: 1280, height: 860 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  const faults = [];
  page.on('dialog', dialog => {
    faults.push(`a dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on('pageerror', error => faults.push(`an error: ${error.message}`));
  page.on('console', message => {
    if (/Content Security Policy|TrustedHTML|Trusted Type/.test(message.text())) faults.push(message.text());
  });
  // While one works on the page: the files of the folder in place of those in the binary.
  if (process.env.PAGE_FILES) {
    await context.route(/\/assets\/[0-9a-f]+\//, async route => {
      const response = await route.fetch().catch(() => null);
      const path = join(here, '../../crates/tenure/src/page', new URL(route.request().url()).pathname.replace(/^\/assets\/[^/]+\//, ''));
      await route.fulfill({ path, headers: response?.headers() });
    });
  }
  await page.addInitScript(() => addEventListener('securitypolicyviolation', event => console.error(`Content Security Policy: ${event.violatedDirective} ${event.sample}`)));
  await page.goto(url);
  return { page, context, faults };
}

/** Every view of the page, by a name for files; `key` is the session to look at. */
export const views = (key = 's-4f3a9c01', backend = 'tickets', tool = 'create_ticket', principal = 'corp:ann') => ({
  now: '#/now',
  sessions: '#/sessions',
  'sessions-ended': '#/sessions?state=lately',
  session: `#/session/${key}`,
  calls: '#/calls',
  'calls-running': '#/calls/running',
  'calls-slowest': '#/calls/slowest',
  data: '#/data',
  tasks: '#/data/tasks',
  backends: '#/backends',
  backend: `#/backends/${backend}`,
  nodes: '#/nodes',
  principals: '#/limits',
  principal: `#/limits?principal=${encodeURIComponent(principal)}`,
  limits: '#/limits/limits',
  shares: '#/limits/usage',
  audit: '#/audit',
  config: '#/config',
  try: `#/try?backend=${encodeURIComponent(backend)}&tool=${encodeURIComponent(tool)}`,
});

/** Goes to a view and waits until it has said something. */
export async function visit(page, hash) {
  await page.evaluate(address => (location.hash = address), hash);
  await page.locator('main h1').first().waitFor();
  await page.waitForFunction(() => !/Asking the node/.test(document.querySelector('main')?.textContent ?? ''));
  // Lists come with their first answer.
  await page.waitForFunction(() => document.querySelector('main table, main .empty, main .facts, main .trouble, main .quiet, main form'), undefined, { timeout: PATIENCE });
}

/** How far the page could be scrolled sideways. */
export const overflow = page => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
