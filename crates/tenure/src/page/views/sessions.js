// @ts-check
// The list of sessions: filters that stand in the address, pages of fifty, and those that ended lately.

import { html, useEffect, useRef, useState } from '../vendor/preact.js';
import { may, useGet, withQuery } from '../api.js';
import { count, plural, visible } from '../format.js';
import { listen } from '../live.js';
import { Ago, Badge, Empty, Head, Name, Segments, Sentence, Trouble } from '../parts/bits.js';
import { propose } from '../parts/dialog.js';
import { Table } from '../parts/table.js';
import { filter, go, to, useRoute } from '../route.js';

const PAGE = 50;
/** @type {[string, string][]} */
const STATES = [['', 'All'], ['awake', 'Awake'], ['dormant', 'Dormant'], ['ended', 'Ended'], ['lately', 'Ended lately']];
/** @type {[string, string, string][]} */
const TEXTS = [['principal', 'Principal', 'corp:ann'], ['client', 'Client', 'claude-code'], ['backend', 'Backend', 'files'], ['revision', 'Revision', '2025-11-25']];

/** @param {any} row */
export function StateBadge({ row }) {
  if (row.state === 'ended') return html`<${Badge}>ended${row.end ? ` (${row.end})` : ''}<//>`;
  if (row.state === 'awake') return html`<${Badge} kind="good">awake<//>${row.phase === 'initializing' ? html`<span class="under">initializing</span>` : ''}`;
  return html`<${Badge} kind=${row.state === 'unreadable' ? 'bad' : ''}>${row.state}<//>`;
}

/** @param {any} row */
const calls = row => {
  if (!row.calls) return html`<span class="dim">–</span>`;
  return html`${count(row.calls)}${row.oldest_call ? html`<span class="under">oldest <${Ago} at=${row.oldest_call} /></span>` : null}`;
};

/** @param {any} row */
const trouble = row => {
  const problems = row.problems ?? [];
  if (problems.length > 0) return html`<span class="warn" title=${visible(problems.join('\n'))}>! <${Sentence} text=${problems[0]} /></span>`;
  if (row.waiting_for_client > 0) return html`<span class="dim">waits for its client</span>`;
  return null;
};

export const sessionColumns = [
  { title: 'Session', kind: 'short', cell: (/** @type {any} */ row) => html`<a class="key" href=${to('session', [row.key])}>${row.label}</a>` },
  { title: 'State', kind: 'short', cell: (/** @type {any} */ row) => html`<${StateBadge} row=${row} />` },
  { title: 'Principal', cell: (/** @type {any} */ row) => (row.owner ? html`<${Name} text=${row.owner} />` : html`<span class="dim">anonymous</span>`) },
  { title: 'Client', less: 1, cell: (/** @type {any} */ row) => html`<${Name} text=${row.client_name} />` },
  { title: 'Backend', less: 1, cell: (/** @type {any} */ row) => html`<${Name} text=${row.backend} />` },
  { title: 'Calls', kind: 'num', less: 2, cell: calls },
  { title: 'Last used', kind: 'num', less: 2, cell: (/** @type {any} */ row) => html`<${Ago} at=${row.ended ?? row.last_used} />` },
  { title: 'Created', kind: 'num', less: 3, cell: (/** @type {any} */ row) => html`<${Ago} at=${row.created} />` },
  { title: 'What looks wrong', kind: /** @type {'wide'} */ ('wide'), cell: trouble },
];

const endedColumns = [
  sessionColumns[0],
  { title: 'How', kind: 'short', cell: (/** @type {any} */ row) => html`<${Badge}>${row.end ?? row.reason ?? 'ended'}<//>` },
  sessionColumns[2],
  sessionColumns[3],
  sessionColumns[4],
  { title: 'Ended', kind: 'num', cell: (/** @type {any} */ row) => html`<${Ago} at=${row.ended} />` },
  { title: 'Requests', kind: 'num', less: 2, cell: (/** @type {any} */ row) => count(row.requests) },
  { title: 'Errors', kind: 'num', less: 2, cell: (/** @type {any} */ row) => html`<span class=${row.errors * 20 > row.requests ? 'bad' : ''}>${count(row.errors)}</span>` },
  { title: 'Lived since', kind: 'num', less: 3, cell: (/** @type {any} */ row) => html`<${Ago} at=${row.created} />` },
];

/** The filter in the address, as the API wants it. @param {any} query */
function ofQuery(query) {
  const { state, principal, client, backend, revision, waiting, old, prefix } = query;
  return { state: state === 'lately' ? undefined : state, principal, client, backend, revision, waiting: waiting ? 'client' : undefined, older_than_s: old ? 60 : undefined, prefix };
}

