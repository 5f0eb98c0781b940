// @ts-check
// A session's life as a picture: what stands where. Pure functions, which `tests/page` holds to examples.
//
// In: the entries of a timeline. Out: spans and marks on an axis from 0 to 1. The axis keeps the order but not the proportions: a life
// has busy seconds and quiet hours, and a picture in proportion would show the hours alone.

/**
 * @typedef {{ at: number, what: string, text?: string, ok?: boolean, times?: number, call?: any, tool?: string, method?: string, stream?: number, question?: boolean }} Entry
 * @typedef {{ from: number, to: number, kind: string, text: string, open?: boolean }} Span
 * @typedef {{ at: number, kind: '' | 'good' | 'bad' | 'warn', entry: number }} Mark
 */

/** What an entry is, by its word. @type {Record<string, { lane: 'life' | 'client' | 'calls', tone: '' | 'good' | 'bad' | 'warn', name: string }>} */
export const WORDS = {
  created: { lane: 'life', tone: 'good', name: 'created' },
  woken: { lane: 'life', tone: 'good', name: 'woken' },
  slept: { lane: 'life', tone: '', name: 'asleep' },
  taken_over: { lane: 'life', tone: 'warn', name: 'taken over' },
  ended: { lane: 'life', tone: '', name: 'ended' },
  deleted: { lane: 'life', tone: '', name: 'deleted' },
  expired: { lane: 'life', tone: '', name: 'expired' },
  revoked: { lane: 'life', tone: 'bad', name: 'revoked' },
  annotated: { lane: 'life', tone: '', name: 'annotated' },
  attached: { lane: 'client', tone: 'good', name: 'reads' },
  dropped: { lane: 'client', tone: 'warn', name: 'dropped' },
  resumed: { lane: 'client', tone: 'good', name: 'resumed' },
  replaced: { lane: 'client', tone: '', name: 'replaced' },
  detached: { lane: 'client', tone: 'warn', name: 'detached' },
  gap: { lane: 'client', tone: 'bad', name: 'gap' },
  resumed_with_gap: { lane: 'client', tone: 'bad', name: 'resumed, with a gap' },
  resumed_foreign: { lane: 'client', tone: 'warn', name: 'resumed elsewhere' },
  called: { lane: 'calls', tone: '', name: 'call' },
  answered: { lane: 'calls', tone: 'good', name: 'answered' },
  failed: { lane: 'calls', tone: 'bad', name: 'failed' },
  cancelled: { lane: 'calls', tone: 'warn', name: 'cancelled' },
  interrupted: { lane: 'calls', tone: 'bad', name: 'interrupted' },
  rerun: { lane: 'calls', tone: 'warn', name: 'run again' },
  asked: { lane: 'calls', tone: 'warn', name: 'asked' },
  not_answered: { lane: 'calls', tone: 'bad', name: 'not answered' },
  limited: { lane: 'calls', tone: 'warn', name: 'limited' },
};

/** @param {Entry} entry */
export function word(entry) {
  const known = WORDS[entry.what] ?? { lane: 'life', tone: '', name: entry.what.replaceAll('_', ' ') };
  // A lost connection is trouble, but clients come back: it stays amber.
  return entry.ok === false && known.tone !== 'warn' ? { ...known, tone: /** @type {'bad'} */ ('bad') } : known;
}

/**
 * The steps of a life with the calls that are known besides: those in flight, and those that ended lately.
 *
 * A timeline is kept for as long as the session and has no calls in it, because there would be too many. A question is put into the call
 * that waits for it.
 *
 * @param {Entry[]} timeline
 * @param {{ inFlight?: any[], recent?: any[], ended?: number, end?: string }} known
 * @returns {Entry[]}
 */
