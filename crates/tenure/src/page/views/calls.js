// @ts-check
// Calls: as they end (live), those in flight, and the slowest and most failing tools of the last hour.

import { html, useEffect, useMemo, useRef, useState } from '../vendor/preact.js';
import { may, useGet, withQuery } from '../api.js';
import { amount, bytes, clock, command, count, exact, took } from '../format.js';
import { dropped, listen } from '../live.js';
import { useKey } from '../keys.js';
import { Ago, Badge, Copy, Empty, Facts, Head, Name, Panel, Segments, Trouble } from '../parts/bits.js';
import { Modal, propose } from '../parts/dialog.js';
import { Table } from '../parts/table.js';
import { filter, go, to, useRoute } from '../route.js';
import { useStore } from '../store.js';
import { Progress } from './session.js';

/** @type {[string, string][]} */
const TABS = [['live', 'As they end'], ['running', 'In flight'], ['slowest', 'Slow and failing']];
// What is kept to look at, what is drawn, and how often: a page has to keep up with hundreds a second.
const KEPT = 2000;
const DRAWN = 60;
const DRAW_MS = 250;
// The node counts tools by name only if a server has listed them.
const OTHER = '_other';
// If most rows are new each time, those that are there get other texts: that costs less than new ones.

/** @param {{ outcome: string, code?: number, reason?: string }} props */
export function Outcome({ outcome, code, reason }) {
  const kind = outcome === 'result' || outcome === 'ok' ? 'good' : outcome === 'limited' || outcome === 'gone' ? 'warn' : 'bad';
  /** @type {Record<string, string>} */
  const words = { result: 'ok', tool_error: 'tool error', error: 'error', limited: 'limited', gone: 'client gone' };
  return html`<${Badge} kind=${kind}>${words[outcome] ?? outcome}${code === undefined ? '' : ` ${code}`}${reason ? html` <${Name} text=${reason} />` : ''}<//>`;
}

/** @param {any} row @param {string} find @param {string} outcome */
function fits(row, find, outcome) {
  if (outcome === 'bad' && (row.outcome === 'result' || row.outcome === 'ok')) return false;
  if (outcome === 'slow' && !(row.ms >= 1000)) return false;
  if (find === '') return true;
  return [row.tool, row.method, row.owner, row.backend, row.label, row.reason].some(value => value !== undefined && String(value).toLowerCase().includes(find));
}

/** The newest calls: those that the node remembers, and then each as it ends. @param {boolean} paused */
function useTail(paused) {
  const kept = useRef(/** @type {any[]} */ ([]));
  const [rows, setRows] = useState(/** @type {any[]} */ ([]));
  const [seen, setSeen] = useState(0);
  const [isBusy, setBusy] = useState(false);
  const number = useRef(0);
  const { data, error, again } = useGet('calls/recent?limit=200');
  useEffect(() => {
    if (!data) return;
    const old = data.rows.map((/** @type {any} */ row) => ({ ...row, number: (number.current += 1) }));
    kept.current = [...old.reverse(), ...kept.current].sort((a, b) => a.at - b.at).slice(-KEPT);
    if (!paused) setRows(kept.current);
  }, [data]);
  useEffect(() => {
    let count = 0;
    let drawn = 0;
    const stop = listen('call', row => {
      kept.current.push({ ...row, number: (number.current += 1) });
      if (kept.current.length > KEPT * 1.25) kept.current = kept.current.slice(-KEPT);
      count += 1;
    });
    const timer = setInterval(() => {
      if (count === drawn || document.hidden) return;
      setBusy(count - drawn > DRAWN / 2);
      drawn = count;
      setSeen(count);
      if (!paused) setRows(kept.current.slice(-KEPT));
    }, DRAW_MS);
    return () => {
      stop();
      clearInterval(timer);
    };
  }, [paused]);
  return { rows, seen, isBusy, error, again };
}

