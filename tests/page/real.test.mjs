// The page in Chromium, in front of the real binary.
//
// Usage: node --test real.test.mjs        TENURE says which binary, if not target/debug/tenure

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { createServer, request } from 'node:http';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { here, launch, openPage, overflow, views, visit } from './browser.mjs';
import { Client } from './client.mjs';
import { HOSTILE_CLIENT, startReal, TENURE } from './real.mjs';

const run = promisify(execFile);

let browser;
let node;
before(async () => {
  browser = await launch();
  node = await startReal();
});
after(async () => {
  await browser?.close();
  await node?.stop();
});

/** A page that is logged in, held to its policy. */
async function withPage(run, { role = 'admin', of = node, options = {} } = {}) {
  const opened = await openPage(browser, await of.open(role), options);
  try {
    await opened.page.getByText('live', { exact: true }).waitFor();
    await run(opened);
    assert.deepEqual(opened.faults, []);
  } catch (error) {
    await opened.page.screenshot({ path: 'target/page-failed.png' }).catch(() => {});
    throw error;
  } finally {
    await opened.context.close();
  }
}

const label = async (of, client) => {
  const rows = (await of.cli('sessions', 'list', '--json')).trim().split('\n').map(line => JSON.parse(line));
  return rows.find(row => row.client_name === client).label;
};

/** Records of the audit log that an operator caused. */
const actions = of => readFileSync(join(of.folder, 'audit.jsonl'), 'utf8').split('\n').filter(line => line.includes('"admin_action"')).join('\n');

