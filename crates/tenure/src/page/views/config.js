// @ts-check
// The configuration in force with the source of each value, background loops, the log level, and the bundle for bug reports.

import { html, useState } from '../vendor/preact.js';
import { may, me, useGet } from '../api.js';
import { count } from '../format.js';
import { Ago, Badge, Empty, Facts, Head, Name, Panel, Trouble } from '../parts/bits.js';
import { propose } from '../parts/dialog.js';
import { Table } from '../parts/table.js';
import { useStore } from '../store.js';

function reload() {
  propose({
    title: 'Reload the configuration',
    what: html`<p>Reads the file again and checks all of it. If anything is wrong, nothing changes, and this dialog says what. Sessions and calls go on; settings that need a restart are named and keep their values.</p>`,
    verb: 'Reload it',
    path: 'config/reload',
    done: answer => (answer?.changed ? `The configuration is reloaded: ${count(answer.changed.length ?? answer.changed)} settings changed.` : 'The configuration is reloaded.'),
  });
}

function logLevel() {
  propose({
    title: 'Log more for a while',
    what: html`<p>Changes the log level of this node now, and sets it back by itself. Nothing is restarted.</p>`,
    verb: 'Change the level',
    path: 'log',
    fields: [
      { name: 'level', label: 'Level, as for --log-level', value: 'debug' },
      { name: 'for', label: 'For how long', kind: 'select', value: '600', options: [['60', '1 minute'], ['600', '10 minutes'], ['3600', '1 hour']] },
    ],
    body: values => ({ level: values.level, for_s: Number(values.for) }),
    done: () => 'The log level is changed for a while.',
  });
}

/** @param {any} login */
function endLogin(login) {
  propose({
    title: `End the login ${login.label}`,
    what: html`<p>Ends the login of <b><${Name} text=${login.name} /></b> (${login.role}) in that browser at once, and its stream of news with it. A new link lets it in again.</p>`,
    verb: 'End it',
    danger: true,
    path: `logins/${encodeURIComponent(login.label)}/revoke`,
    done: () => `The login ${login.label} is ended.`,
  });
}

function Logins() {
  const { data, error, again } = useGet(may('admin') ? 'logins' : null);
  if (!may('admin')) return null;
  const columns = [
    { title: 'Login', kind: /** @type {'short'} */ ('short'), cell: (/** @type {any} */ row) => html`<span class="mono">${row.label}</span>` },
    { title: 'Who', cell: (/** @type {any} */ row) => html`<${Name} text=${row.name} />` },
    { title: 'Role', kind: /** @type {'short'} */ ('short'), cell: (/** @type {any} */ row) => html`<${Badge}>${row.role}<//>` },
    { title: 'From', less: /** @type {1} */ (1), cell: (/** @type {any} */ row) => html`<${Name} text=${row.remote} mono />` },
    { title: 'Since', kind: /** @type {'num'} */ ('num'), cell: (/** @type {any} */ row) => html`<${Ago} at=${row.since} />` },
    { title: 'Last used', kind: /** @type {'num'} */ ('num'), less: /** @type {1} */ (1), cell: (/** @type {any} */ row) => html`<${Ago} at=${row.last_used} />` },
    { title: 'Ends', kind: /** @type {'num'} */ ('num'), cell: (/** @type {any} */ row) => html`<${Ago} at=${row.expires} />` },
    { title: html`<span class="hidden-text">Actions</span>`, kind: /** @type {'num'} */ ('num'), cell: (/** @type {any} */ row) => html`<button class="small danger" onClick=${() => endLogin(row)}>End …</button>` },
  ];
  return html`<${Panel} title="Who is logged in" note="Browsers that opened a link; keys of programs are not among them."><${Trouble} error=${error} again=${again} />
    ${data && html`<${Table} label="Logins" columns=${columns} rows=${data.rows} id=${(/** @type {any} */ row) => row.label} empty=${html`<${Empty} title="No browser is logged in."><code>tenure admin open</code> prints a link.<//>`} />`}<//>`;
}

/** @param {any} value */
const shown = value => (value === undefined || value === null ? 'not set' : typeof value === 'string' ? value : JSON.stringify(value));