export function merge(timeline, { inFlight = [], recent = [], ended, end }) {
  if (timeline.some(entry => entry.what === 'called')) return timeline;
  const flying = inFlight.filter(call => call.started !== undefined);
  const name = (/** @type {any} */ call) => call.tool ?? call.method;
  /** @type {Entry[]} */
  const calls = flying.map(call => ({ at: call.started, what: 'called', call: `f${JSON.stringify(call.id)}`, tool: call.tool, method: call.method, text: `\`${name(call)}\` began, and is not answered` }));
  recent.forEach((row, index) => {
    const of = { call: `r${index}`, tool: row.tool, method: row.method };
    const isWell = row.outcome === 'result' || row.outcome === 'ok';
    calls.push({ ...of, at: row.at - row.ms, what: 'called', text: `\`${name(row)}\` began` });
    calls.push({ ...of, at: row.at, what: isWell ? 'answered' : 'failed', ok: isWell, text: `\`${name(row)}\` ${isWell ? 'was answered' : `ended: ${row.reason ?? String(row.outcome).replaceAll('_', ' ')}`}` });
  });
  /** @type {any} */
  let asking;
  const steps = timeline.map((entry, index) => {
    if (entry.call !== undefined || !['asked', 'answered', 'not_answered'].includes(entry.what)) return entry;
    if (entry.what === 'asked') {
      const waits = flying.filter(call => call.asking > 0 && call.started <= entry.at).at(-1);
      const within = recent.findIndex(row => row.at - row.ms <= entry.at && entry.at <= row.at);
      asking = waits ? `f${JSON.stringify(waits.id)}` : within >= 0 ? `r${within}` : `q${index}`;
    }
    return { ...entry, call: asking, question: true };
  });
  // A node without timelines tells only that a call waits, and not since when.
  for (const call of flying.filter(of => of.asking > 0)) {
    const id = `f${JSON.stringify(call.id)}`;
    if (!steps.some(entry => entry.what === 'asked' && entry.call === id)) calls.push({ at: call.progressed ?? call.started, what: 'asked', call: id, question: true, text: 'the server behind asks the client something' });
  }
  const all = [...steps, ...calls];
  if (ended !== undefined && !steps.some(entry => ENDS.includes(entry.what))) all.push({ at: ended, what: end ?? 'ended', text: end ? `the session is ${end}` : 'the session ended' });
  return all.sort((a, b) => a.at - b.at);
}

const ENDS = ['ended', 'deleted', 'expired', 'revoked'];
// A quiet time beyond this is drawn as a break with its length.
const QUIET_MS = 90_000;

/**
 * Where a time stands. Between two neighbours there is room by the root of their distance, so that seconds are seen beside hours.
 *
 * @param {number[]} times
 */
export function axis(times) {
  const all = [...new Set(times)].sort((a, b) => a - b);
  if (all.length < 2) return { place: () => 0, breaks: [], ticks: all.slice(0, 1) };
  const room = all.slice(1).map((time, index) => Math.max(0.35, Math.min(5, Math.sqrt((time - all[index]) / 4000))));
  const whole = room.reduce((sum, part) => sum + part, 0);
  const places = [0];
  for (const part of room) places.push(places[places.length - 1] + part / whole);
  const place = (/** @type {number} */ time) => {
    let next = all.findIndex(other => other >= time);
    if (next < 0) next = all.length - 1;
    if (next === 0) return 0;
    const part = (time - all[next - 1]) / (all[next] - all[next - 1]);
    return places[next - 1] + Math.min(1, part) * (places[next] - places[next - 1]);
  };
  const breaks = all.slice(1).flatMap((time, index) => (time - all[index] >= QUIET_MS ? [{ from: places[index], to: places[index + 1], ms: time - all[index] }] : []));
  return { place, breaks, ticks: all };
}