function Tail() {
  const { query } = useRoute();
  const [paused, setPaused] = useState(false);
  const [chosen, setChosen] = useState(/** @type {any} */ (null));
  const { rows, seen, isBusy, error, again } = useTail(paused);
  const lost = useStore(dropped);
  const find = (query.find ?? '').toLowerCase();
  useKey('p', () => setPaused(!paused));
  const shown = useMemo(() => {
    const found = [];
    for (let index = rows.length - 1; index >= 0 && found.length < DRAWN; index -= 1) {
      if (fits(rows[index], find, query.outcome ?? '')) found.push(rows[index]);
    }
    return found;
  }, [rows, find, query.outcome]);
  const columns = [
    { title: 'Ended', kind: 'short', cell: (/** @type {any} */ row) => html`<time title=${exact(row.at)}>${clock(row.at)}</time>` },
    { title: 'Call', cell: (/** @type {any} */ row) => html`<button class="name" onClick=${() => setChosen(row)} aria-label=${`Look at ${row.tool ?? row.method}`}><b><${Name} text=${row.tool ?? row.method} /></b></button>${row.tool && row.method !== 'tools/call' ? html` <span class="dim"><${Name} text=${row.method} /></span>` : ''}` },
    { title: 'Outcome', kind: 'short', cell: (/** @type {any} */ row) => html`<${Outcome} ...${row} />` },
    { title: 'Took', kind: 'num', cell: (/** @type {any} */ row) => html`<span class=${row.ms >= 1000 ? 'warn' : ''}>${took(row.ms)}</span>` },
    { title: 'Principal', less: 1, cell: (/** @type {any} */ row) => (row.owner ? html`<${Name} text=${row.owner} />` : html`<span class="dim">anonymous</span>`) },
    { title: 'Backend', less: 2, cell: (/** @type {any} */ row) => html`<${Name} text=${row.backend} />` },
    { title: 'Session or call', kind: 'short', less: 2, cell: (/** @type {any} */ row) => (row.session ? html`<a class="key" href=${to('session', [row.session])}>${row.label}</a>` : html`<span class="mono dim">${row.label}</span>`) },
    { title: 'Size', kind: 'num', less: 3, cell: (/** @type {any} */ row) => html`<span class="dim">${bytes(row.bytes_in)} → ${bytes(row.bytes_out)}</span>` },
  ];
  const isFiltered = find !== '' || query.outcome;
  return html`<div class="filters">
      <label class="field"><span>Tool, principal, backend, session</span><input type="search" placeholder="press / to search" value=${query.find ?? ''} onInput=${(/** @type {any} */ event) => filter({ find: event.target.value })} /></label>
      <${Segments} label="Outcome" of=${[['', 'All'], ['bad', 'Not ok'], ['slow', 'Longer than 1 s']]} value=${query.outcome ?? ''} choose=${(/** @type {string} */ outcome) => filter({ outcome })} />
      <button aria-pressed=${String(paused)} onClick=${() => setPaused(!paused)}>${paused ? 'Go on' : 'Pause'} <kbd>p</kbd></button>
      <span class="dim" role="status">${paused ? `Paused. ${count(seen)} have ended meanwhile.` : `${count(seen)} have ended while you look${lost > 0 ? `; ${count(lost)} were left out because this page was slow` : ''}.`}</span>
    </div>
    <${Trouble} error=${error} again=${again} />
    <section class="panel"><${Table} label="Calls as they end" columns=${columns} rows=${shown} id=${(/** @type {any} */ row, /** @type {number} */ place) => (isBusy && !paused ? place : row.number)} tight
      empty=${isFiltered ? html`<${Empty} title="No call of the last ${count(KEPT)} fits.">Calls that fit appear here as they end.<//>` : html`<${Empty} title="No call has ended yet.">Calls appear here as they end.<//>`} /></section>
    ${chosen && html`<${Inspector} row=${chosen} close=${() => setChosen(null)} />`}`;
}

/** One call, all that is known of it. @param {{ row: any, close: () => void }} props */
function Inspector({ row, close }) {
  return html`<${Modal} close=${close} label="One call"><div class="inside">
    <h2><${Name} text=${row.tool ?? row.method} /> <${Outcome} ...${row} /></h2>
    <${Facts} of=${[
      ['Method', html`<${Name} text=${row.method} mono />`],
      ['Ended', exact(row.at)],
      ['Took', took(row.ms)],
      ['Principal', row.owner ? html`<${Name} text=${row.owner} />` : 'anonymous'],
      ['Backend', row.backend && html`<${Name} text=${row.backend} />`],
      ['Received', bytes(row.bytes_in)],
      ['Sent', bytes(row.bytes_out)],
      ['Reason', row.reason && html`<${Name} text=${row.reason} mono />`],
      ['Trace', row.trace && html`<${Name} text=${row.trace} mono />`],
      ['In the log', row.label && html`<${Name} text=${row.label} mono />`],
    ]} />
    ${row.trace && html`<p class="hint">The access log and the audit log have the same id:</p><${Copy} text=${command(row.trace)} />`}
    <div class="actions">${row.session && html`<a class="button" href=${to('session', [row.session])}>Its session</a>`}<button autofocus onClick=${close}>Close</button></div>
  </div><//>`;
}

