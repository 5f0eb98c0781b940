// The page in Chromium, in front of a node that is made up.
//
// Usage: node --test page.test.mjs

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { launch, openPage, overflow, startMock, views, visit } from './browser.mjs';

let browser;
before(async () => (browser = await launch()));
after(() => browser?.close());

/** A node and a page of its own for a test. */
async function withPage(words, options, run) {
  const node = await startMock(...words);
  const opened = await openPage(browser, node.url, options);
  try {
    await run({ ...opened, node });
    assert.deepEqual(opened.faults, [], 'the page ran, broke or violated something');
  } catch (error) {
    await opened.page.screenshot({ path: 'target/page-failed.png' }).catch(() => {});
    throw error;
  } finally {
    await opened.context.close();
    if (node.child.exitCode === null && node.child.signalCode === null) await node.stop();
  }
}

const api = (page, path) => page.evaluate(async of => (await fetch(`/api/v1/${of}`)).json(), path);
const mock = async node => (await fetch(new URL('/mock', node.url))).json();

test('AD2: a session that hangs on an elicitation is found from Now in two clicks, cancelled with a reason, and audited', async () => {
  await withPage([], {}, async ({ page }) => {
    const problem = page.getByRole('link', { name: /create_ticket.*has waited/ });
    await problem.waitFor();
    // What is wrong stands before every figure.
    assert.ok((await problem.boundingBox()).y < (await page.locator('.tiles').boundingBox()).y);
    const key = (await problem.getAttribute('href')).split('/').at(-1);
    const { problems } = await api(page, `sessions/${key}`);

    await problem.click();
    await page.getByRole('heading', { level: 1, name: /s-4f3a9c01/ }).waitFor();
    const sign = page.getByRole('region', { name: 'What looks wrong' });
    assert.match(await sign.innerText(), new RegExp(problems[0].replaceAll('`', '').replace(/[()]/g, '\\$&').slice(1), 'i'));
    assert.match(await page.locator('.verdict').innerText(), /asked a question in create_ticket .* ago, and the client has not answered/);
    assert.match(await page.getByRole('table', { name: 'Calls in flight' }).innerText(), /the client to answer a question; the client does not read its stream/);

    await page.getByRole('row', { name: /create_ticket/ }).getByRole('button', { name: 'Cancel' }).click();
    const dialog = page.getByRole('dialog');
    assert.match(await dialog.innerText(), /Its client gets an error as the answer/);
    assert.match(await dialog.locator('code').last().innerText(), /^curl --unix-socket control\.sock .*'\{"call":17,"reason":"…"\}' http:\/\/control\/api\/v1\/sessions\/[0-9a-f]+\/cancel$/);
    const submit = dialog.getByRole('button', { name: 'Cancel the call' });
    assert.ok(await submit.isDisabled(), 'without a reason nothing is done');
    await dialog.getByLabel(/Why/).fill('OPS-4711: the user went home');
    await submit.click();

    await page.getByText('The call is cancelled').waitFor();
    await sign.waitFor({ state: 'detached' });
    await page.getByText('create_ticket ended: cancelled_by_operator').waitFor();
    await page.getByRole('link', { name: 'Audit' }).click();
    await page.getByText('OPS-4711: the user went home').waitFor();
  });
});

test('AD3: a session is revoked with a reason, and is gone from what is wrong', async () => {
  await withPage([], {}, async ({ page }) => {
    await visit(page, '#/session/s-c0ffee77');
    await page.getByRole('button', { name: 'Revoke' }).click();
    const dialog = page.getByRole('dialog');
    assert.match(await dialog.innerText(), /404 session_revoked/);
    await dialog.getByLabel(/Why/).fill('too many errors');
    await dialog.getByRole('button', { name: 'Revoke it' }).click();
    await page.getByText('s-c0ffee77 is revoked').waitFor();
    await page.getByText('ended (revoked)').first().waitFor();
    assert.equal(await page.getByRole('button', { name: 'Revoke' }).count(), 0, 'what has ended cannot be revoked');
    const { rows } = await api(page, 'audit?event=admin_action&limit=1');
    assert.equal(rows[0].method, 'sessions.revoke');
    assert.equal(rows[0].reason, 'too many errors');
  });
});

