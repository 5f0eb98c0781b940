// @ts-check
// Every change goes through this dialog: it says what will happen, asks for the reason that the audit log keeps, and shows the command
// that does the same. Also the short notices that say what was done.

import { html, useEffect, useRef, useState } from '../vendor/preact.js';
import { change, round } from '../api.js';
import { curl } from '../format.js';
import { store, useStore } from '../store.js';
import { Copy, Sentence } from './bits.js';

/**
 * @typedef {object} Field
 * @property {string} name
 * @property {string} label
 * @property {'text' | 'area' | 'select' | 'check' | 'number'} [kind]
 * @property {any} [value]
 * @property {[string, string][]} [options]
 * @property {string} [help]
 *
 * @typedef {object} Action
 * @property {string} title
 * @property {any | ((values: any) => any)} what what will happen, in sentences
 * @property {string} verb on the button
 * @property {boolean} [danger]
 * @property {string} [method]
 * @property {string} path
 * @property {(values: any) => object} [body] throws an Error whose message is shown
 * @property {Field[]} [fields]
 * @property {string | null | undefined | ((values: any) => string | null | undefined)} [command] a request to the control socket, if there is none
 * @property {(answer: any) => string} done
 * @property {(answer: any) => void} [then]
 */

/** @type {import('../store.js').Store<Action | null>} */
const asked = store(/** @type {Action | null} */ (null));
/** @type {import('../store.js').Store<{ id: number, text: string }[]>} */
const notices = store(/** @type {{ id: number, text: string }[]} */ ([]));
let lastNotice = 0;

/** @param {Action} action */
export const propose = action => asked.set(action);

/** @param {string} text */
export function say(text) {
  lastNotice += 1;
  const notice = { id: lastNotice, text };
  notices.set([...notices.get().slice(-2), notice]);
  setTimeout(() => notices.set(notices.get().filter(({ id }) => id !== notice.id)), 7000);
}

export function Notices() {
  const all = useStore(notices);
  return html`<div class="toasts" role="status" aria-live="polite">${all.map(({ id, text }) => html`<div class="toast" key=${id}><${Sentence} text=${text} /></div>`)}</div>`;
}

/** A dialog that takes the focus and gives it back. @param {{ close: () => void, label: string, children?: any }} props */
export function Modal({ close, label, children }) {
  const place = useRef(/** @type {any} */ (null));
  useEffect(() => {
    const before = /** @type {HTMLElement | null} */ (document.activeElement);
    const dialog = place.current;
    dialog.showModal();
    return () => {
      dialog.close();
      if (before?.isConnected) before.focus();
    };
  }, []);
  const outside = (/** @type {any} */ event) => event.target === place.current && close();
  return html`<dialog ref=${place} aria-label=${label} onCancel=${(/** @type {any} */ event) => { event.preventDefault(); close(); }} onClick=${outside}>${children}</dialog>`;
}

export function Dialog() {
  const action = useStore(asked);
  return action && html`<${Asking} key=${action.title} action=${action} />`;
}

const LEAST = 3;
const MOST = 500;

/** @param {{ action: Action }} props */
function Asking({ action }) {
  const [values, setValues] = useState(() => Object.fromEntries((action.fields ?? []).map(field => [field.name, field.value ?? (field.kind === 'check' ? false : '')])));
  const [reason, setReason] = useState('');
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(/** @type {any} */ (null));
  const close = () => !busy && asked.set(null);
  const of = (/** @type {any} */ part) => (typeof part === 'function' ? part(values) : part);
  const short = reason.trim().length < LEAST;
  const submit = async (/** @type {any} */ event) => {
    event.preventDefault();
    if (short || busy) return;
    setBusy(true);
    setError(null);
    try {
      const answer = await change(action.method ?? 'POST', action.path, { ...action.body?.(values), reason: reason.trim() });
      asked.set(null);
      say(action.done(answer));
      round.set(round.get() + 1);
      action.then?.(answer);
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  // What has no command of its own can be asked on the control socket.
  const socket = () => {
    try {
      return curl(action.method ?? 'POST', action.path, { ...action.body?.(values), reason: reason.trim() || '…' });
    } catch {
      return undefined;
    }
  };
  const line = action.command === undefined ? socket() : of(action.command);
  return html`<${Modal} close=${close} label=${action.title}>
    <form onSubmit=${submit}>
      <h2>${action.title}</h2>
      <div class="what">${of(action.what)}</div>
      ${(action.fields ?? []).map(field => html`<${Input} field=${field} value=${values[field.name]} set=${(/** @type {any} */ value) => setValues({ ...values, [field.name]: value })} />`)}
      <label class="field"><span>Why? The audit log keeps it, with your name.</span>
        <textarea name="reason" autofocus maxlength=${MOST} value=${reason} onInput=${(/** @type {any} */ event) => setReason(event.target.value)}
          onKeyDown=${(/** @type {any} */ event) => event.key === 'Enter' && (event.ctrlKey || event.metaKey) && submit(event)} placeholder="for example: ticket 4711, the client is gone"></textarea>
      </label>
      ${line !== undefined && html`<div><p class="hint">${action.command === undefined ? 'In the folder of the store it is' : 'On the command line it is'}</p><${Copy} text=${line} /></div>`}
      ${error && html`<div class="trouble" role="alert"><div><strong><${Sentence} text=${error.message} /></strong>${error.hint && html`<div class="hint">Hint: <${Sentence} text=${error.hint} plain /></div>`}</div></div>`}
      <div class="actions"><button type="button" onClick=${close}>Leave it</button><button type="submit" class=${`main ${action.danger ? 'danger' : ''}`} disabled=${short || busy}>${busy ? 'At work …' : action.verb}</button></div>
    </form>
  <//>`;
}

/** @param {{ field: Field, value: any, set: (value: any) => void }} props */
export function Input({ field, value, set }) {
  const onInput = (/** @type {any} */ event) => set(event.target.value);
  if (field.kind === 'check') {
    return html`<label class="check"><input type="checkbox" name=${field.name} checked=${value} onChange=${(/** @type {any} */ event) => set(event.target.checked)} />${field.label}</label>`;
  }
  const control =
    field.kind === 'select' ? html`<select name=${field.name} value=${value} onChange=${onInput}>${field.options?.map(([key, text]) => html`<option value=${key} selected=${key === value}>${text}</option>`)}</select>`
    : field.kind === 'area' ? html`<textarea class="mono" rows="5" name=${field.name} value=${value} onInput=${onInput} spellcheck="false"></textarea>`
    : html`<input type=${field.kind === 'number' ? 'number' : 'text'} name=${field.name} value=${value} onInput=${onInput} />`;
  return html`<label class="field"><span>${field.label}</span>${control}${field.help && html`<small>${field.help}</small>`}</label>`;
}