/** @type {Record<string, string>} */
const WAITS = { server: 'the server behind', client: 'the client to answer, or to come back', reader: 'the client to read', news: 'news', next_process: 'the next process' };
/** @type {Record<string, string>} */
const STATES = { running: 'running', parked: 'parked', task: 'task', listening: 'listening' };

/** @param {any} row */
function cancelCall(row) {
  const name = row.tool ?? row.method;
  const inSession = row.in_session && row.session;
  propose({
    title: `Cancel ${name} of ${row.label}`,
    what: html`<p>Ends the call <b><${Name} text=${name} /></b>, which began <${Ago} at=${row.started} />. Its client gets an error as the answer, and the server behind is told to stop.</p>${inSession && html`<p>The session <code>${row.label}</code> goes on.</p>`}`,
    verb: 'Cancel the call',
    danger: true,
    path: inSession ? `sessions/${encodeURIComponent(row.session)}/cancel` : `calls/${encodeURIComponent(row.label)}/cancel`,
    body: () => (inSession ? { call: row.id } : {}),
    done: () => 'The call is cancelled.',
  });
}

function Running() {
  const { query } = useRoute();
  const [old, setOld] = useState(false);
  const { data, error, stale, again } = useGet(withQuery('calls', { state: query.state, older_than_s: old ? 60 : undefined, limit: 500 }), 5000);
  const find = (query.find ?? '').toLowerCase();
  const all = data?.rows ?? [];
  const rows = find ? all.filter((/** @type {any} */ row) => fits(row, find, '')) : all;
  const columns = [
    { title: 'Call', cell: (/** @type {any} */ row) => html`<b><${Name} text=${row.tool ?? row.method} /></b>${row.tool && html`<span class="under"><${Name} text=${row.method} /></span>`}` },
    { title: 'Session or call', kind: 'short', cell: (/** @type {any} */ row) => (row.session ? html`<a class="key" href=${to('session', [row.session])}>${row.label}</a>` : html`<span class="mono">${row.label}</span>`) },
    { title: 'State', kind: 'short', less: 1, cell: (/** @type {any} */ row) => html`<${Badge}>${row.in_session ? 'in a session' : STATES[row.state] ?? row.state}<//>` },
    { title: 'Waits for', cell: (/** @type {any} */ row) => html`<span class=${row.waits_for === 'client' || row.waits_for === 'reader' ? 'warn' : ''}>${row.waits_for === 'client' && row.questions > 0 ? `the client to answer ${row.questions === 1 ? 'a question' : `${row.questions} questions`}` : WAITS[row.waits_for] ?? row.waits_for}</span>` },
    { title: 'Began', kind: 'num', cell: (/** @type {any} */ row) => html`<${Ago} at=${row.started} />` },
    { title: 'Progress', less: 2, cell: (/** @type {any} */ row) => html`<${Progress} of=${row.progress} />` },
    { title: 'Principal', less: 1, cell: (/** @type {any} */ row) => (row.owner ? html`<${Name} text=${row.owner} />` : html`<span class="dim">anonymous</span>`) },
    { title: 'Backend', less: 2, cell: (/** @type {any} */ row) => html`<${Name} text=${row.backend} />` },
    { title: 'Tries', kind: 'num', less: 3, cell: (/** @type {any} */ row) => count(row.attempts ?? 1) },
    may('operator') && { title: html`<span class="hidden-text">Actions</span>`, kind: 'num', cell: (/** @type {any} */ row) => html`<button class="small danger" onClick=${() => cancelCall(row)}>Cancel …</button>` },
  ];
  return html`<div class="filters">
      <label class="field"><span>Tool, principal, backend, label</span><input type="search" placeholder="press / to search" value=${query.find ?? ''} onInput=${(/** @type {any} */ event) => filter({ find: event.target.value })} /></label>
      <${Segments} label="State" of=${[['', 'All'], ['running', 'Running'], ['parked', 'Parked'], ['task', 'Tasks'], ['listening', 'Listening']]} value=${query.state ?? ''} choose=${(/** @type {string} */ state) => filter({ state })} />
      <button aria-pressed=${String(old)} onClick=${() => setOld(!old)}>Longer than 1 min</button>
    </div>
    <${Trouble} error=${error} again=${again} />
    ${data && html`<section class="panel"><${Table} label="Calls in flight" columns=${columns} rows=${rows} id=${(/** @type {any} */ row) => `${row.label} ${JSON.stringify(row.id)} ${row.started}`} stale=${stale}
      empty=${html`<${Empty} title="No call is in flight.">A call that is answered at once is not seen here: look at the calls as they end.<//>`} />
      ${rows.length > 0 && html`<footer>The oldest first. ${data.of > all.length ? `${count(all.length)} of ${count(data.of)} are listed.` : ''}</footer>`}</section>`}`;
}