test('AD2: a session hangs on an elicitation; found from Now in two clicks, understood, cancelled; the client sees the error; the audit log has it', async () => {
  const client = await new Client(node.mcp('desk')).open('stuck-agent');
  const answer = client.call('ask_name', {});
  const name = await label(node, 'stuck-agent');
  await withPage(async ({ page }) => {
    // A request without progress looks stuck after a minute.
    const problem = page.getByRole('link', { name: new RegExp(`ask_name.*has waited.*${name}`) });
    await problem.waitFor({ timeout: 90_000 });
    await problem.click();
    await page.getByRole('heading', { level: 1, name: new RegExp(name) }).waitFor();
    const sign = page.getByRole('region', { name: 'What looks wrong' });
    const shown = await node.cli('sessions', 'show', name);
    const words = text => text.replace(/[`!]/g, '').replace(/\d+m( \d+s)?|\d+s/g, 'TIME').replace(/\s+/g, ' ').trim().toLowerCase();
    const told = shown.split('\n').filter(line => line.trim().startsWith('!')).map(words);
    assert.ok(told.length > 0, shown);
    for (const line of told) assert.ok(words(await sign.innerText()).includes(line), `${line} is not in ${await sign.innerText()}`);
    await page.getByText(/asked a question in ask_name/).waitFor();
    await page.getByRole('row', { name: /ask_name/ }).getByRole('button', { name: 'Cancel' }).click();
    await page.getByRole('dialog').getByLabel(/Why/).fill('OPS-4711: the user went home');
    await page.getByRole('dialog').getByRole('button', { name: 'Cancel the call' }).click();
    await page.getByText('The call is cancelled').waitFor();
    const { error } = await answer;
    assert.ok(error, 'the client gets an error');
    await sign.waitFor({ state: 'detached' });
    await page.getByRole('link', { name: 'Audit' }).click();
    await page.getByText('OPS-4711: the user went home').waitFor();
  });
});

test('AD3: a session that is revoked in the page answers its client with 404 within a second, and the audit log has who and why', async () => {
  const client = await new Client(node.mcp('notes')).open('doomed-agent');
  const name = await label(node, 'doomed-agent');
  await withPage(async ({ page }) => {
    await visit(page, `#/sessions?prefix=${name}`);
    await page.getByRole('link', { name }).click();
    await page.getByRole('button', { name: 'Revoke' }).click();
    await page.getByRole('dialog').getByLabel(/Why/).fill('the laptop was stolen');
    const began = performance.now();
    await page.getByRole('dialog').getByRole('button', { name: 'Revoke it' }).click();
    await page.getByText(`${name} is revoked`).waitFor();
    const answer = await client.call('public_echo', { text: 'x' });
    assert.ok(performance.now() - began < 1000, 'within a second');
    assert.equal(answer.status, 404);
    assert.match(JSON.stringify(answer), /session_revoked/);
  });
  assert.match(actions(node), /the laptop was stolen/);
});

test('AD4: other sites get nothing: a form, a script, a frame, and a name that was bound anew', async () => {
  await new Client(node.mcp('notes')).open('victim');
  const origin = new URL(await node.open()).origin;
  await withPage(async ({ page, context }) => {
    const { rows } = await page.evaluate(async () => (await fetch('/api/v1/sessions?limit=500')).json());
    const key = rows.find(row => row.client_name === 'victim').key;
    const site = createServer((_, response) => response.writeHead(200, { 'Content-Type': 'text/html' }).end('<!doctype html><title>evil</title><body></body>'));
    await new Promise(done => site.listen(0, '127.0.0.1', done));
    try {
      const evil = await context.newPage();
      await evil.goto(`http://127.0.0.1:${site.address().port}/`);
      const target = `${origin}/api/v1/sessions/${key}/revoke`;
      const got = await evil.evaluate(
        async ([to, from]) => {
          const tries = [];
          const attempt = async (name, of) => tries.push([name, await of().then(response => `${response.type} ${response.status}`, () => 'refused')]);
          await attempt('script', () => fetch(to, { method: 'POST', credentials: 'include', headers: { 'Content-Type': 'application/json', 'X-Tenure': '1' }, body: '{"reason":"evil"}' }));
          await attempt('plain script', () => fetch(to, { method: 'POST', mode: 'no-cors', credentials: 'include', body: '{"reason":"evil"}' }));
          await attempt('look', () => fetch(`${from}/api/v1/sessions`, { credentials: 'include' }));
          return tries;
        },
        [target, origin],
      );
      for (const [name, outcome] of got) assert.ok(outcome === 'refused' || outcome === 'opaque 0', `${name}: ${outcome}`);
      await evil.evaluate(to => {
        const form = document.createElement('form');
        Object.assign(form, { method: 'POST', action: to, enctype: 'text/plain', target: '_blank' });
        const field = document.createElement('input');
        Object.assign(field, { name: '{"reason":"evil","x":"', value: '"}' });
        form.append(field);
        document.body.append(form);
        form.submit();
      }, target);
      await evil.evaluate(from => {
        const frame = document.createElement('iframe');
        frame.src = `${from}/`;
        document.body.append(frame);
        return new Promise(done => (frame.onload = done));
      }, origin);
      const framed = evil.frames().find(frame => frame !== evil.mainFrame());
      assert.equal(await framed.locator('.frame, .login').count().catch(() => 0), 0, 'the page is not shown in a frame');
      const after = await page.evaluate(async of => (await fetch(`/api/v1/sessions/${of}`)).json(), key);
      assert.equal(after.state, 'awake', 'nothing was changed');
    } finally {
      site.close();
    }
  });
  const { hostname, port } = new URL(origin);
  for (const path of ['/', '/api/v1/overview']) {
    const status = await new Promise((done, failed) => request({ hostname, port, path, headers: { Host: 'evil.example' } }, response => (response.resume(), done(response.statusCode))).on('error', failed).end());
    assert.ok(status >= 400 && status < 500, `${path} answers a foreign Host with ${status}`);
  }
});

test('AD5: a client whose name is markup stays text in every view, and the policy holds', async () => {
  const client = await new Client(node.mcp('notes')).open(HOSTILE_CLIENT);
  await client.call('public_echo', { text: HOSTILE_CLIENT });
  await client.call(HOSTILE_CLIENT, {});
  const name = await label(node, HOSTILE_CLIENT);
  await withPage(async ({ page }) => {
    const key = (await page.evaluate(async of => (await fetch(`/api/v1/sessions?prefix=${of}`)).json(), name)).rows[0].key;
    for (const [view, hash] of Object.entries(views(key, 'notes', 'long_task', HOSTILE_CLIENT))) {
      await visit(page, hash);
      assert.equal(await page.locator('main img').count(), 0, view);
      assert.ok((await overflow(page)) <= 0, `${view} can be scrolled sideways`);
    }
    await visit(page, `#/session/${key}`);
    assert.ok((await page.locator('main').innerText()).includes(HOSTILE_CLIENT));
  });
});

test('every view of a real node is drawn without an error', async () => {
  const client = await new Client(node.mcp('desk')).open('plain-agent');
  await client.call('public_echo', { text: 'x' });
  const name = await label(node, 'plain-agent');
  await withPage(async ({ page }) => {
    const key = (await page.evaluate(async of => (await fetch(`/api/v1/sessions?prefix=${of}`)).json(), name)).rows[0].key;
    const broken = [];
    for (const [view, hash] of Object.entries(views(key, 'notes', 'long_task', 'corp:none'))) {
      if (view === 'principal' || view === 'try') continue;
      await visit(page, hash);
      const trouble = await page.locator('main .trouble').allInnerTexts();
      if (trouble.length > 0) broken.push(`${view}: ${trouble.join(' ')}`);
    }
    assert.deepEqual(broken, []);
  });
});

test('a tool is tried with a form from its schema, and the audit log has it', async () => {
  await withPage(async ({ page }) => {
    await visit(page, '#/backends/notes');
    await page.getByText('long_task').click();
    await page.getByRole('link', { name: 'Try it' }).first().waitFor();
    await visit(page, '#/try?backend=notes&tool=long_task');
    await page.getByLabel('seconds (required)').fill('two');
    await page.getByLabel(/Why/).fill('does it answer?');
    await page.getByRole('button', { name: 'Call it' }).click();
    await page.getByText('seconds: it is a whole number').waitFor();
    await page.getByLabel('seconds (required)').fill('1');
    await page.getByLabel('interval_ms').fill('10');
    await page.getByRole('button', { name: 'Call it' }).click();
    await page.getByRole('heading', { name: 'Answer' }).waitFor();
    await page.getByText('ok', { exact: true }).first().waitFor();
  });
  assert.match(actions(node), /does it answer\?/);
});

test('the programs of a backend are restarted with a reason, and its sessions go on', async () => {
  const client = await new Client(node.mcp('desk')).open('steady-agent');
  await client.call('public_echo', { text: 'x' });
  await withPage(async ({ page }) => {
    await visit(page, '#/backends/desk');
    await page.getByRole('button', { name: 'Restart' }).click();
    await page.getByRole('dialog').getByLabel(/Why/).fill('it leaks memory');
    await page.getByRole('dialog').getByRole('button', { name: 'Restart it' }).click();
    await page.getByText('desk is restarted').waitFor();
  });
  const answer = await client.call('public_echo', { text: 'x' });
  assert.ok(answer.result, JSON.stringify(answer));
  assert.match(actions(node), /it leaks memory/);
});

test('the debug bundle is a file', async () => {
  await withPage(async ({ page }) => {
    await visit(page, '#/config');
    const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('link', { name: 'Debug bundle' }).click()]);
    const bundle = JSON.parse(readFileSync(await download.path(), 'utf8'));
    assert.ok(bundle.version && bundle.overview, Object.keys(bundle).join());
  });
});

