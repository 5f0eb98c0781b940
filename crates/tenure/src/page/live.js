// @ts-check
// The one stream of news that a page has. It reconnects by itself, says so, and rests while the tab is hidden.
//
// In: `GET /api/v1/live`. Out: stores that the views look at, and listeners for calls, sessions and backends.

import { get, loggedOut, me, round } from './api.js';
import { store } from './store.js';

/** @typedef {{ state: 'connecting' | 'live' | 'lost' | 'resting', since: number, retryAt?: number }} Standing */

/** @type {import('./store.js').Store<Standing>} */
export const standing = store(/** @type {Standing} */ ({ state: 'connecting', since: Date.now() }));
/** The newest overview. @type {import('./store.js').Store<any>} */
export const overview = store(null);
/** Rows that the node left out because this page was slow. */
export const dropped = store(0);
/** Whether the node has another version than the one that this page came from. */
export const outdated = store(false);
/** The difference between the node's clock and ours, so that ages are right. */
export const clockOffset = store(0);

/** @type {Record<string, Set<(row: any) => void>>} */
const listeners = { call: new Set(), session: new Set(), backend: new Set() };

/** @param {'call' | 'session' | 'backend'} kind @param {(row: any) => void} listener */
export function listen(kind, listener) {
  listeners[kind].add(listener);
  if (kind === 'call') setTimeout(followCalls, 0);
  return () => {
    listeners[kind].delete(listener);
    // A person who only goes from one view of calls to another needs no other stream.
    if (kind === 'call') setTimeout(followCalls, 1000);
  };
}

/** Hundreds of calls a second are not worth sending to a page that shows none, so they are asked for. */
function followCalls() {
  if (source && hasCalls !== listeners.call.size > 0) open();
}

/** Why the node gives no news although it answers; empty if that is not known. */
export const refusal = store('');

/** A stream of events does not tell its reader why it was refused. */
async function askWhy() {
  try {
    const controller = new AbortController();
    const response = await fetch(LIVE, { signal: controller.signal });
    const { message, hint } = response.ok ? { message: '', hint: '' } : await response.json();
    controller.abort();
    refusal.set([message, hint].filter(Boolean).join('; '));
  } catch {
    refusal.set('');
  }
}

/** The time at the node. */
export const now = () => Date.now() + clockOffset.get();

const LIVE = '/api/v1/live';
// The overview comes each second. A proxy may hold a connection open whose other end is gone.
const SILENCE_MS = 8000;
const LONGEST_PAUSE_MS = 10_000;
const HIDDEN_MS = 5000;

/** @type {EventSource | null} */
let source = null;
let hasCalls = false;
let failures = 0;
/** @type {number | undefined} */
let silence;
/** @type {number | undefined} */
let retry;
/** @type {number | undefined} */
let rest;
let started = false;

/** @param {Standing['state']} state @param {number} [retryAt] */
function stand(state, retryAt) {
  const old = standing.get();
  standing.set({ state, since: old.state === state ? old.since : Date.now(), retryAt });
}

function heard() {
  clearTimeout(silence);
  silence = setTimeout(() => lost(), SILENCE_MS);
}

/** @param {MessageEvent} event */
function onOverview(event) {
  heard();
  const news = JSON.parse(event.data);
  clockOffset.set(news.time - Date.now());
  const old = overview.get();
  // Backends that did not change are left out.
  const backends = new Map((old?.backends ?? []).map((/** @type {any} */ row) => [row.name, row]));
  for (const row of news.backends ?? []) backends.set(row.name, row);
  const standingNow = standing.get();
  if (standingNow.state !== 'live') {
    const wasLost = standingNow.state === 'lost' || failures > 0;
    failures = 0;
    refusal.set('');
    stand('live');
    if (wasLost) round.set(round.get() + 1);
  }
  overview.set({ ...news, backends: [...backends.values()] });
}

function close() {
  clearTimeout(silence);
  clearTimeout(retry);
  source?.close();
  source = null;
}

function lost() {
  close();
  if (document.hidden || loggedOut.get()) return;
  failures += 1;
  const pause = Math.min(LONGEST_PAUSE_MS, 500 * 2 ** Math.min(failures, 5)) * (0.75 + Math.random() / 2);
  stand('lost', Date.now() + pause);
  retry = setTimeout(connect, pause);
}

export async function connect() {
  close();
  try {
    // It tells a node that is away from one that wants a login, which a stream of events does not.
    const who = await get('me');
    outdated.set(outdated.get() || Boolean(me.get() && me.get().version !== who.version));
    me.set(who);
    loggedOut.set(false);
    if (!overview.get()) {
      const first = await get('overview');
      clockOffset.set(first.time - Date.now());
      overview.set(first);
    }
  } catch {
    lost();
    return;
  }
  if (!document.hidden) open();
}

/** Opens the stream anew. */
function open() {
  close();
  hasCalls = listeners.call.size > 0;
  source = new EventSource(LIVE + (hasCalls ? '?calls=true' : ''));
  source.onerror = () => {
    if (source?.readyState === EventSource.CLOSED) askWhy();
    lost();
  };
  source.addEventListener('overview', onOverview);
  source.addEventListener('dropped', event => dropped.set(dropped.get() + (JSON.parse(event.data).rows ?? 0)));
  for (const [kind, those] of Object.entries(listeners)) {
    source.addEventListener(kind, event => {
      if (those.size === 0) return;
      const row = JSON.parse(event.data);
      for (const listener of those) listener(row);
    });
  }
  heard();
}

/** Begins to listen, or asks again at once. */
export function start() {
  connect();
  if (started) return;
  started = true;
  addEventListener('online', () => standing.get().state === 'lost' && connect());
  // Somebody may have opened a new link in another tab.
  addEventListener('focus', () => loggedOut.get() && me.get() && connect());
  document.addEventListener('visibilitychange', () => {
    clearTimeout(rest);
    if (document.hidden) {
      rest = setTimeout(() => {
        close();
        stand('resting');
      }, HIDDEN_MS);
    } else if (source === null && !loggedOut.get()) {
      const rested = standing.get().state === 'resting';
      connect();
      if (rested) round.set(round.get() + 1);
    }
  });
}
