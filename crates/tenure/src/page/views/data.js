// @ts-check
// Data sessions, which outlive sessions, and tasks, whose clients come back for the outcome.

import { html, useState } from '../vendor/preact.js';
import { may, useGet, withQuery } from '../api.js';
import { bytes, command, count, pretty, span } from '../format.js';
import { Ago, Badge, Empty, Facts, Head, Name, Panel, Segments, Trouble } from '../parts/bits.js';
import { propose } from '../parts/dialog.js';
import { Table } from '../parts/table.js';
import { filter, go, to, useRoute } from '../route.js';

/** @param {{ row: any }} props */
function State({ row }) {
  const kind = row.state === 'active' ? 'good' : row.state === 'unreadable' ? 'bad' : '';
  return html`<${Badge} kind=${kind}>${row.state}${row.end ? ` (${row.end})` : ''}<//>`;
}

function DataList() {
  const { query } = useRoute();
  const { data, error, stale, again } = useGet(query.name ? withQuery('data', { name: query.name, limit: 50 }) : withQuery('data', { limit: 50, after: query.after }));
  const columns = [
    { title: 'Data session', kind: 'short', cell: (/** @type {any} */ row) => html`<a class="key" href=${to('data', [row.key])}>${row.name}</a>` },
    { title: 'State', kind: 'short', cell: (/** @type {any} */ row) => html`<${State} row=${row} />` },
    { title: 'Principal', cell: (/** @type {any} */ row) => (row.owner ? html`<${Name} text=${row.owner} />` : html`<span class="dim">anonymous</span>`) },
    { title: 'Kind', less: 1, cell: (/** @type {any} */ row) => html`<${Name} text=${row.kind} />` },
    { title: 'Label', less: 1, cell: (/** @type {any} */ row) => html`<${Name} text=${row.label} />` },
    { title: 'Size', kind: 'num', cell: (/** @type {any} */ row) => bytes(row.bytes) },
    { title: 'Changes', kind: 'num', less: 2, cell: (/** @type {any} */ row) => count(row.edition) },
    { title: 'Last used', kind: 'num', less: 2, cell: (/** @type {any} */ row) => html`<${Ago} at=${row.last_used ?? row.ended} />` },
    { title: 'Expires', kind: 'num', less: 3, cell: (/** @type {any} */ row) => html`<${Ago} at=${row.expires ?? row.forgotten} none="never" />` },
  ];
  return html`<div class="filters">
      <label class="field"><span>Name or key</span><input type="search" placeholder="d-4f3a9c01 (press /)" value=${query.name ?? ''} onChange=${(/** @type {any} */ event) => filter({ name: event.target.value.trim(), after: undefined })} /></label>
    </div>
    <${Trouble} error=${error} again=${again} />
    ${data && html`<section class="panel"><${Table} label="Data sessions" columns=${columns} rows=${data.rows} id=${(/** @type {any} */ row) => row.key} href=${(/** @type {any} */ row) => to('data', [row.key])} stale=${stale}
      empty=${query.name ? html`<${Empty} title="No data session has this name.">Names look like d-4f3a9c01; the first digits are enough.<//>` : html`<${Empty} title="There are no data sessions here.">A client makes one when a server behind offers kinds of data; <code>tenure sessions data create</code> makes one by hand.<//>`} />
      ${(query.after || data.next) && html`<div class="more"><button class="small" disabled=${!query.after} onClick=${() => history.back()}>Back</button><button class="small" disabled=${!data.next} onClick=${() => go(to('data', [], { ...query, after: data.next }))}>Next 50</button></div>`}</section>`}`;
}

function Tasks() {
  const { data, error, stale, again } = useGet('tasks?limit=200', 5000);
  const columns = [
    { title: 'Task', kind: 'short', cell: (/** @type {any} */ row) => html`<span class="mono">${row.label}</span>` },
    { title: 'Status', kind: 'short', cell: (/** @type {any} */ row) => html`<${Badge} kind=${row.status === 'failed' ? 'bad' : row.status === 'input_required' ? 'warn' : row.status === 'working' ? 'good' : ''}>${String(row.status).replaceAll('_', ' ')}<//>` },
    { title: 'Tool', cell: (/** @type {any} */ row) => html`<b><${Name} text=${row.tool} /></b>` },
    { title: 'Principal', less: 1, cell: (/** @type {any} */ row) => (row.owner ? html`<${Name} text=${row.owner} />` : html`<span class="dim">anonymous</span>`) },
    { title: 'Backend', less: 1, cell: (/** @type {any} */ row) => html`<${Name} text=${row.backend} />` },
    { title: 'Created', kind: 'num', cell: (/** @type {any} */ row) => html`<${Ago} at=${row.created} />` },
    { title: 'Deadline', kind: 'num', less: 2, cell: (/** @type {any} */ row) => html`<${Ago} at=${row.deadline} none="none" />` },
    { title: 'Node', less: 3, cell: (/** @type {any} */ row) => html`<${Name} text=${row.node} />` },
  ];
  return html`<${Trouble} error=${error} again=${again} />
    ${data && html`<section class="panel"><${Table} label="Tasks" columns=${columns} rows=${data.rows} id=${(/** @type {any} */ row) => row.label} stale=${stale}
      empty=${html`<${Empty} title="There are no tasks.">A call becomes a task when its client asks for that, and comes back for the outcome.<//>`} /></section>`}`;
}