test('commands that dialogs show exist, and so does the request to the control socket', async () => {
  const folder = join(here, '../../crates/tenure/src/page/views');
  const shown = readdirSync(folder).flatMap(file => [...readFileSync(join(folder, file), 'utf8').matchAll(/command\('tenure', ((?:'[a-z]+', )*'[a-z]+')/g)].map(([, words]) => words.replace(/[',]/g, '').split(' ')));
  assert.ok(shown.length > 5);
  for (const words of shown) await run(TENURE, [...words, '--help']);
  const client = await new Client(node.mcp('desk')).open('socket-agent');
  const answer = client.call('ask_name', {});
  await withPage(async ({ page }) => {
    await visit(page, `#/sessions?prefix=${await label(node, 'socket-agent')}`);
    await page.locator('td a.key').first().click();
    await page.getByRole('row', { name: /ask_name/ }).getByRole('button', { name: 'Cancel' }).click();
    await page.getByRole('dialog').getByLabel(/Why/).fill("it's a test");
    const line = await page.getByRole('dialog').locator('.copy code').innerText();
    const { stdout } = await run('/bin/sh', ['-c', line.replace('control.sock', `${node.folder}/store/control.sock`)]);
    assert.equal(stdout, '{"cancelled":true}');
  });
  assert.ok((await answer).error);
});

test('a viewer sees no action, and the node refuses one', async () => {
  await withPage(async ({ page }) => {
    await visit(page, '#/sessions');
    await page.locator('td a.key').first().click();
    await page.locator('.facts').first().waitFor();
    assert.equal(await page.getByRole('button', { name: /(Revoke|Cancel|Detach|sleep|Change|bodies)/ }).count(), 0);
    const status = await page.evaluate(async () => {
      const { rows } = await (await fetch('/api/v1/sessions')).json();
      return (await fetch(`/api/v1/sessions/${rows[0].key}/revoke`, { method: 'POST', headers: { 'Content-Type': 'application/json', 'X-Tenure': '1' }, body: '{"reason":"because"}' })).status;
    });
    assert.equal(status, 403);
  }, { role: 'viewer' });
});

test('AD7: the page says that the node was killed, and is there again after it was started', async () => {
  const first = await startReal();
  const admin = new URL(await first.open()).port;
  let second;
  try {
    await withPage(async ({ page }) => {
      await visit(page, '#/sessions');
      await first.kill();
      await page.getByText(/No connection to the node for/).waitFor();
      second = await startReal({ folder: first.folder, port: first.ports.port, admin });
      await page.getByText(/No connection to the node for/).waitFor({ state: 'detached', timeout: 30_000 });
      await page.getByText('live', { exact: true }).waitFor();
      assert.ok(page.url().endsWith('#/sessions'), 'it is where it was');
    }, { of: first });
  } finally {
    await second?.stop();
    await first.stop();
  }
});