/** @param {Entry[]} entries in the order of time @param {{ now: number, state: string, readers?: number }} at */
export function life(entries, { now, state, readers: reading }) {
  const over = entries.find(entry => ENDS.includes(entry.what));
  const end = over ? over.at : now;
  const times = [...entries.map(entry => entry.at), end];
  const { place, breaks, ticks } = axis(times);
  const marks = entries.map((entry, index) => ({ at: place(entry.at), kind: word(entry).tone, lane: word(entry).lane === 'calls' && entry.call === undefined ? 'life' : word(entry).lane, entry: index }));
  return { place, breaks, ticks, marks, states: states(entries, end, state), readers: readers(entries, end, reading), calls: calls(entries, end), end, over: Boolean(over) };
}

/** @param {Entry[]} entries @param {number} end @param {string} state @returns {Span[]} */
function states(entries, end, state) {
  /** @type {Span[]} */
  const spans = [];
  let since = entries[0]?.at ?? end;
  let kind = entries[0]?.what === 'woken' ? 'dormant' : 'awake';
  const turn = (/** @type {number} */ at, /** @type {string} */ next) => {
    if (at > since) spans.push({ from: since, to: at, kind, text: kind });
    since = at;
    kind = next;
  };
  for (const { at, what } of entries) {
    if (what === 'created' || what === 'woken') turn(at, 'awake');
    else if (what === 'slept') turn(at, 'dormant');
    else if (what === 'interrupted' && kind === 'awake' && state === 'dormant') turn(at, 'dormant');
    else if (ENDS.includes(what)) turn(at, 'ended');
  }
  if (kind !== 'ended') turn(end, 'ended');
  return spans;
}

/** When the client read, and when it did not although it had. @param {Entry[]} entries @param {number} end @param {number} [reading] streams that are read now @returns {Span[]} */
function readers(entries, end, reading) {
  /** @type {Span[]} */
  const spans = [];
  /** @type {Map<number, { at: number, read: boolean }>} */
  const streams = new Map();
  let reads = 0;
  let since = entries[0]?.at ?? end;
  let seen = false;
  const turn = (/** @type {number} */ at, /** @type {number} */ step) => {
    const before = reads;
    reads = Math.max(0, reads + step);
    if ((before > 0) === (reads > 0)) return;
    if (at > since && (seen || before > 0)) spans.push({ from: since, to: at, kind: before > 0 ? 'read' : 'unread', text: before > 0 ? 'the client reads' : 'the client does not read' });
    since = at;
    seen = true;
  };
  for (const { at, what, stream = 0 } of entries) {
    const old = streams.get(stream)?.read ?? false;
    if (what === 'attached' || what === 'replaced' || what.startsWith('resumed')) {
      streams.set(stream, { at, read: true });
      if (!old) turn(at, 1);
    } else if (what === 'dropped' || what === 'detached') {
      streams.set(stream, { at, read: false });
      // The attachment may be older than the timeline.
      if (old || !seen) {
        if (!old) reads = 1;
        turn(at, -1);
      }
    } else if (what === 'slept' || ENDS.includes(what)) {
      if (reads > 0) turn(at, -reads);
      streams.clear();
      since = at;
      seen = false;
    }
  }
  // Not every reader that comes is noted, but how many there are now is known.
  if (reading !== undefined && (seen || reads > 0)) reads = reading;
  if (end > since && (seen || reads > 0)) spans.push({ from: since, to: end, kind: reads > 0 ? 'read' : 'unread', text: reads > 0 ? 'the client reads' : 'the client does not read' });
  return spans;
}

