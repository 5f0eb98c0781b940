// @ts-check
// The only place that talks to the API, but for the stream of `live.js`.
//
// In: paths below `/api/v1`. Out: JSON, or an `ApiError` with the words and the hint of the API.

import { useCallback, useEffect, useReducer, useState } from './vendor/preact.js';
import { store, useStore } from './store.js';

const BASE = '/api/v1/';
const PATIENCE_MS = 20_000;

/** Who looks at the page; `null` before that is known. @type {import('./store.js').Store<any>} */
export const me = store(null);
/** Whether the node wants a login. */
export const loggedOut = store(false);
/** Rises when everything that is shown may be out of date: after an action, and after a lost connection. */
export const round = store(0);

export class ApiError extends Error {
  /** @param {number} status @param {{reason?: string, message?: string, hint?: string}} told */
  constructor(status, told) {
    super(told.message ?? `the node answered ${status}`);
    this.status = status;
    this.reason = told.reason ?? 'unknown';
    this.hint = told.hint;
  }
}

/** @param {string} path @param {RequestInit} [options] */
async function ask(path, options = {}) {
  const limit = AbortSignal.timeout(PATIENCE_MS);
  const signal = options.signal ? AbortSignal.any([options.signal, limit]) : limit;
  let response;
  try {
    response = await fetch(path, { ...options, signal, credentials: 'same-origin', redirect: 'error' });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    const late = limit.aborted;
    const message = late ? 'the node did not answer within 20 seconds' : 'the node cannot be reached';
    const hint = 'see whether the process runs and listens: `tenure sessions list` asks it through its control socket';
    throw new ApiError(0, { reason: 'unreachable', message, hint });
  }
  const text = await response.text();
  if (response.ok) return text === '' ? null : parse(text);
  // 429: its login is over, and its address has shown too many that are.
  if (response.status === 401 || response.status === 429) loggedOut.set(true);
  throw new ApiError(response.status, parse(text) ?? {});
}

/** @param {string} text */
function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** @param {string} path @param {AbortSignal} [signal] */
export const get = (path, signal) => ask(BASE + path, { signal });

/** A change. @param {string} method @param {string} path @param {object} body */
export const change = (method, path, body) =>
  ask(path.startsWith('/') ? path : BASE + path, {
    method,
    headers: { 'Content-Type': 'application/json', 'X-Tenure': '1' },
    body: JSON.stringify(body),
  });

/** A path with a query; what is empty is left out. @param {string} path @param {Record<string, any>} query */
export function withQuery(path, query) {
  const parts = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== '' && value !== false);
  if (parts.length === 0) return path;
  return `${path}?${new URLSearchParams(parts.map(([key, value]) => [key, String(value)]))}`;
}

/**
 * What a path answers. It is asked again when everything may be out of date, and `every` so many ms, but never by a tab that
 * is hidden. What was there before stays until the new answer is there.
 *
 * @param {string | null} path
 * @param {number} [every]
 */
export function useGet(path, every = 0) {
  const [answer, setAnswer] = useState(/** @type {any} */ ({ path: null, data: null, error: null }));
  const [turn, next] = useReducer(/** @param {number} n */ n => n + 1, 0);
  const now = useStore(round);
  useEffect(() => {
    if (path === null) return undefined;
    const controller = new AbortController();
    const { signal } = controller;
    /** @type {number | undefined} */
    let timer;
    const load = async () => {
      if (document.hidden) {
        document.addEventListener('visibilitychange', load, { once: true, signal });
        return;
      }
      try {
        const data = await get(path, signal);
        if (!signal.aborted) setAnswer({ path, data, error: null });
      } catch (error) {
        if (signal.aborted) return;
        setAnswer((/** @type {any} */ old) => ({ path, data: old.path === path ? old.data : null, error }));
      }
      if (every > 0 && !signal.aborted) timer = setTimeout(load, every);
    };
    load();
    return () => {
      controller.abort();
      clearTimeout(timer);
    };
  }, [path, turn, now, every]);
  const again = useCallback(() => next(0), []);
  return { data: answer.data, error: answer.path === path ? answer.error : null, stale: answer.path !== path, again };
}

/** @param {string} role */
export const may = role => Boolean(me.get()?.roles?.includes(role));
