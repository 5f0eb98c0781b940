// @ts-check
// The keyboard: letters that go to views, walk over rows and open the overview of keys. They rest while one writes.

import { html, useEffect, useState } from './vendor/preact.js';
import { round } from './api.js';
import { go, to } from './route.js';
import { Modal } from './parts/dialog.js';

/** @type {[string, string][]} */
const VIEWS = [['n', 'now'], ['s', 'sessions'], ['c', 'calls'], ['d', 'data'], ['b', 'backends'], ['o', 'nodes'], ['l', 'limits'], ['a', 'audit'], ['f', 'config'], ['y', 'try']];
/** @type {Record<string, string>} */
const TITLES = { now: 'Now', sessions: 'Sessions', calls: 'Calls', data: 'Data and tasks', backends: 'Backends', nodes: 'Nodes', limits: 'Limits and principals', audit: 'Audit', config: 'Config', try: 'Try' };

/** Keys of the view that is shown. @type {Map<string, () => void>} */
const ofView = new Map();

/** @param {string} key @param {() => void} act */
export function useKey(key, act) {
  useEffect(() => {
    ofView.set(key, act);
    return () => {
      if (ofView.get(key) === act) ofView.delete(key);
    };
  });
}

/** @param {number} step */
function walk(step) {
  const links = /** @type {HTMLElement[]} */ ([...document.querySelectorAll('main td a.key, main a.problem')].filter(link => link.getClientRects().length > 0));
  if (links.length === 0) return;
  const at = links.indexOf(/** @type {HTMLElement} */ (document.activeElement));
  const next = at < 0 ? (step > 0 ? 0 : links.length - 1) : Math.min(links.length - 1, Math.max(0, at + step));
  links[next].focus();
  links[next].scrollIntoView({ block: 'nearest' });
}

function search() {
  const field = /** @type {HTMLElement | null} */ (document.querySelector('main input[type=search]'));
  if (field) field.focus();
  else go(to('sessions'));
}

/** @param {{ features: any }} props */
export function Keys({ features }) {
  const [help, setHelp] = useState(false);
  useEffect(() => {
    let prefix = 0;
    const onKey = (/** @type {KeyboardEvent} */ event) => {
      const target = /** @type {HTMLElement} */ (event.target);
      if (event.ctrlKey || event.metaKey || event.altKey || target.closest('input, textarea, select, dialog')) {
        if (event.key === 'Escape' && target.matches('main input')) target.blur();
        return;
      }
      const { key } = event;
      if (event.timeStamp - prefix < 1500 && prefix > 0) {
        prefix = 0;
        const view = VIEWS.find(([letter]) => letter === key);
        if (view) go(to(view[1]));
        return;
      }
      /** @type {Record<string, () => void>} */
      const keys = {
        g: () => (prefix = event.timeStamp),
        j: () => walk(1),
        k: () => walk(-1),
        r: () => round.set(round.get() + 1),
        t: () => dispatchEvent(new Event('toggle-theme')),
        '/': search,
        '?': () => setHelp(true),
      };
      const act = ofView.get(key) ?? keys[key];
      if (!act) return;
      event.preventDefault();
      act();
    };
    const open = () => setHelp(true);
    addEventListener('keydown', onKey);
    addEventListener('show-keys', open);
    return () => {
      removeEventListener('keydown', onKey);
      removeEventListener('show-keys', open);
    };
  }, []);
  if (!help) return null;
  const views = VIEWS.filter(([, view]) => (view !== 'try' || features?.try) && (view !== 'nodes' || features?.cluster));
  return html`<${Modal} close=${() => setHelp(false)} label="Keys">
    <div class="inside">
      <h2>Keys</h2>
      <div class="columns">
        <dl class="keys">${views.map(([letter, view]) => html`<dt><kbd>g</kbd> <kbd>${letter}</kbd></dt><dd>${TITLES[view]}</dd>`)}</dl>
        <dl class="keys">
          <dt><kbd>j</kbd> <kbd>k</kbd></dt><dd>next and previous row</dd>
          <dt><kbd>Enter</kbd></dt><dd>open the row</dd>
          <dt><kbd>/</kbd></dt><dd>search</dd>
          <dt><kbd>r</kbd></dt><dd>ask again for all that is shown</dd>
          <dt><kbd>p</kbd></dt><dd>pause the calls</dd>
          <dt><kbd>t</kbd></dt><dd>light or dark</dd>
          <dt><kbd>Ctrl</kbd> <kbd>Enter</kbd></dt><dd>do what a dialog asks</dd>
          <dt><kbd>Esc</kbd></dt><dd>close a dialog, leave a field</dd>
        </dl>
      </div>
      <div class="actions"><button autofocus onClick=${() => setHelp(false)}>Close</button></div>
    </div>
  <//>`;
}
