// @ts-check
// The nodes of a cluster: which answer, whose lease is old, whose clock is off.

import { html } from '../vendor/preact.js';
import { useGet } from '../api.js';
import { count, took } from '../format.js';
import { Ago, Badge, Empty, Head, Name, Trouble } from '../parts/bits.js';
import { Table } from '../parts/table.js';
import { to } from '../route.js';

/** How far its clock is off; some nodes tell what it shows instead. @param {any} row */
function clock(row) {
  if (row.clock_ms === undefined) return '–';
  if (row.clock_ms > A_YEAR_MS) return html`<${Ago} at=${row.clock_ms} />`;
  const off = Math.abs(row.clock_ms);
  return html`<span class=${off > 1000 ? 'warn' : ''}>${off < 1 ? 'the same' : `${took(off)} ${row.clock_ms > 0 ? 'ahead' : 'behind'}`}</span>`;
}

const A_YEAR_MS = 365 * 86_400_000;

/** @param {{ rows: any[] }} props */
export function NodeTable({ rows }) {
  const columns = [
    { title: 'Node', kind: 'short', cell: (/** @type {any} */ row) => html`<span class="mono"><${Name} text=${row.label ?? row.node} /></span>` },
    { title: 'State', kind: 'short', cell: (/** @type {any} */ row) => html`<${Badge} kind=${row.answered === false ? 'bad' : row.state === 'serving' ? 'good' : 'warn'}>${row.answered === false ? 'did not answer' : String(row.state).replaceAll('_', ' ')}<//>` },
    { title: 'Sessions', kind: 'num', cell: (/** @type {any} */ row) => count(row.sessions ?? row.load) },
    { title: 'Lease', kind: 'num', hint: 'How long ago it said that it lives', cell: (/** @type {any} */ row) => html`<span class=${row.lease_age_ms > 5000 ? 'bad' : ''}>${row.lease_age_ms === undefined ? '–' : `${took(row.lease_age_ms)} old`}</span>` },
    { title: 'Clock', kind: 'num', less: 1, hint: 'Its clock against that of this node', cell: clock },
    { title: 'Version', less: 2, cell: (/** @type {any} */ row) => html`<${Name} text=${row.version} />` },
    { title: 'Address', less: 1, cell: (/** @type {any} */ row) => html`<${Name} text=${row.address} mono />` },
  ];
  return html`<${Table} label="Nodes" columns=${columns} rows=${rows} id=${(/** @type {any} */ row) => row.node}
    empty=${html`<${Empty} title="This node works alone.">Nodes that share a store on NATS are listed here.<//>`} />`;
}

export function Nodes() {
  const { data, error, again } = useGet('nodes', 5000);
  const versions = new Set((data?.rows ?? []).map((/** @type {any} */ row) => row.version).filter(Boolean));
  return html`<div class="view">
    <${Head} title="Nodes" text=${versions.size > 1 ? `The nodes run ${versions.size} versions: a deploy is under way, or stopped half-way.` : 'The processes that share this store.'}><a class="button" href=${to('sessions')}>Sessions of all</a><//>
    <${Trouble} error=${error} again=${again} />
    ${data && html`<section class="panel"><${NodeTable} rows=${data.rows} /></section>`}
  </div>`;
}
