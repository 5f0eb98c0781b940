// @ts-check
// The audit log: who did what, the newest first, and whether its chain is whole.

import { html, useState } from '../vendor/preact.js';
import { useGet, withQuery } from '../api.js';
import { command, count, exact, pretty } from '../format.js';
import { now } from '../live.js';
import { Ago, Badge, Copy, Empty, Head, Name, Panel, Segments, Trouble } from '../parts/bits.js';
import { Modal } from '../parts/dialog.js';
import { Table } from '../parts/table.js';
import { filter, useRoute } from '../route.js';

/** @type {[string, string][]} */
const SPANS = [['', 'All'], ['3600', 'Last hour'], ['86400', 'Last day']];
/** @type {[string, string][]} */
const EVENTS = [['', 'Everything'], ['admin_action', 'Operators'], ['refused', 'Refusals'], ['call_finished', 'Calls'], ['session_ended', 'Ended sessions']];

/** @param {any} row */
const time = row => (typeof row.at === 'number' ? row.at : Date.parse(row.at ?? row.time));

/** @param {any} row */
function principal(row) {
  const of = row.principal;
  if (of === undefined) return undefined;
  if (typeof of === 'string') return of;
  if (of.iss) return `${of.iss}:${of.sub ?? ''}`;
  return of.kind === 'operator' && /^\d+$/.test(of.sub ?? '') ? `operator, user ${of.sub}` : of.sub ?? of.kind;
}

/** What was done, and to what. @param {any} row */
function what(row) {
  const on = [row.tool, row.name, row.label, row.session].find(value => value !== undefined);
  return html`<${Name} text=${row.method ?? ''} mono />${on ? html` <b><${Name} text=${on} /></b>` : ''}${row.text ? html` <${Name} text=${row.text} />` : ''}
    ${row.why ?? (row.event === 'admin_action' && row.reason) ? html`<span class="under">“<${Name} text=${row.why ?? row.reason} />”</span>` : ''}`;
}

/** @param {any} row */
const number = row => row.seq ?? row.number ?? row.n;

export function Audit() {
  const { query } = useRoute();
  const [chosen, setChosen] = useState(/** @type {any} */ (null));
  // To the minute, so that the path stays the same while the view is open.
  const since = query.span ? new Date(now() - Number(query.span) * 1000).toISOString().slice(0, 16) : undefined;
  const { data, error, stale, again } = useGet(withQuery('audit', { since, principal: query.principal, event: query.event, limit: 200 }));
  const rows = data?.rows ?? [];
  const columns = [
    { title: 'When', kind: 'short', cell: (/** @type {any} */ row) => html`<${Ago} at=${time(row)} />` },
    { title: 'Event', kind: 'short', cell: (/** @type {any} */ row) => html`<${Badge} kind=${row.event === 'refused' || row.event === 'audit_lost' ? 'warn' : row.event === 'admin_action' ? 'good' : ''}>${String(row.event).replaceAll('_', ' ')}<//>` },
    { title: 'Who', cell: (/** @type {any} */ row) => html`<${Name} text=${principal(row)} />` },
    { title: 'What', cell: what },
    { title: 'Outcome', kind: 'short', less: 1, cell: (/** @type {any} */ row) => html`<${Name} text=${row.outcome ?? (row.event !== 'admin_action' ? row.reason : undefined)} />` },
    { title: 'Number', kind: 'num', less: 2, cell: (/** @type {any} */ row) => count(number(row)) },
    { title: html`<span class="hidden-text">The record</span>`, kind: 'num', cell: (/** @type {any} */ row) => html`<button class="small" onClick=${() => setChosen(row)}>Record</button>` },
  ];
  const { chain } = data ?? {};
  return html`<div class="view">
    <${Head} title="Audit" text="Who did what, with what right. Each record holds the hash of the one before." />
    <div class="filters">
      <${Segments} label="Events" of=${EVENTS} value=${query.event ?? ''} choose=${(/** @type {string} */ event) => filter({ event })} />
      <${Segments} label="Time" of=${SPANS} value=${query.span ?? ''} choose=${(/** @type {string} */ value) => filter({ span: value })} />
      <label class="field"><span>Principal</span><input type="search" placeholder="corp:ann" value=${query.principal ?? ''} onChange=${(/** @type {any} */ event) => filter({ principal: event.target.value.trim() })} /></label>
    </div>
    <${Trouble} error=${error} again=${again} />
    ${chain && html`<section class="panel"><div class=${`problem ${chain.ok ? 'is-well' : 'is-error'}`}><span class="sign">${chain.ok ? '✓' : '✕'}</span>
      <span>${chain.ok ? `The chain is whole${chain.is_cut ? ' as far as there was time to check it' : ''}` : 'The chain is broken: a record was changed, removed or inserted'}${chain.checked_to !== undefined ? `; checked to record ${typeof chain.checked_to === 'number' ? count(chain.checked_to) : chain.checked_to}` : ''}.</span><span></span></div></section>`}
    ${data && html`<section class="panel"><${Table} label="Audit log" columns=${columns} rows=${rows} id=${(/** @type {any} */ row) => number(row) ?? row.hash ?? `${row.at} ${row.event}`} stale=${stale}
      empty=${html`<${Empty} title=${data.off ? 'There is no audit log.' : 'No record fits.'}>${data.off ? html`<code>audit.file</code> names the file to write it to.` : 'Take a filter away, or look at a longer time.'}<//>`} /></section>`}
    <${Panel} title="On the command line"><div class="inside"><${Copy} text=${query.principal ? command('tenure', 'audit', 'show', 'audit.jsonl', '--principal', query.principal) : 'tenure audit verify audit.jsonl'} /></div><//>
    ${chosen && html`<${Modal} close=${() => setChosen(null)} label="A record"><div class="inside"><h2>Record ${count(number(chosen))}</h2><pre class="text">${pretty(chosen)}</pre><div class="actions"><button autofocus onClick=${() => setChosen(null)}>Close</button></div></div><//>`}
    ${rows.length > 0 && html`<p class="hint">The oldest record here is of ${exact(time(rows[rows.length - 1]))}.</p>`}
  </div>`;
}