/** Calls with the questions in them, each on the first line that has room. @param {Entry[]} entries @param {number} end */
function calls(entries, end) {
  /** @type {Map<string, any>} */
  const open = new Map();
  /** @type {any[]} */
  const all = [];
  for (const entry of entries) {
    if (entry.call === undefined || entry.call === null) continue;
    const id = String(entry.call);
    const { at, what } = entry;
    if (what === 'called' || !open.has(id)) {
      const call = { id, from: at, to: end, open: true, bad: false, title: entry.tool ?? entry.method ?? (id.startsWith('q') ? 'a question' : `call ${id}`), isQuestion: id.startsWith('q'), asked: [], cuts: [] };
      open.set(id, call);
      all.push(call);
    }
    const call = open.get(id);
    if (what === 'asked') call.asked.push({ from: at, to: end });
    const question = call.asked.find((/** @type {any} */ part) => part.to === end && part.from < at);
    if (entry.question && what !== 'asked') {
      if (question) question.to = at;
      if (call.isQuestion) {
        Object.assign(call, { to: at, open: false, bad: what === 'not_answered' });
        open.delete(id);
      }
    } else if (['answered', 'failed', 'cancelled', 'interrupted'].includes(what)) {
      call.to = at;
      call.open = false;
      call.bad = what !== 'answered' || entry.ok === false;
      if (question) question.to = at;
      if (what !== 'interrupted') open.delete(id);
      else call.cuts.push(at);
    } else if (what === 'rerun') {
      call.to = end;
      call.open = true;
    }
  }
  /** @type {number[]} */
  const lines = [];
  for (const call of all) {
    let line = lines.findIndex(until => until <= call.from);
    if (line < 0) line = lines.length;
    lines[line] = call.to;
    call.line = Math.min(line, 5);
  }
  return all;
}

const TIMES = ['never', 'once', 'twice'];
const times = (/** @type {number} */ n) => TIMES[n] ?? `${n} times`;

/**
 * The trouble of a life in one or two sentences; empty if there was none.
 *
 * @param {Entry[]} entries
 * @param {(ms: number) => string} span
 * @param {number} now
 * @param {number} [reading] streams that are read now
 */
export function verdict(entries, span, now, reading) {
  const has = (/** @type {string[]} */ ...words) => entries.filter(entry => words.includes(entry.what)).flatMap(entry => Array(Math.min(99, entry.times ?? 1)).fill(entry));
  const sentences = [];
  const [drops, resumes, gaps] = [has('dropped'), has('resumed', 'resumed_with_gap', 'resumed_foreign'), has('gap', 'resumed_with_gap')];
  if (drops.length > 0) {
    const lastDrop = drops[drops.length - 1].at;
    const back = (reading ?? 0) > 0 || entries.some(entry => entry.at >= lastDrop && /^(resumed|attached|replaced)/.test(entry.what));
    const over = entries.some(entry => entry.at >= lastDrop && ENDS.includes(entry.what));
    sentences.push(
      `Its client lost the connection ${times(drops.length)}` +
        (resumes.length > 0 ? ` and resumed ${times(resumes.length)}` : '') +
        (back || over ? '' : `; it has been away for ${span(now - lastDrop)}`) +
        '.',
    );
  }
  if (gaps.length > 0) sentences.push(`Messages were missing ${gaps.length === 1 ? 'once' : `${gaps.length} times`} when it came back.`);
  const open = calls(entries, now).filter(call => call.open && !entries.some(entry => ENDS.includes(entry.what)));
  const waits = open.filter(call => call.asked.some((/** @type {any} */ part) => part.to === now));
  for (const call of waits.slice(0, 1)) {
    const asked = call.asked[call.asked.length - 1];
    sentences.push(`The server behind asked a question in \`${call.title}\` ${span(now - asked.from)} ago, and the client has not answered.`);
  }
  const restarts = [...has('interrupted'), ...has('taken_over')];
  if (restarts.length > 0) {
    sentences.push(has('taken_over').length > 0 ? `Another node took it over ${times(has('taken_over').length)}.` : `A stop of the process interrupted ${restarts.length === 1 ? 'a call' : `${restarts.length} calls`}.`);
  }
  const silent = has('not_answered');
  if (silent.length > 0) sentences.push(`A question of the server behind was not answered ${times(silent.length)}.`);
  if (has('limited').length > 0) sentences.push(`It was held back by a limit ${times(has('limited').length)}.`);
  return sentences.join(' ');
}