/** @param {string} source */
const isDefault = source => source === 'default' || source === undefined;

export function Config() {
  const who = useStore(me);
  const { data, error, again } = useGet('config');
  const loops = useGet('loops', 10_000);
  const log = useGet(who && who.features?.log !== false ? 'log' : null);
  const [find, setFind] = useState('');
  const [set, setSet] = useState(false);
  const features = who?.features ?? {};
  const rows = (data?.rows ?? []).filter((/** @type {any} */ row) => (!set || !isDefault(row.source)) && `${row.key} ${shown(row.value)}`.toLowerCase().includes(find.toLowerCase()));
  const columns = [
    { title: 'Setting', kind: 'short', cell: (/** @type {any} */ row) => html`<span class="mono"><${Name} text=${row.key} /></span>` },
    { title: 'Value', cell: (/** @type {any} */ row) => html`${row.value === undefined || row.value === null ? html`<span class="dim">not set</span>` : html`<${Name} text=${shown(row.value)} mono />`}` },
    { title: 'From', cell: (/** @type {any} */ row) => html`<span class=${isDefault(row.source) ? 'dim' : ''}><${Name} text=${row.source ?? 'default'} /></span>` },
  ];
  const loopColumns = [
    { title: 'Loop', cell: (/** @type {any} */ row) => html`<${Name} text=${row.name} />` },
    { title: 'State', kind: 'short', cell: (/** @type {any} */ row) => (row.is_down ? html`<${Badge} kind="bad">down, will be restarted<//>` : html`<${Badge} kind="good">runs<//>`) },
    { title: 'Restarts', kind: 'num', cell: (/** @type {any} */ row) => html`<span class=${row.restarts > 0 ? 'warn' : ''}>${count(row.restarts)}</span>` },
    { title: 'Last panic', kind: 'num', cell: (/** @type {any} */ row) => html`<${Ago} at=${row.panicked} none="never" />` },
  ];
  return html`<div class="view">
    <${Head} title="Config" text="What is in force at this node, and where each value is from. Secrets are shown as (set).">
      ${may('operator') && features.log !== false && html`<button onClick=${logLevel}>Log more …</button>`}
      ${may('operator') && features.reload !== false && html`<button onClick=${reload}>Reload …</button>`}
      ${may('admin') && html`<a class="button" href="/api/v1/debug/bundle" download="tenure-bundle.json">Debug bundle</a>`}
    <//>
    <div class="columns">
      <${Panel} title="This node"><div class="inside"><${Facts} of=${[
        ['Version', who?.version],
        ['Node', who?.node && html`<${Name} text=${who.node} mono />`],
        ['Started', html`<${Ago} at=${who?.started} />`],
        ['Log level', log.data?.level && html`<${Name} text=${log.data.level} mono />${log.data.until ? html`, until <${Ago} at=${log.data.until} />` : ''}`],
        ['You are', html`<${Name} text=${who?.name} />`],
        ['Your rights', who?.roles?.join(', ')],
        ['Came in by', who?.via],
      ]} /></div><//>
      <${Panel} title="Background loops"><${Trouble} error=${loops.error} again=${loops.again} />${loops.data && html`<${Table} label="Background loops" columns=${loopColumns} rows=${loops.data.rows ?? []} id=${(/** @type {any} */ row) => row.name} empty=${html`<${Empty} title="No loop has begun."><//>`} />`}<//>
    </div>
    <${Logins} />
    <div class="filters"><label class="field"><span>Setting or value</span><input type="search" placeholder="press / to search" value=${find} onInput=${(/** @type {any} */ event) => setFind(event.target.value)} /></label>
      <button aria-pressed=${String(set)} onClick=${() => setSet(!set)}>Only what was set</button></div>
    <${Trouble} error=${error} again=${again} />
    ${data && html`<section class="panel"><${Table} label="Settings" columns=${columns} rows=${rows} id=${(/** @type {any} */ row) => row.key} empty=${html`<${Empty} title="No setting fits.">The search looks at names and values.<//>`} /><footer>${count(rows.length)} settings</footer></section>`}
  </div>`;
}