function Slowest() {
  const { data, error, stale, again } = useGet('calls/slowest', 15_000);
  const [by, setBy] = useState('p99_ms');
  const share = (/** @type {any} */ row) => (row.calls > 0 ? row.errors / row.calls : 0);
  const rows = [...(data?.rows ?? [])].sort((a, b) => (by === 'errors' ? share(b) - share(a) || b.errors - a.errors : (b[by] ?? 0) - (a[by] ?? 0)));
  const most = Math.max(1, ...rows.map(row => row.p99_ms ?? 0));
  const columns = [
    { title: 'Tool', cell: (/** @type {any} */ row) => (row.tool === OTHER ? html`<span class="dim">tools that are in no list that was seen</span>` : html`<b><${Name} text=${row.tool} /></b>`) },
    { title: 'Backend', less: 1, cell: (/** @type {any} */ row) => html`<${Name} text=${row.backend} />` },
    { title: 'Calls', kind: 'num', cell: (/** @type {any} */ row) => count(row.calls) },
    { title: 'Failed', kind: 'num', cell: (/** @type {any} */ row) => html`<span class=${share(row) >= 0.05 ? 'bad' : ''}>${count(row.errors)}${row.errors > 0 ? html` <span class="dim">(${amount(share(row) * 100)} %)</span>` : ''}</span>` },
    { title: 'Half within', kind: 'num', cell: (/** @type {any} */ row) => took(row.p50_ms) },
    { title: '99 of 100 within', kind: 'num', cell: (/** @type {any} */ row) => took(row.p99_ms) },
    { title: html`<span class="hidden-text">Picture of it</span>`, less: 2, cell: (/** @type {any} */ row) => html`<div class="bar" aria-hidden="true"><i style=${{ width: `${((row.p99_ms ?? 0) / most) * 100}%` }}></i></div>` },
    { title: html`<span class="hidden-text">Calls of it</span>`, kind: 'num', less: 1, cell: (/** @type {any} */ row) => row.tool !== OTHER && html`<a class="key" href=${to('calls', ['live'], { find: row.tool })}>its calls</a>` },
  ];
  return html`<div class="filters"><${Segments} label="Order" of=${[['p99_ms', 'Slowest'], ['errors', 'Most failing'], ['calls', 'Most called']]} value=${by} choose=${setBy} /><span class="dim">Tools of the last hour.</span></div>
    <${Trouble} error=${error} again=${again} />
    ${data && html`<section class="panel"><${Table} label="Slow and failing tools" columns=${columns} rows=${rows} id=${(/** @type {any} */ row) => `${row.backend} ${row.tool}`} stale=${stale} empty=${html`<${Empty} title="No tool was called within the last hour.">Tools appear here after their first call.<//>`} /></section>`}`;
}

export function Calls() {
  const { rest } = useRoute();
  const tab = rest[0] ?? 'live';
  return html`<div class="view">
    <${Head} title="Calls" text="What clients ask of the servers behind." />
    <div><${Segments} label="Which calls" of=${TABS} value=${tab} choose=${(/** @type {string} */ next) => go(to('calls', [next]))} /></div>
    ${tab === 'running' ? html`<${Running} />` : tab === 'slowest' ? html`<${Slowest} />` : html`<${Tail} />`}
  </div>`;
}
