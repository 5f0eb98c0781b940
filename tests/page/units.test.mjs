// The pure parts of the page: texts, the picture of a session's life, forms from schemas, addresses of commands.

import assert from 'node:assert/strict';
import { test } from 'node:test';

const page = '../../crates/tenure/src/page';
const { ago, amount, bytes, command, curl, shellWord, span, took, visible } = await import(`${page}/format.js`);
const { axis, life, merge, verdict } = await import(`${page}/parts/life-model.js`);
const { begin, collect, kind } = await import(`${page}/parts/schema.js`);

test('numbers have as many digits as they deserve', () => {
  assert.deepEqual([0, 0.01, 0.5, 9.96, 12.34, 99.9, 1234.5, null].map(amount), ['0', '<0.1', '0.5', '10.0', '12.3', '99.9', '1,235', '–']);
  assert.deepEqual([0, 512, 1536, 200 * 1024 * 1024, undefined].map(bytes), ['0 B', '512 B', '1.5 KiB', '200 MiB', '–']);
  assert.deepEqual([0, 0.2, 3, 41.6, 1234, 75_000].map(took), ['0 ms', '<1 ms', '3 ms', '42 ms', '1.2 s', '1m 15s']);
});

test('times are told as the commands tell them', () => {
  assert.deepEqual([0, 59_000, 252_000, 3_600_000, 90_000_000].map(span), ['0s', '59s', '4m 12s', '1h', '1d 1h']);
  const now = 1_000_000_000;
  assert.deepEqual([0, 5000, 61_000, 3 * 3_600_000, 72 * 3_600_000, -90_000].map(ms => ago(now - ms, now)), ['now', '5 s ago', '1 min ago', '3 h ago', '3 days ago', 'in 1 min']);
});

test('characters that steer the display are spelled out', () => {
  assert.equal(visible('a\u202eb\u0007\nc'), 'a\\u202eb\\u0007\\u000ac');
  assert.equal(visible('größe 文字 <b>'), 'größe 文字 <b>');
});

test('a command can be pasted into a shell, whatever names are in it', () => {
  assert.equal(command('tenure', 'principals', 'revoke', "corp:o'hara; rm -rf /"), "tenure principals revoke 'corp:o'\\''hara; rm -rf /'");
  assert.equal(command('tenure', 'principals', 'revoke', '$(reboot)`x`'), "tenure principals revoke '$(reboot)`x`'");
  assert.equal(shellWord('s-4f3a9c01'), 's-4f3a9c01');
  assert.equal(shellWord(''), "''");
  assert.equal(command('tenure', 'x', 'a\nb'), null, 'a line feed would run what is before it');
  assert.equal(command('tenure', 'x', '\u202egnp'), null);
  assert.equal(command('tenure', 'sessions', 'set', 's-1', '--ttl=never'), null, 'a name of others is no option');
  assert.equal(command('tenure', 'calls', 'cancel', 's-1', '--id', '17'), 'tenure calls cancel s-1 --id 17');
});

test('a request to the control socket can be pasted too', () => {
  assert.equal(curl('PATCH', 'sessions/ab/settings', { reason: "it's late" }), `curl --unix-socket control.sock --request PATCH --header 'Content-Type: application/json' --data '{"reason":"it'\\''s late"}' http://control/api/v1/sessions/ab/settings`);
});

test('the axis keeps the order, gives room to seconds, and marks quiet times', () => {
  const hour = 3_600_000;
  const { place, breaks } = axis([0, 1000, 2000, 5 * hour, 5 * hour + 1000]);
  const places = [0, 1000, 2000, 5 * hour, 5 * hour + 1000].map(place);
  assert.deepEqual([...places].sort((a, b) => a - b), places);
  assert.equal(places[0], 0);
  assert.ok(Math.abs(places[4] - 1) < 1e-9);
  assert.ok(places[1] > 0.03, 'a second is seen beside hours');
  assert.equal(breaks.length, 1);
  assert.equal(breaks[0].ms, 5 * hour - 2000);
  assert.equal(axis([]).place(5), 0);
  assert.equal(axis([7]).place(7), 0);
});

const story = [
  { at: 0, what: 'created' },
  { at: 1000, what: 'attached', stream: 0 },
  { at: 5000, what: 'called', call: 7, tool: 'dig' },
  { at: 6000, what: 'asked', call: 7 },
  { at: 9000, what: 'dropped', stream: 0 },
];

test('a call that waits for its client is open, with its question, and the client is away', () => {
  const shown = life(story, { now: 60_000, state: 'awake' });
  assert.deepEqual(shown.states.map(({ kind: of, from, to }) => [of, from, to]), [['awake', 0, 60_000]]);
  assert.deepEqual(shown.readers.map(({ kind: of, from, to }) => [of, from, to]), [['read', 1000, 9000], ['unread', 9000, 60_000]]);
  assert.equal(shown.calls.length, 1);
  assert.deepEqual([shown.calls[0].open, shown.calls[0].to, shown.calls[0].asked], [true, 60_000, [{ from: 6000, to: 60_000 }]]);
  assert.equal(verdict(story, span, 60_000), 'Its client lost the connection once; it has been away for 51s. The server behind asked a question in `dig` 54s ago, and the client has not answered.');
});