export function Data() {
  const { rest } = useRoute();
  if (rest[0] && rest[0] !== 'tasks') return html`<${OneData} id=${rest[0]} />`;
  const tab = rest[0] === 'tasks' ? 'tasks' : 'data';
  return html`<div class="view">
    <${Head} title="Data sessions and tasks" text="What clients keep at this server beyond a connection." />
    <div><${Segments} label="Which" of=${[['data', 'Data sessions'], ['tasks', 'Tasks']]} value=${tab} choose=${(/** @type {string} */ next) => go(next === 'tasks' ? to('data', ['tasks']) : to('data'))} /></div>
    ${tab === 'tasks' ? html`<${Tasks} />` : html`<${DataList} />`}
  </div>`;
}

/** @param {any} row @param {'resume' | 'clear' | 'revoke'} act */
function change(row, act) {
  const texts = {
    resume: { title: `Put off the expiry of ${row.name}`, what: 'Counts as a use: its time begins anew. If it has expired, it is back, with its contents.', verb: 'Resume it', done: `${row.name} is resumed.` },
    clear: { title: `Empty ${row.name}`, what: `Forgets its contents (${bytes(row.bytes)}). Its client goes on under the same id, with what its kind begins with. This cannot be taken back.`, verb: 'Empty it', done: `${row.name} is empty.` },
    revoke: { title: `Revoke ${row.name}`, what: 'Ends it for good: its id and its handle are dead, and its contents are forgotten. Its client gets `session_revoked`.', verb: 'Revoke it', done: `${row.name} is revoked.` },
  }[act];
  propose({
    title: texts.title,
    what: html`<p>${texts.what}</p>`,
    verb: texts.verb,
    danger: act !== 'resume',
    path: `data/${encodeURIComponent(row.key)}/${act}`,
    command: command('tenure', 'sessions', 'data', act, row.name),
    done: () => texts.done,
  });
}

/** @param {{ id: string }} props */
function OneData({ id }) {
  const [contents, setContents] = useState(false);
  const { data: row, error, again } = useGet(withQuery(`data/${encodeURIComponent(id)}`, { contents }));
  if (!row) return html`<div class="view"><${Head} title="Data session" text=${error ? undefined : 'Asking the node …'} /><${Trouble} error=${error} again=${again} /><p><a href=${to('data')}>All data sessions</a></p></div>`;
  const held = row.contents?.text ?? row.contents?.hex;
  return html`<div class="view">
    <${Head} title=${html`<span class="mono">${row.name}</span> <${State} row=${row} />`} text="What a client keeps under an id of its own. The id itself is a secret and is never shown.">
      ${may('operator') && row.state !== 'ended' && html`<button onClick=${() => change(row, 'resume')}>Resume …</button>
        ${row.state === 'active' && html`<button onClick=${() => change(row, 'clear')}>Empty …</button>`}<button class="danger" onClick=${() => change(row, 'revoke')}>Revoke …</button>`}
    <//>
    <${Trouble} error=${error} again=${again} />
    <${Panel} title="About it"><div class="inside"><${Facts} of=${[
      ['Principal', row.owner ? html`<${Name} text=${row.owner} />` : html`<span class="dim">anonymous</span>`],
      ['Kind', html`<${Name} text=${row.kind} />`],
      ['Label', row.label && html`<${Name} text=${row.label} />`],
      ['Created', html`<${Ago} at=${row.created} />`],
      ['Last used', row.last_used && html`<${Ago} at=${row.last_used} />`],
      ['Expires', row.state === 'active' && html`<${Ago} at=${row.expires} none="never" />`],
      ['Lives unused', row.idle_ttl_ms && `for ${span(row.idle_ttl_ms)}`],
      ['Ends', row.ends && html`<${Ago} at=${row.ends} />`],
      ['Ended', row.ended && html`<${Ago} at=${row.ended} />`],
      ['Forgotten', row.forgotten && html`<${Ago} at=${row.forgotten} />`],
      ['Size', bytes(row.bytes)],
      ['Changes', count(row.edition)],
      ['Hints of its client', row.hints && html`<pre class="text">${pretty(row.hints)}</pre>`],
      ['Key', html`<code class="any dim">${row.key}</code>`],
    ]} /></div><//>
    <${Panel} title="Contents" side=${may('payloads') && row.state !== 'ended' && html`<button class="small" aria-pressed=${String(contents)} onClick=${() => setContents(!contents)}>${contents ? 'Hide' : 'Show'} contents</button>`}>
      <div class="inside">${held !== undefined ? html`<pre class="text">${held}</pre>` : html`<p class="dim">${may('payloads') ? 'Contents are shown on request, and the audit log has who looked.' : 'To see contents one needs the right `payloads`.'}</p>`}</div>
    <//>
  </div>`;
}