test('an error of the API stays in the dialog, with its hint', async () => {
  await withPage([], {}, async ({ page }) => {
    await visit(page, '#/config');
    await page.getByRole('button', { name: 'Reload' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel(/Why/).fill('longer sessions');
    await dialog.getByRole('button', { name: 'Reload it' }).click();
    assert.match(await dialog.getByRole('alert').innerText(), /Line 12: session\.idle_ttl is not a time.*\n*Hint: write it like 24h; nothing was changed/s);
    await page.keyboard.press('Escape');
    await dialog.waitFor({ state: 'detached' });
  });
});

test('sessions are revoked by a filter only as many as were expected', async () => {
  await withPage([], {}, async ({ page }) => {
    await visit(page, '#/sessions?principal=corp%3Abob');
    const { rows } = await api(page, 'sessions?principal=corp%3Abob&limit=500');
    await page.getByRole('button', { name: 'Revoke all of these' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel(/How many/).fill('1');
    await dialog.getByLabel(/Why/).fill('left the company');
    await dialog.getByRole('button', { name: 'Revoke them' }).click();
    await dialog.getByText(`${rows.length} sessions match, and you expected 1 at most`).waitFor();
    await dialog.getByLabel(/How many/).fill(String(rows.length));
    await dialog.getByRole('button', { name: 'Revoke them' }).click();
    await page.getByText(`${rows.length} sessions revoked`).waitFor();
  });
});

test('AD5: names that are markup stay text everywhere, and characters that steer are spelled out', async () => {
  await withPage([], {}, async ({ page }) => {
    for (const [name, hash] of Object.entries({ ...views('s-c0ffee77', 'github', '<img src=x onerror=alert(1)>'), 'other session': '#/session/s-4f3a9c01', 'a hostile address': '#/sessions?client=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E&principal=%22%3E', 'a broken address': '#/session/%E0%A4%A' })) {
      await visit(page, hash);
      assert.equal(await page.locator('main img, main script, main b[onmouseover]').count(), 0, name);
    }
    await visit(page, '#/session/s-c0ffee77');
    const text = await page.locator('main').innerText();
    assert.ok(text.includes('"><script>alert(1)</script>\\u202egnp.exe'), 'a change of the writing direction is spelled out');
    assert.ok(text.includes('<img src=x onerror=alert(1)>'), 'notes of operators are text');
    // In the form of a tool, in the events with their bodies, in an answer.
    await page.getByRole('button', { name: 'Show bodies' }).click();
    await page.getByText('body').first().click();
    await visit(page, '#/try?backend=github&tool=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E');
    await page.getByLabel('path (required)').fill('x');
    await page.getByLabel(/Why/).fill('to see');
    await page.getByRole('button', { name: 'Call it' }).click();
    await page.getByText('was called with').first().waitFor();
    assert.equal(await page.locator('main img').count(), 0);
  });
});

test('AD7: after a kill the page says that the node is away, reconnects by itself, and says that there is another version', async () => {
  await withPage([], {}, async ({ page, node }) => {
    await page.getByText('live', { exact: true }).waitFor();
    const { port } = new URL(node.url);
    await node.stop('SIGKILL');
    await page.getByText(/No connection to the node for/).waitFor();
    await page.getByText(/What is shown is of .* ago/).waitFor();
    // What was known stays readable.
    assert.ok(await page.getByRole('link', { name: /create_ticket/ }).isVisible());
    const next = await startMock('--port', port, '--version', '0.2.0');
    try {
      await page.getByText('live', { exact: true }).waitFor();
      await page.getByText(/No connection to the node/).waitFor({ state: 'detached' });
      await page.getByText('The node has been updated.').waitFor();
    } finally {
      await next.stop();
    }
  });
});

test('one stream of news is open, it rests in a hidden tab, and no view asks all the time', async () => {
  await withPage([], {}, async ({ page, node }) => {
    await page.getByText('live', { exact: true }).waitFor();
    for (const hash of Object.values(views())) {
      await visit(page, hash);
      const before = (await mock(node)).requests;
      await page.waitForTimeout(2100);
      const { requests, listeners } = await mock(node);
      assert.equal(listeners, 1, hash);
      assert.ok(requests - before <= 2, `${hash}: ${requests - before} requests within two seconds`);
    }
    await page.evaluate(() => {
      Object.defineProperty(document, 'hidden', { configurable: true, value: true });
      document.dispatchEvent(new Event('visibilitychange'));
    });
    await page.waitForFunction(() => document.querySelector('.standing')?.textContent === 'resting');
    const { requests } = await mock(node);
    await page.waitForTimeout(6000);
    const rested = await mock(node);
    assert.deepEqual([rested.listeners, rested.requests - requests], [0, 0], 'a hidden tab asks for nothing');
    await page.evaluate(() => {
      Object.defineProperty(document, 'hidden', { configurable: true, value: false });
      document.dispatchEvent(new Event('visibilitychange'));
    });
    await page.getByText('live', { exact: true }).waitFor();
    assert.equal((await mock(node)).listeners, 1);
  });
});

test('a page too many says why it gets no news, and gets them when there is room', async () => {
  await withPage(['--pages', '1'], {}, async ({ page, node }) => {
    await page.getByText('live', { exact: true }).waitFor();
    const { page: other, context } = await openPage(browser, node.url);
    await other.getByText('The node gives no news: 1 pages follow already; close one of them.').waitFor();
    await page.goto('about:blank');
    await other.getByText('live', { exact: true }).waitFor();
    await other.getByText('The node gives no news').waitFor({ state: 'detached' });
    await context.close();
  });
});

test('AD8: the story of AD2 with the keyboard alone', async () => {
  await withPage([], {}, async ({ page }) => {
    await page.getByRole('link', { name: /create_ticket/ }).waitFor();
    const { keyboard } = page;
    const focused = () => page.evaluate(() => (document.activeElement?.matches('a, button') ? document.activeElement.textContent : ''));
    // Links of what is wrong are walked over with j.
    for (let steps = 0; steps < 10 && !(await focused()).includes('create_ticket'); steps += 1) await keyboard.press('j');
    assert.match(await focused(), /create_ticket/);
    await keyboard.press('Enter');
    await page.getByRole('heading', { level: 1, name: /s-4f3a9c01/ }).waitFor();
    await page.getByRole('button', { name: 'Cancel' }).first().waitFor();
    for (let steps = 0; steps < 20 && !(await focused()).startsWith('Cancel'); steps += 1) await keyboard.press('Tab');
    await keyboard.press('Enter');
    await page.getByRole('dialog').waitFor();
    await keyboard.type('the user went home');
    await keyboard.press('Control+Enter');
    await page.getByText('The call is cancelled').waitFor();
    await keyboard.press('g');
    await keyboard.press('a');
    await page.getByRole('heading', { level: 1, name: 'Audit' }).waitFor();
    await page.getByText('the user went home').waitFor();
    await keyboard.press('?');
    await page.getByRole('dialog', { name: 'Keys' }).waitFor();
    await keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    const theme = await page.evaluate(() => document.documentElement.dataset.theme);
    await keyboard.press('t');
    assert.notEqual(await page.evaluate(() => document.documentElement.dataset.theme), theme);
    await keyboard.press('/');
    assert.equal(await page.evaluate(() => document.activeElement?.tagName), 'INPUT');
  });
});

test('AD8: the first stop of the keyboard leads past the views', async () => {
  await withPage([], {}, async ({ page }) => {
    await page.locator('.tiles').waitFor();
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate(() => document.activeElement?.textContent), 'Skip to the view');
    await page.keyboard.press('Enter');
    assert.equal(await page.evaluate(() => document.activeElement?.id), 'main');
  });
});

for (const [name, width] of [['1280 px', 1280], ['200 % zoom', 640], ['a phone', 380]]) {
  test(`AD8: no view is wider than the window at ${name}, light or dark`, async () => {
    for (const colorScheme of ['light', 'dark']) {
      await withPage([], { viewport: { width, height: 800 }, colorScheme }, async ({ page }) => {
        for (const [view, hash] of Object.entries(views())) {
          await visit(page, hash);
          assert.ok((await overflow(page)) <= 0, `${view} can be scrolled sideways by ${await overflow(page)} px`);
        }
      });
    }
  });
}

test('AD8: text has enough contrast, light and dark', async () => {
  for (const colorScheme of ['light', 'dark']) {
    await withPage([], { colorScheme }, async ({ page }) => {
      const weak = await page.evaluate(() => {
        const resolve = name => {
          const probe = document.createElement('i');
          probe.style.color = `var(--${name})`;
          document.body.append(probe);
          const parts = getComputedStyle(probe).color.match(/[\d.]+/g).map(Number);
          probe.remove();
          return parts;
        };
        const light = ([r, g, b]) => {
          const [x, y, z] = [r, g, b].map(part => (part / 255 <= 0.03928 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
          return 0.2126 * x + 0.7152 * y + 0.0722 * z;
        };
        const contrast = (one, other) => {
          const [high, low] = [light(resolve(one)), light(resolve(other))].sort((a, b) => b - a);
          return (high + 0.05) / (low + 0.05);
        };
        const pairs = ['text', 'dim', 'accent', 'bad', 'warn'].flatMap(front => ['bg', 'panel', 'sunk', 'raised'].map(back => [front, back]));
        return [...pairs, ['on-accent', 'accent'], ['text', 'accent-soft'], ['bg', 'bad']].filter(([front, back]) => contrast(front, back) < 4.5).map(([front, back]) => `${front} on ${back}: ${contrast(front, back).toFixed(2)}`);
      });
      assert.deepEqual(weak, [], colorScheme);
      await page.locator('.tiles').waitFor();
    });
  }
});

test('the code of a link logs in once, and is gone from the address at once', async () => {
  const node = await startMock('--login');
  try {
    const { page, context, faults } = await openPage(browser, node.url);
    await page.getByText('tenure admin open').waitFor();
    await page.goto(new URL('/login#wrong', node.url).href);
    await page.getByText(/was used already, or is too old/i).waitFor();
    assert.ok(!page.url().includes('wrong'));
    await page.goto(new URL('/login#good', node.url).href);
    await page.locator('.tiles').waitFor();
    assert.ok(!page.url().includes('good'));
    await page.getByRole('button', { name: 'Log out' }).click();
    await page.getByText('tenure admin open').waitFor();
    assert.deepEqual(faults, []);
    await context.close();
  } finally {
    await node.stop();
  }
});

test('a viewer sees no actions and no bodies', async () => {
  await withPage(['--role', 'viewer'], {}, async ({ page }) => {
    for (const [view, hash] of Object.entries(views())) {
      await visit(page, hash);
      const found = await page.getByRole('button', { name: /(Revoke|Cancel|Detach|sleep|Restart|Reload|Change|bodies|contents)/ }).count();
      assert.equal(found, 0, view);
    }
  });
});

test('a node where all is well says so, and empty lists say what to do', async () => {
  await withPage(['--well', '--running', '0', '--alone'], {}, async ({ page }) => {
    await page.getByRole('heading', { level: 1, name: 'Nothing is wrong' }).waitFor();
    assert.equal(await page.getByRole('link', { name: 'Nodes' }).count(), 0, 'a node alone has no view of nodes');
    await visit(page, '#/sessions?prefix=s-none');
    await page.getByText('No session matches these filters.').waitFor();
    await page.getByRole('button', { name: 'Clear' }).click();
    await page.getByRole('link', { name: 's-4f3a9c01' }).waitFor();
    await visit(page, '#/session/0000');
    await page.getByText('Hint: it may have ended long ago').waitFor();
  });
});

test('an answer that makes no sense fails one view and not the page', async () => {
  await withPage([], {}, async ({ page }) => {
    await page.route('**/api/v1/principals', route => route.fulfill({ json: { rows: [null] } }));
    await visit(page, '#/sessions');
    await page.evaluate(() => (location.hash = '#/limits'));
    await page.getByRole('heading', { name: 'This view failed' }).waitFor();
    await page.getByRole('link', { name: 'Backends' }).click();
    await page.getByRole('heading', { level: 1, name: 'Backends' }).waitFor();
  });
});

test('filters and pages of sessions stand in the address', async () => {
  await withPage([], {}, async ({ page }) => {
    await visit(page, '#/sessions');
    await page.getByRole('button', { name: 'Next 50' }).click();
    await page.waitForFunction(() => location.hash.includes('after='));
    const first = () => page.locator('td a.key').first().innerText();
    await page.waitForFunction(() => document.querySelector('td a.key')?.textContent !== 's-4f3a9c01');
    const second = await first();
    await page.reload();
    await page.locator('td a.key').first().waitFor();
    assert.equal(await first(), second, 'a page can be opened by its address');
    await page.getByLabel('Client').fill('zed');
    await page.keyboard.press('Enter');
    await page.getByText(/The node looked at .* of 200,000 sessions/).waitFor();
    assert.ok(page.url().includes('client=zed') && !page.url().includes('after='));
    for (const name of await page.locator('tbody tr td:nth-child(4)').allInnerTexts()) assert.equal(name, 'zed');
  });
});

test('calls as they end can be paused and filtered', async () => {
  await withPage(['--rate', '200'], {}, async ({ page }) => {
    await visit(page, '#/calls');
    const rows = () => page.locator('tbody tr').allInnerTexts();
    await page.keyboard.press('p');
    await page.getByText(/Paused\./).waitFor();
    const still = await rows();
    await page.waitForTimeout(1500);
    assert.deepEqual(await rows(), still);
    await page.keyboard.press('p');
    await page.waitForFunction(old => document.querySelector('tbody tr')?.innerText !== old, still[0]);
    await page.keyboard.press('/');
    await page.keyboard.type('read_file');
    await page.waitForFunction(() => [...document.querySelectorAll('tbody tr')].every(row => row.textContent.includes('read_file')));
    await page.locator('tbody button').first().click();
    await page.getByRole('dialog', { name: 'One call' }).getByText('tools/call').waitFor();
  });
});

// The bound of a frame is for a machine that has nothing else to do: what is asserted leaves room, what is printed is the measure.
test('AD1: with 10,000 sessions, 10,000 calls in flight and 500 calls a second, frames stay short', async () => {
  await withPage(['--sessions', '10000', '--running', '10000', '--rate', '500'], {}, async ({ page }) => {
    await page.locator('.tiles').waitFor();
    for (const hash of ['#/now', '#/calls', '#/sessions', '#/calls/running', '#/session/s-4f3a9c01']) {
      await visit(page, hash);
      const frames = await page.evaluate(
        () =>
          new Promise(done => {
            const times = [];
            let last = performance.now();
            const step = now => {
              times.push(now - last);
              last = now;
              if (times.length < 240) requestAnimationFrame(step);
              else done(times.sort((a, b) => a - b));
            };
            requestAnimationFrame(step);
          }),
      );
      const at = part => frames[Math.floor((frames.length - 1) * part)];
      console.log(`${hash}: half of the frames within ${at(0.5).toFixed(0)} ms, 99 of 100 within ${at(0.99).toFixed(0)} ms, the longest ${at(1).toFixed(0)} ms`);
      assert.ok(at(0.98) < 100, `${hash}: a fiftieth of the frames takes longer than 100 ms`);
    }
    const rows = await page.evaluate(() => document.querySelectorAll('tr').length);
    assert.ok(rows < 500, 'a table draws a part of its rows');
  });
});