test('an interrupted call that runs again is one call, and ends when it is answered', () => {
  const entries = [...story.slice(0, 3), { at: 8000, what: 'interrupted', call: 7 }, { at: 9000, what: 'rerun', call: 7 }, { at: 12_000, what: 'answered', call: 7, ok: true }, { at: 20_000, what: 'slept' }, { at: 30_000, what: 'woken' }, { at: 40_000, what: 'revoked' }];
  const shown = life(entries, { now: 60_000, state: 'ended' });
  assert.deepEqual(shown.calls.map(({ from, to, open, bad }) => [from, to, open, bad]), [[5000, 12_000, false, false]]);
  assert.deepEqual(shown.states.map(({ kind: of, to }) => [of, to]), [['awake', 20_000], ['dormant', 30_000], ['awake', 40_000]]);
  assert.ok(shown.over);
  assert.equal(verdict(entries, span, 60_000), 'A stop of the process interrupted a call.');
});

test('a life without trouble has no verdict, and words that are not known are drawn plainly', () => {
  const entries = [{ at: 0, what: 'created' }, { at: 10, what: 'gilded_by_moonlight', text: 'x' }];
  assert.equal(verdict(entries, span, 100), '');
  assert.equal(life(entries, { now: 100, state: 'awake' }).marks.length, 2);
  assert.doesNotThrow(() => life([], { now: 1, state: 'awake' }));
  assert.doesNotThrow(() => life([{ at: 5, what: 'answered', call: 'x' }, { at: 4, what: 'dropped' }], { now: 1, state: 'dormant' }));
});

test('a question is put into the call that waits for it, and calls that ended lately are drawn', () => {
  const timeline = [{ at: 0, what: 'created' }, { at: 50, what: 'asked' }, { at: 60, what: 'answered' }, { at: 900, what: 'asked' }, { at: 950, what: 'dropped', times: 3 }];
  const entries = merge(timeline, { inFlight: [{ id: 7, method: 'tools/call', tool: 'dig', started: 800, asking: 1 }], recent: [{ at: 100, ms: 60, tool: 'look', method: 'tools/call', outcome: 'tool_error' }] });
  const { calls, readers } = life(entries, { now: 60_000, state: 'awake', readers: 0 });
  assert.deepEqual(calls.map(({ title, from, to, open, bad, asked }) => [title, from, to, open, bad, asked]), [
    ['look', 40, 100, false, true, [{ from: 50, to: 60 }]],
    ['dig', 800, 60_000, true, false, [{ from: 900, to: 60_000 }]],
  ]);
  assert.deepEqual(readers.map(({ kind: of, from }) => [of, from]), [['read', 0], ['unread', 950]]);
  assert.match(verdict(entries, span, 60_000, 0), /lost the connection 3 times; it has been away for 59s.*asked a question in `dig`/);
  assert.doesNotMatch(verdict(entries, span, 60_000, 1), /away/);
});

test('a question without a call is drawn alone, and the end is told', () => {
  const entries = merge([{ at: 0, what: 'created' }, { at: 50, what: 'asked' }, { at: 90, what: 'not_answered' }], { ended: 200, end: 'expired' });
  const shown = life(entries, { now: 60_000, state: 'ended' });
  assert.deepEqual(shown.calls.map(({ title, to, open, bad }) => [title, to, open, bad]), [['a question', 90, false, true]]);
  assert.ok(shown.over);
  assert.equal(shown.end, 200);
  assert.equal(verdict(entries, span, 60_000), 'A question of the server behind was not answered once.');
});

test('a gap and limits are in the verdict', () => {
  const entries = [{ at: 0, what: 'created' }, { at: 1, what: 'dropped' }, { at: 2, what: 'gap' }, { at: 3, what: 'resumed' }, { at: 4, what: 'limited' }];
  assert.equal(verdict(entries, span, 10), 'Its client lost the connection once and resumed once. Messages were missing once when it came back. It was held back by a limit once.');
});

const schema = {
  required: ['title', 'size'],
  properties: { title: { type: 'string' }, size: { type: 'integer' }, tags: { type: 'array' }, loud: { type: 'boolean', default: true }, part: { type: ['number', 'null'] }, colour: { enum: ['red', 'green'] }, __proto__x: { type: 'string' } },
};

test('a schema becomes fields, and fields become arguments', () => {
  assert.deepEqual(Object.values(schema.properties).map(kind), ['text', 'whole', 'json', 'check', 'number', 'choice', 'text']);
  const fields = begin(schema);
  assert.equal(fields.loud, true);
  const filled = { ...fields, title: 'a', size: '3', tags: '["x"]', part: '1.5', colour: 'red' };
  assert.deepEqual(collect(schema, filled), { value: { title: 'a', size: 3, tags: ['x'], loud: true, part: 1.5, colour: 'red' }, wrong: Object.create(null) });
});

test('wrong and missing fields are named', () => {
  const { value, wrong } = collect(schema, { ...begin(schema), size: '1.5', tags: '[' });
  assert.deepEqual({ ...wrong }, { size: 'it is a whole number', tags: 'it is JSON, such as ["a", 1] or {"a": true}' });
  assert.deepEqual(value, { title: '', loud: true });
  assert.deepEqual({ ...collect({ required: ['n'], properties: { n: { type: 'number' } } }, { n: '' }).wrong }, { n: 'it is required' });
});

test('a property with a hostile name is a property', () => {
  const hostile = { properties: JSON.parse('{"__proto__": {"type": "string"}, "constructor": {"type": "string"}}') };
  const { value } = collect(hostile, Object.assign(begin(hostile), JSON.parse('{"constructor": "x"}')));
  assert.equal(Object.getPrototypeOf(value), Object.prototype);
  assert.equal(value.constructor, 'x');
  assert.deepEqual(collect({}, {}).value, {});
});
