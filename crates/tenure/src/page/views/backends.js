// @ts-check
// The servers behind: which are up, what they have to do, why one failed, and their tools.

import { html } from '../vendor/preact.js';
import { may, me, useGet } from '../api.js';
import { command, count, plural, pretty } from '../format.js';
import { overview } from '../live.js';
import { Ago, Badge, Empty, Facts, Head, Name, Panel, Sentence, Trouble } from '../parts/bits.js';
import { propose } from '../parts/dialog.js';
import { Table } from '../parts/table.js';
import { to, useRoute } from '../route.js';
import { useStore } from '../store.js';

/** @param {{ row: any }} props */
const Up = ({ row }) => (row.up === undefined ? html`<${Badge}>not known<//>` : row.up ? html`<${Badge} kind="good"><i class="dot is-good"></i>up<//>` : html`<${Badge} kind="bad"><i class="dot is-bad"></i>down<//>`);

/** @param {any} row @returns {any} */
const lastError = row => (row.last_error ? html`<span class=${row.up ? 'dim' : 'bad'}><${Sentence} text=${row.last_error.text} plain /></span><span class="under"><${Ago} at=${row.last_error.at} /></span>` : html`<span class="dim">none</span>`);

/** @param {{ rows: any[] }} props */
export function BackendTable({ rows }) {
  const columns = [
    { title: 'Backend', kind: 'short', cell: (/** @type {any} */ row) => html`<a class="key" href=${to('backends', [row.name])}><${Name} text=${row.name} /></a>` },
    { title: 'State', kind: 'short', cell: (/** @type {any} */ row) => html`<${Up} row=${row} />` },
    { title: 'In flight', kind: 'num', cell: (/** @type {any} */ row) => count(row.in_flight) },
    { title: 'Waiting', kind: 'num', hint: 'Calls that wait: for a place, or for their client', cell: (/** @type {any} */ row) => html`<span class=${row.waiting > 0 ? 'warn' : ''}>${count(row.waiting)}</span>` },
    { title: 'Starts', kind: 'num', less: 2, hint: 'How often its process or connection was begun', cell: (/** @type {any} */ row) => count(row.starts) },
    { title: 'Tools', kind: 'num', less: 3, cell: (/** @type {any} */ row) => count(Array.isArray(row.tools) ? row.tools.length : row.tools) },
    { title: 'What it is', less: 1, cell: (/** @type {any} */ row) => html`<span class="dim"><${Name} text=${row.kind} /></span> <${Name} text=${row.target} mono />` },
    { title: 'Last error', less: 2, cell: lastError },
  ];
  const order = [...rows].sort((a, b) => Number(a.up ?? true) - Number(b.up ?? true) || a.name.localeCompare(b.name));
  return html`<${Table} label="Backends" columns=${columns} rows=${order} id=${(/** @type {any} */ row) => row.name} href=${(/** @type {any} */ row) => to('backends', [row.name])}
    empty=${html`<${Empty} title="No server is configured behind this node.">Name one with <code>[backends.NAME]</code> in the configuration, or after <code>tenure serve --</code>.<//>`} />`;
}

export function Backends() {
  const { rest } = useRoute();
  const news = useStore(overview);
  const { data, error, again } = useGet(rest[0] ? null : 'backends');
  if (rest[0]) return html`<${Backend} name=${rest[0]} />`;
  const rows = news?.backends ?? data?.rows ?? [];
  return html`<div class="view">
    <${Head} title="Backends" text="The MCP servers behind this node. The figures are live." />
    <${Trouble} error=${error} again=${again} />
    ${(data || news) && html`<section class="panel"><${BackendTable} rows=${rows} /></section>`}
  </div>`;
}

/** @param {any} row */
function restart(row) {
  propose({
    title: `Restart ${row.name}`,
    what: html`<p>${row.kind === 'child' ? 'Ends the processes of this backend and starts them anew for the next call.' : 'Closes the connections to this backend and opens them anew for the next call.'} Sessions stay.</p>
      <p>${row.in_flight > 0 ? `Of the ${plural(row.in_flight, 'call')} in flight, those that are safe to repeat run again; the others are answered with an error.` : 'No call is in flight.'}</p>`,
    verb: 'Restart it',
    danger: true,
    path: `backends/${encodeURIComponent(row.name)}/restart`,
    done: () => `${row.name} is restarted.`,
  });
}

