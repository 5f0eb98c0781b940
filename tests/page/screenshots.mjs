// A picture of every view of the operator's page, light and dark.
//
// Usage: node screenshots.mjs [DIR] [--mock] [--docs] [--url URL]
//
// Without `--mock` and `--url` it starts a real node with sessions that go wrong (`real.mjs`). `--docs` also writes the pictures that the
// docs show. A URL may be a link of `tenure admin open`.

import { mkdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { here, launch, openPage, startMock, views, visit } from './browser.mjs';

const words = process.argv.slice(2);
const flag = name => words.includes(`--${name}`);
const url = flag('url') ? words[words.indexOf('--url') + 1] : undefined;
const folder = resolve(words.find(word => !word.startsWith('--') && word !== url) ?? 'target/screenshots');
const images = join(here, '../../docs/images');
// The three that the docs show, each in one of the two lights.
const IN_DOCS = { 'now-light': 'page-now.png', 'session-dark': 'page-session.png', 'calls-light': 'page-calls.png' };
// Until figures, sparklines and the tail of the calls have something to show.
const SETTLE_MS = 1200;

async function begin() {
  if (url) return { url, stop: () => {} };
  if (flag('mock')) return startMock();
  const { startReal } = await import('./real.mjs');
  const node = await startReal({ load: true });
  return { url: await node.open(), key: node.key, backend: node.backend, tool: node.tool, principal: node.principal, stop: () => node.stop() };
}

const node = await begin();
const browser = await launch();
mkdirSync(folder, { recursive: true });
mkdirSync(images, { recursive: true });
try {
  const { context: first, page: login } = await openPage(browser, node.url);
  await login.locator('.tiles').waitFor();
  const storageState = await first.storageState();
  const { origin } = new URL(node.url);
  await first.close();
  for (const colorScheme of ['light', 'dark']) {
    const { page, context, faults } = await openPage(browser, origin, { colorScheme, storageState, viewport: { width: 1280, height: 860 } });
    await page.locator('.tiles').waitFor();
    for (const [name, hash] of Object.entries(views(node.key, node.backend, node.tool, node.principal))) {
      await visit(page, hash);
      await page.waitForTimeout(SETTLE_MS);
      const file = join(folder, `${name}-${colorScheme}.png`);
      await page.screenshot({ path: file, fullPage: true });
      const inDocs = IN_DOCS[`${name}-${colorScheme}`];
      if (flag('docs') && inDocs) await page.screenshot({ path: join(images, inDocs) });
      console.log(file);
    }
    for (const fault of faults) console.error(`error: ${fault}`);
    if (faults.length > 0) process.exitCode = 1;
    await context.close();
  }
} finally {
  await browser.close();
  await node.stop();
}
