// @ts-check
// Values that several parts of the page look at: who has one is drawn again when it changes.

import { useLayoutEffect, useReducer } from './vendor/preact.js';

/**
 * @template T
 * @typedef {{ get: () => T, set: (value: T) => void, subscribe: (listener: () => void) => () => void }} Store
 */

/**
 * @template T
 * @param {T} value
 * @returns {Store<T>}
 */
export function store(value) {
  /** @type {Set<() => void>} */
  const listeners = new Set();
  return {
    get: () => value,
    set(next) {
      if (Object.is(next, value)) return;
      value = next;
      for (const listener of [...listeners]) listener();
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

/**
 * @template T
 * @param {Store<T>} of
 * @returns {T}
 */
export function useStore(of) {
  const [, draw] = useReducer(/** @param {number} n */ n => n + 1, 0);
  useLayoutEffect(() => of.subscribe(() => draw(0)), [of]);
  return of.get();
}
