// @ts-check
// What can be done to a session: what each action does is said in full before it is done.

import { html } from '../vendor/preact.js';
import { command, count, plural, pretty, span } from '../format.js';
import { now } from '../live.js';
import { Name } from '../parts/bits.js';
import { propose } from '../parts/dialog.js';

/** @param {any} session @param {string} what */
const path = (session, what) => `sessions/${encodeURIComponent(session.key)}/${what}`;

/** @param {any} session */
export function revoke(session) {
  const flying = session.in_flight?.length ?? 0;
  propose({
    title: `Revoke ${session.label}`,
    what: html`<p>Ends the session for good. ${flying > 0 ? html`The ${plural(flying, 'call')} in flight ${flying === 1 ? 'is' : 'are'} answered with an error, ` : 'Nothing is in flight; '}its streams are closed, and the ${plural(session.kept?.events ?? 0, 'event')} kept for resumption are forgotten.</p>
      <p>Its client gets 404 <code>session_revoked</code>. A good client begins a new session at once.</p>`,
    verb: 'Revoke it',
    danger: true,
    path: path(session, 'revoke'),
    command: command('tenure', 'sessions', 'revoke', session.label),
    done: () => `${session.label} is revoked.`,
  });
}

/** @param {any} session @param {any} call */
export function cancel(session, call) {
  const name = call.tool ?? call.method;
  propose({
    title: `Cancel ${name} in ${session.label}`,
    what: html`<p>Ends the call <b><${Name} text=${name} /></b> (id <code>${JSON.stringify(call.id)}</code>)${call.started ? `, which runs for ${span(now() - call.started)}` : ''}. Its client gets an error as the answer, and the server behind is told to stop.</p>
      <p>${call.asking > 0 ? `The ${call.asking === 1 ? 'question that waits for the client is' : `${call.asking} questions that wait for the client are`} withdrawn. ` : ''}The session and its other calls go on.</p>`,
    verb: 'Cancel the call',
    danger: true,
    path: path(session, 'cancel'),
    body: () => ({ call: call.id }),
    done: () => `The call is cancelled; ${session.label} goes on.`,
  });
}

/** @param {any} session @param {number} stream */
export function detach(session, stream) {
  propose({
    title: `Detach the reader of stream ${stream}`,
    what: html`<p>Closes the connection that reads stream ${stream} of <code>${session.label}</code>. Nothing is lost: events stay in the log, and a good client comes back and resumes after the last one it has seen.</p>
      <p class="hint">It helps when a proxy between holds a connection open whose other end is gone.</p>`,
    verb: 'Detach it',
    path: path(session, 'detach'),
    body: () => ({ stream }),
    done: () => `The reader of stream ${stream} is detached.`,
  });
}

/** @param {any} session */
export function sleep(session) {
  const flying = session.in_flight?.length ?? 0;
  propose({
    title: `Put ${session.label} to sleep`,
    what: html`<p>Takes the session out of memory and closes its link to the server behind. It stays in the store, and its next request wakes it.</p>
      ${flying > 0 && html`<p class="warn">${plural(flying, 'call')} ${flying === 1 ? 'is' : 'are'} in flight, so the node will refuse: cancel ${flying === 1 ? 'it' : 'them'} first, or wait.</p>`}`,
    verb: 'Put it to sleep',
    path: path(session, 'sleep'),
    done: () => `${session.label} sleeps.`,
  });
}

const TTLS = [['', 'as it is'], ['default', 'as the configuration says'], ['900000', '15 minutes'], ['7200000', '2 hours'], ['86400000', '1 day'], ['604800000', '7 days'], ['infinity', 'for ever']];

/** @param {any} session */
export function settings(session) {
  const old = session.metadata ?? {};
  const parse = (/** @type {string} */ text) => {
    let value;
    try {
      value = JSON.parse(text || '{}');
    } catch {
      throw new Error('notes are a JSON object, such as {"ticket": "4711"}');
    }
    if (value === null || typeof value !== 'object' || Array.isArray(value)) throw new Error('notes are a JSON object, such as {"ticket": "4711"}');
    return value;
  };
  const changes = (/** @type {any} */ next) => {
    const names = new Set([...Object.keys(old), ...Object.keys(next)]);
    return [...names].filter(name => JSON.stringify(old[name]) !== JSON.stringify(next[name]));
  };
  const line = (/** @type {any} */ values) => {
    let next;
    try {
      next = parse(values.metadata);
    } catch {
      return null;
    }
    const words = changes(next).map(name => (typeof next[name] === 'string' ? `${name}=${next[name]}` : `${name}:=${name in next ? JSON.stringify(next[name]) : 'null'}`));
    if (values.ttl) words.push('--ttl', Number(values.ttl) ? `${Number(values.ttl) / 1000}s` : values.ttl.replace('infinity', 'never'));
    return command('tenure', 'sessions', 'set', session.label, ...words);
  };
  propose({
    title: `Notes and lifetime of ${session.label}`,
    what: html`<p>Changes the notes as a whole, or not at all. Handlers of the server behind see them. A lifetime counts from now on and is put off by use.</p>`,
    verb: 'Save',
    method: 'PATCH',
    path: path(session, 'settings'),
    fields: [
      { name: 'metadata', label: 'Notes, a JSON object', kind: 'area', value: pretty(old) },
      { name: 'ttl', label: 'How long it lives unused', kind: 'select', options: /** @type {[string, string][]} */ (TTLS), value: '' },
    ],
    body: values => {
      const next = parse(values.metadata);
      // A member that is gone is taken away by null.
      const metadata = Object.fromEntries(changes(next).map(name => [name, next[name] ?? null]));
      const ttl = values.ttl === '' ? undefined : Number(values.ttl) || values.ttl;
      return { ...(Object.keys(metadata).length > 0 ? { metadata } : {}), ...(ttl === undefined ? {} : { ttl_ms: ttl }) };
    },
    command: line,
    done: () => `${session.label} is changed (${count(Object.keys(old).length)} notes before).`,
  });
}
