// @ts-check
// Principals and what they have, limits and what is left of them, and shares of the totals that addresses hold.

import { html, useEffect, useState } from '../vendor/preact.js';
import { change as send, may, useGet } from '../api.js';
import { bytes, command, count, plural } from '../format.js';
import { Ago, Badge, Bar, Empty, Facts, Head, Name, Panel, Segments, Trouble } from '../parts/bits.js';
import { propose } from '../parts/dialog.js';
import { Table } from '../parts/table.js';
import { go, to, useRoute } from '../route.js';
import { LimitLine, limitName } from './session.js';

/** @param {any} principal */
const who = principal => (principal ? html`<${Name} text=${principal} />` : html`<span class="dim">anonymous</span>`);

/** @param {string} principal */
function revoke(principal) {
  propose({
    title: `Revoke ${principal}`,
    what: (/** @type {any} */ values) => html`<p>Refuses every token and key that was issued to <b><${Name} text=${principal} /></b> until now, and ends its sessions, running calls and tasks, on every node and also for the next process.</p>
      <p>${values.data ? html`<b>Its data sessions end too; their contents are forgotten.</b>` : 'Its data sessions stay, out of its reach.'} Credentials that are issued later are good again.</p>`,
    verb: 'Revoke the principal',
    danger: true,
    path: 'principals/revoke',
    fields: [{ name: 'data', label: 'End its data sessions too', kind: 'check' }],
    body: values => ({ principal, data: values.data }),
    command: values => command('tenure', 'principals', 'revoke', principal, ...(values.data ? ['--data'] : [])),
    done: answer => `${principal} is revoked${answer?.sessions === undefined ? '' : `: ${plural(answer.sessions, 'session')} and ${plural(answer.calls ?? 0, 'call')} ended`}.`,
  });
}

/** @param {string} principal */
function reinstate(principal) {
  propose({
    title: `Reinstate ${principal}`,
    what: html`<p>Takes back the refusal: what was issued to <b><${Name} text=${principal} /></b> is good again, if it has not expired. What was ended stays ended.</p>`,
    verb: 'Reinstate it',
    path: 'principals/reinstate',
    body: () => ({ principal }),
    command: command('tenure', 'principals', 'reinstate', principal),
    done: () => `${principal} is reinstated.`,
  });
}

function Principals() {
  const { data, error, stale, again } = useGet('principals', 15_000);
  const [find, setFind] = useState('');
  const rows = (data?.rows ?? []).filter((/** @type {any} */ row) => (row.principal ?? 'anonymous').toLowerCase().includes(find.toLowerCase()));
  const columns = [
    { title: 'Principal', cell: (/** @type {any} */ row) => (row.principal ? html`<a class="key" href=${to('limits', [], { principal: row.principal })}><${Name} text=${row.principal} /></a>` : who(null)) },
    { title: 'Sessions', kind: 'num', cell: (/** @type {any} */ row) => html`${count(row.sessions)}${row.awake > 0 ? html` <span class="dim">(${count(row.awake)} awake)</span>` : ''}` },
    { title: 'Calls', kind: 'num', cell: (/** @type {any} */ row) => count(row.calls) },
    { title: 'Tasks', kind: 'num', less: 2, cell: (/** @type {any} */ row) => count(row.tasks) },
    { title: 'Data sessions', kind: 'num', less: 2, cell: (/** @type {any} */ row) => count(row.data_sessions) },
    { title: 'Last used', kind: 'num', less: 1, cell: (/** @type {any} */ row) => html`<${Ago} at=${row.last_used} />` },
    { title: 'Revoked', kind: 'num', cell: (/** @type {any} */ row) => (row.revoked ? html`<span class="bad"><${Ago} at=${row.revoked} /></span>` : html`<span class="dim">no</span>`) },
  ];
  return html`<div class="filters"><label class="field"><span>Principal</span><input type="search" placeholder="press / to search" value=${find} onInput=${(/** @type {any} */ event) => setFind(event.target.value)} /></label></div>
    <${Trouble} error=${error} again=${again} />
    ${data && html`<section class="panel"><${Table} label="Principals" columns=${columns} rows=${rows} id=${(/** @type {any} */ row) => row.principal ?? ''} href=${(/** @type {any} */ row) => row.principal && to('limits', [], { principal: row.principal })} stale=${stale}
      empty=${html`<${Empty} title=${find ? 'No principal fits.' : 'No principal has anything here.'}>${find ? 'The search looks at names that are listed, such as corp:ann.' : 'Principals appear when they open a session. Without authentication all callers are anonymous.'}<//>`} />
      ${data.looked_at !== undefined && html`<footer>The node looked at ${count(data.looked_at)}${data.of === undefined ? '' : ` of ${count(data.of)}`} records: there may be more principals, and more of those that are listed.</footer>`}</section>`}`;
}

