// @ts-check
// Where in the page one is: the part of the address after `#`, so that the node serves one document for all of it, and every view and
// filter can be sent to a colleague.

import { store, useStore } from './store.js';

/** @typedef {{ view: string, rest: string[], query: Record<string, string> }} Route */

/** @param {string} hash @returns {Route} */
export function parseRoute(hash) {
  const [path, query = ''] = hash.replace(/^#\/?/, '').split('?', 2);
  const [view = '', ...rest] = path.split('/').map(part => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { view: view || 'now', rest, query: Object.fromEntries(new URLSearchParams(query)) };
}

const route = store(parseRoute(location.hash));
addEventListener('hashchange', () => route.set(parseRoute(location.hash)));

export const useRoute = () => useStore(route);
export const currentRoute = () => route.get();

/** The address of a view. @param {string} view @param {string[]} [rest] @param {Record<string, any>} [query] */
export function to(view, rest = [], query = {}) {
  const path = [view, ...rest].map(encodeURIComponent).join('/');
  const kept = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== '');
  const text = new URLSearchParams(kept.map(([key, value]) => [key, String(value)])).toString();
  return `#/${path}${text ? `?${text}` : ''}`;
}

/** @param {string} address */
export function go(address) {
  location.hash = address;
}

/** Changes filters of this view without a step in the history for every letter. @param {Record<string, any>} changes */
export function filter(changes) {
  const { view, rest, query } = route.get();
  const address = to(view, rest, { ...query, ...changes });
  history.replaceState(null, '', address);
  route.set(parseRoute(address));
}