/** @param {{ tool: any, backend: string, canTry: boolean }} props */
function Tool({ tool, backend, canTry }) {
  const notes = Object.entries(tool.annotations ?? {}).filter(([name, value]) => value === true && name.endsWith('Hint')).map(([name]) => name.replace(/Hint$/, ''));
  return html`<details class="panel tool"><summary class="inside"><b class="mono"><${Name} text=${tool.name} /></b>${tool.title ? html` <${Name} text=${tool.title} />` : ''} ${notes.map(note => html`<${Badge} kind=${note === 'destructive' ? 'warn' : ''}>${note}<//> `)}
      <span class="dim"><${Name} text=${(tool.description ?? '').slice(0, 200)} /></span></summary>
    <div class="inside">
      ${tool.description?.length > 200 && html`<p><${Name} text=${tool.description} /></p>`}
      <pre class="text">${pretty(tool.inputSchema ?? {})}</pre>
      ${canTry && html`<p><a class="button" href=${to('try', [], { backend, tool: tool.name })}>Try it</a></p>`}
    </div>
  </details>`;
}

/** @param {{ name: string }} props */
function Backend({ name }) {
  // Asked for once: the node asks the server for its tools each time. The figures are live.
  const { data, error, again } = useGet(`backends/${encodeURIComponent(name)}`);
  const live = useStore(overview)?.backends?.find((/** @type {any} */ of) => of.name === name);
  const row = data && { ...data, ...live, tools: data.tools };
  if (!row) return html`<div class="view"><${Head} title=${name} text=${error ? undefined : 'Asking the node …'} /><${Trouble} error=${error} again=${again} /><p><a href=${to('backends')}>All backends</a></p></div>`;
  const tools = Array.isArray(row.tools) ? row.tools : [];
  const features = me.get()?.features ?? {};
  return html`<div class="view">
    <${Head} title=${html`<${Name} text=${row.name} /> <${Up} row=${row} />`} text=${html`<${Name} text=${row.kind} />: <${Name} text=${row.target} mono />`}>
      <a class="button" href=${to('sessions', [], { backend: row.name })}>Its sessions</a>
      ${may('operator') && features.restart !== false && row.kind === 'child' && html`<button class="danger" onClick=${() => restart(row)}>Restart …</button>`}
    <//>
    <${Trouble} error=${error} again=${again} />
    ${row.up === false && row.last_error && html`<section class="panel"><div class="problem is-error"><span class="sign" aria-label="error">✕</span><span class="any"><${Sentence} text=${row.last_error.text} /> <span class="since"><${Ago} at=${row.last_error.at} /></span></span></div></section>`}
    <${Panel} title="Figures"><div class="inside"><${Facts} of=${[
      ['Server', row.server && html`<${Name} text=${row.server.name} /> <span class="dim"><${Name} text=${row.server.version} /></span>`],
      ['Era', row.era && html`<${Name} text=${row.era} />`],
      ['In flight', count(row.in_flight)],
      ['Waiting', count(row.waiting)],
      ['Starts', `${count(row.starts)}${row.failed_starts > 0 ? `, and ${count(row.failed_starts)} failed` : ''}`],
      ['Last error', lastError(row)],
    ]} /></div><//>
    <h2>Tools <span class="dim">${count(Array.isArray(row.tools) ? row.tools.length : row.tools)}</span></h2>
    ${row.tools_error && html`<div class="trouble"><div><strong>It did not list its tools.</strong> <${Sentence} text=${row.tools_error} /></div></div>`}
    ${tools.length === 0 && row.tools > 0 && html`<p class="hint">The node has seen the names of its tools in lists, and does not keep their schemas.</p>`}
    ${tools.length === 0 && !row.tools_error && !(row.tools > 0) && html`<${Empty} title="No tool is known.">${row.up === false ? 'The server is down, so it cannot be asked.' : 'The server offers none, or no client has asked for them yet.'}<//>`}
    <div class="view tools">${tools.map((/** @type {any} */ tool) => html`<${Tool} key=${tool.name} tool=${tool} backend=${row.name} canTry=${features.try && may('operator')} />`)}</div>
  </div>`;
}