/** Live changes of rows that are shown: the list is asked again, but not more than every few seconds. @param {any[]} rows @param {() => void} again */
function useLiveRows(rows, again) {
  const shown = useRef(new Set());
  shown.current = new Set(rows.map(row => row.key));
  useEffect(() => {
    /** @type {number | undefined} */
    let timer;
    const stop = listen('session', row => {
      if (!shown.current.has(row.key) || timer !== undefined) return;
      timer = setTimeout(() => {
        timer = undefined;
        again();
      }, 3000);
    });
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, [again]);
}

/** @param {{ query: any }} props */
function Filters({ query }) {
  const [prefix, setPrefix] = useState(query.prefix ?? '');
  const change = (/** @type {any} */ changes) => filter({ ...changes, after: undefined, back: undefined });
  const toggle = (/** @type {string} */ name) => change({ [name]: query[name] ? undefined : '1' });
  const open = (/** @type {any} */ event) => {
    event.preventDefault();
    const text = prefix.trim();
    if (/^[0-9a-f]{32,64}$/.test(text)) go(to('session', [text]));
    else change({ prefix: text });
  };
  const any = Object.keys(query).some(name => !['after', 'back', 'state'].includes(name));
  return html`<form class="filters" role="search" onSubmit=${open}>
    <label class="field"><span>Label or key</span><input type="search" placeholder="s-4f3a… (press /)" value=${prefix} onInput=${(/** @type {any} */ event) => setPrefix(event.target.value)} onChange=${open} /></label>
    ${TEXTS.map(([name, title, example]) => html`<label class="field"><span>${title}</span><input placeholder=${example} value=${query[name] ?? ''} onChange=${(/** @type {any} */ event) => change({ [name]: event.target.value.trim() })} /></label>`)}
    <button type="button" aria-pressed=${String(Boolean(query.waiting))} onClick=${() => toggle('waiting')}>Waits for its client</button>
    <button type="button" aria-pressed=${String(Boolean(query.old))} onClick=${() => toggle('old')}>A call longer than 1 min</button>
    ${any && html`<button type="button" class="plain" onClick=${() => { setPrefix(''); go(to('sessions', [], { state: query.state })); }}>Clear</button>`}
    <button class="hidden-text" tabindex="-1">Search</button>
  </form>`;
}

/** @param {any} query @param {any[]} rows @param {any} page */
function revokeAll(query, rows, page) {
  const wanted = Object.fromEntries(Object.entries(ofQuery(query)).filter(([, value]) => value !== undefined && value !== ''));
  const words = Object.entries(wanted).map(([name, value]) => `${name.replaceAll('_', ' ')} ${value}`).join(', ');
  propose({
    title: 'Revoke all sessions of this filter',
    what: html`<p>Ends every session that matches <b><${Name} text=${words} /></b>, also on pages that are not shown. Calls in flight are answered with an error, and clients get 404 <code>session_revoked</code>.</p>
      <p class="hint">If more match than you expect, the node refuses and ends none.</p>`,
    verb: 'Revoke them',
    danger: true,
    path: 'sessions/revoke',
    fields: [{ name: 'expect', label: 'How many do you expect at most?', kind: 'number', value: String(page.next ? '' : rows.length) }],
    body: values => {
      const expect = Number(values.expect);
      if (values.expect === '' || !Number.isInteger(expect) || expect < 0) throw new Error('say how many sessions you expect, as a whole number');
      return { filter: wanted, expect };
    },
    done: answer => `${plural(answer?.ended ?? rows.length, 'session')} revoked.`,
  });
}

export function Sessions() {
  const { query } = useRoute();
  const lately = query.state === 'lately';
  const path = lately ? withQuery('sessions/ended', { limit: 200 }) : withQuery('sessions', { ...ofQuery(query), limit: PAGE, after: query.after });
  const { data, error, stale, again } = useGet(path);
  const rows = data?.rows ?? [];
  useLiveRows(rows, again);
  const isFiltered = Object.keys(query).some(name => !['after', 'back', 'state'].includes(name));
  const looked = data?.looked_at !== undefined && data.of !== undefined && data.looked_at < data.of ? `The node looked at ${count(data.looked_at)} of ${count(data.of)} sessions: this filter has no index.` : '';
  const empty = lately
    ? html`<${Empty} title="No session has ended since the node started.">Sessions that end appear here with the reason, the newest first.<//>`
    : isFiltered ? html`<${Empty} title="No session matches these filters.">Take a filter away, or look among those that ended lately.<//>`
    : html`<${Empty} title="There are no sessions.">A client that connects to the node's <code>/mcp</code> begins one: <code>tenure connect</code> prints what it needs.<//>`;
  return html`<div class="view">
    <${Head} title="Sessions" text="What clients keep open at this node. Filters are part of the address, so the view can be sent to a colleague.">
      ${may('operator') && isFiltered && !lately && rows.length > 0 && html`<button class="danger" onClick=${() => revokeAll(query, rows, data)}>Revoke all of these …</button>`}
    <//>
    <div class="filters"><${Segments} label="State" of=${STATES} value=${query.state ?? ''} choose=${(/** @type {string} */ state) => filter({ state, after: undefined, back: undefined })} /></div>
    ${!lately && html`<${Filters} key=${JSON.stringify([query.principal, query.client, query.backend, query.revision])} query=${query} />`}
    <${Trouble} error=${error} again=${again} />
    ${data && html`<section class="panel">
      <${Table} label=${lately ? 'Sessions that ended lately' : 'Sessions'} columns=${lately ? endedColumns : sessionColumns} rows=${rows} id=${(/** @type {any} */ row) => row.key} href=${(/** @type {any} */ row) => to('session', [row.key])} stale=${stale} empty=${empty} />
      ${!lately && html`<footer><span>${rows.length > 0 ? `${plural(rows.length, 'session')} on this page. ` : ''}${looked}</span>
        <span class="actions">
          <button class="small" disabled=${!query.after} onClick=${() => history.back()}>Back</button>
          <button class="small" disabled=${!data.next} onClick=${() => go(to('sessions', [], { ...query, after: data.next }))}>Next ${PAGE}</button>
        </span></footer>`}
    </section>`}
  </div>`;
}