/** What a POST answers that only reads: the name of a principal does not belong into an address that proxies log. @param {string} path @param {string} principal */
function useAsked(path, principal) {
  const [answer, setAnswer] = useState(/** @type {any} */ ({}));
  const [turn, again] = useState(0);
  useEffect(() => {
    let isOld = false;
    send('POST', path, { principal }).then(data => !isOld && setAnswer({ data }), error => !isOld && setAnswer({ error }));
    return () => {
      isOld = true;
    };
  }, [path, principal, turn]);
  return { ...answer, again: () => again(turn + 1) };
}

/** @param {{ principal: string }} props */
function Principal({ principal }) {
  const { data, error, again } = useAsked('principals/show', principal);
  const left = useAsked('limits/show', principal);
  const sessions = data?.session_rows ?? [];
  const limits = left.data?.limits ?? left.data?.rows?.flatMap?.((/** @type {any} */ row) => row.limits ?? []) ?? [];
  const columns = [
    { title: 'Session', kind: 'short', cell: (/** @type {any} */ row) => html`<a class="key" href=${to('session', [row.key])}>${row.label}</a>` },
    { title: 'State', kind: 'short', cell: (/** @type {any} */ row) => html`<${Badge} kind=${row.state === 'awake' ? 'good' : ''}>${row.state}<//>` },
    { title: 'Client', cell: (/** @type {any} */ row) => html`<${Name} text=${row.client_name} />` },
    { title: 'Backend', less: 1, cell: (/** @type {any} */ row) => html`<${Name} text=${row.backend} />` },
    { title: 'Calls', kind: 'num', cell: (/** @type {any} */ row) => count(row.calls) },
    { title: 'Last used', kind: 'num', cell: (/** @type {any} */ row) => html`<${Ago} at=${row.last_used} />` },
  ];
  return html`<div class="view">
    <${Head} title=${html`<${Name} text=${principal} /> ${data?.revoked ? html`<${Badge} kind="bad">revoked<//>` : ''}`} text="What this principal has at the server, and what is left of its limits.">
      <a class="button" href=${to('limits')}>All principals</a>
      ${data?.revoked && may('admin') && html`<button onClick=${() => reinstate(principal)}>Reinstate …</button>`}
      ${may('operator') && html`<button class="danger" onClick=${() => revoke(principal)}>Revoke …</button>`}
    <//>
    <${Trouble} error=${error} again=${again} />
    ${data && html`<div class="columns">
      <${Panel} title="What it has"><div class="inside"><${Facts} of=${[
        ['Sessions', `${count(data.sessions)}, ${count(data.awake)} awake`],
        ['Calls', count(data.calls)],
        ['Tasks', count(data.tasks)],
        ['Data sessions', count(data.data_sessions)],
        ['Last used', html`<${Ago} at=${data.last_used} />`],
        ['Revoked', data.revoked && html`<${Ago} at=${data.revoked} />`],
      ]} /></div><//>
      <${Panel} title="What is left of its limits"><div class="inside"><${Trouble} error=${left.error} />${limits.length > 0 ? html`<${LimitLines} limits=${limits} />` : left.data && html`<p class="dim">It has no limits, or did not call lately.</p>`}</div><//>
    </div>
    <${Panel} title="Its sessions"><${Table} label="Its sessions" columns=${columns} rows=${sessions} id=${(/** @type {any} */ row) => row.key} href=${(/** @type {any} */ row) => to('session', [row.key])} empty=${html`<${Empty} title="It has no session now.">Its next client begins one.<//>`} /><//>`}
  </div>`;
}

/** What is left: the limit stands there as it is configured. @param {{ limits: any[] }} props */
const LimitLines = ({ limits }) => html`<${Facts} of=${limits.map(line => [limitName(line), html`<${LimitLine} line=${line} />`])} />`;

/** Those that called lately, with what is left to them. */
function Limits() {
  const { data, error, again } = useGet('limits', 10_000);
  const rows = data?.rows ?? [];
  const limited = rows.filter((/** @type {any} */ row) => row.limits?.length > 0);
  const columns = [
    { title: 'Principal', cell: (/** @type {any} */ row) => (row.principal ? html`<a class="key" href=${to('limits', [], { principal: row.principal })}><${Name} text=${row.principal} /></a>` : who(null)) },
    ...[['rate', 'Rate'], ['at_once', 'At once'], ['day', 'A day']].map(([what, title]) => ({ title, cell: (/** @type {any} */ row) => {
      const line = row.limits.find((/** @type {any} */ of) => of.what === what);
      return line ? html`<${LimitLine} line=${line} />` : html`<span class="dim">–</span>`;
    } })),
  ];
  return html`<${Trouble} error=${error} again=${again} />
    ${data && html`<section class="panel"><${Table} label="Limits" columns=${columns} rows=${limited} id=${(/** @type {any} */ row) => row.principal ?? ''}
      empty=${html`<${Empty} title=${rows.length > 0 ? 'Principals have no limits.' : 'No principal called lately.'}><code>limits.principal</code> and its neighbours in the configuration set them. Those that call appear here with what is left to them.<//>`} />
      ${limited.length > 0 && html`<footer>Limits of sessions, tools and backends are in the configuration.</footer>`}</section>`}`;
}

/** What clients make the node hold, by its word. @type {Record<string, string>} */
const SHARES = { memory: 'memory for messages', calls: 'calls without a session', listens: 'listens without a session', parked: 'calls that wait for their clients', sessions: 'sessions in memory', disk: 'data sessions in the store' };

function Usage() {
  const { data, error, again } = useGet('usage', 10_000);
  const columns = [
    { title: 'What', cell: (/** @type {any} */ row) => html`<${Name} text=${SHARES[row.resource] ?? String(row.resource).replaceAll('_', ' ')} />` },
    { title: 'In use', kind: 'num', cell: (/** @type {any} */ row) => (row.is_bytes ? bytes(row.used) : count(row.used)) },
    { title: 'Of', kind: 'num', cell: (/** @type {any} */ row) => (row.is_bytes ? bytes(row.total) : count(row.total)) },
    { title: html`<span class="hidden-text">Part</span>`, cell: (/** @type {any} */ row) => html`<${Bar} used=${row.used} total=${row.total} />` },
    { title: 'By whom', less: 1, cell: (/** @type {any} */ row) => (row.peers ?? []).slice(0, 3).map((/** @type {any} */ peer) => html`<span class="under"><${Name} text=${peer.peer} mono /> ${row.is_bytes ? bytes(peer.used) : count(peer.used)}</span>`) },
  ];
  return html`<${Trouble} error=${error} again=${again} />
    ${data && html`<section class="panel"><${Table} label="Use of the totals" columns=${columns} rows=${data.rows ?? []} id=${(/** @type {any} */ row) => row.resource} empty=${html`<${Empty} title="Nothing is in use.">Shares of clients appear when they hold something.<//>`} /><footer>One address can hold a part of each; the more others hold, the less is left for it.</footer></section>`}`;
}

export function LimitsAndPrincipals() {
  const { rest, query } = useRoute();
  if (query.principal) return html`<${Principal} key=${query.principal} principal=${query.principal} />`;
  const tab = rest[0] ?? 'principals';
  return html`<div class="view">
    <${Head} title="Limits and principals" text="Who has something here, how often they may call, and what clients make this node hold." />
    <div><${Segments} label="Which" of=${[['principals', 'Principals'], ['limits', 'Limits'], ['usage', 'Shares']]} value=${tab} choose=${(/** @type {string} */ next) => go(to('limits', [next]))} /></div>
    ${tab === 'limits' ? html`<${Limits} />` : tab === 'usage' ? html`<${Usage} />` : html`<${Principals} />`}
  </div>`;
}
