// @ts-check
// One session: what looks wrong, its life, what is in flight and why it waits, its streams and events, and what can be done.

import { html, useEffect } from '../vendor/preact.js';
import { may, useGet } from '../api.js';
import { bytes, command, count, plural, pretty, span, took } from '../format.js';
import { listen, now } from '../live.js';
import { Ago, Badge, Bar, Copy, Empty, Facts, Head, Name, Panel, Sentence, Trouble } from '../parts/bits.js';
import { Life } from '../parts/life.js';
import { Table } from '../parts/table.js';
import { to } from '../route.js';
import { cancel, detach, revoke, settings, sleep } from './session-actions.js';
import { Events } from './session-events.js';
import { StateBadge } from './sessions.js';

// Calls that ended lately, in the picture of its life.
const MOST_CALLS = 20;

/** What a call waits for, in words. @param {any} call */
function waits(call) {
  const unread = call.stream !== undefined && !call.is_read;
  if (call.asking > 0) return html`<span class="warn">the client to answer ${call.asking === 1 ? 'a question' : `${call.asking} questions`}${unread ? '; the client does not read its stream' : ''}</span>`;
  return html`the server behind${unread ? html`<span class="warn">; the client does not read its stream</span>` : ''}`;
}

/** @param {any} progress */
export function Progress({ of: progress }) {
  if (!progress) return html`<span class="dim">none reported</span>`;
  const known = progress.total > 0 && progress.value !== undefined;
  return html`<span class="any">${progress.text ? html`<${Name} text=${progress.text} />, ` : known ? `${count(progress.value)} of ${count(progress.total)}, ` : ''}<${Ago} at=${progress.at} /></span>${known && html`<${Bar} used=${progress.value} total=${progress.total * 1.0001} plain />`}`;
}

/** @param {{ session: any }} props */
function InFlight({ session }) {
  const rows = session.in_flight ?? [];
  const columns = [
    { title: 'Call', cell: (/** @type {any} */ call) => html`<b><${Name} text=${call.tool ?? call.method} /></b><span class="under">${call.tool ? html`<${Name} text=${call.method} />, ` : ''}id <${Name} text=${JSON.stringify(call.id)} mono /></span>` },
    { title: 'Began', kind: 'num', cell: (/** @type {any} */ call) => html`<${Ago} at=${call.started} />` },
    { title: 'Waits for', cell: waits },
    { title: 'Progress', less: 1, cell: (/** @type {any} */ call) => html`<${Progress} of=${call.progress ?? (call.progressed ? { at: call.progressed } : null)} />` },
    { title: 'Stream', kind: 'num', less: 2, cell: (/** @type {any} */ call) => (call.stream === undefined ? html`<span class="dim">–</span>` : `${call.stream}${call.is_read ? '' : ' (not read)'}`) },
    may('operator') && { title: html`<span class="hidden-text">Actions</span>`, kind: 'num', cell: (/** @type {any} */ call) => html`<button class="small danger" onClick=${() => cancel(session, call)}>Cancel …</button>` },
  ];
  const empty = html`<${Empty} title="No call waits for its answer.">${session.state === 'dormant' ? 'A dormant session runs nothing; its next request wakes it.' : 'Calls that are answered at once are not seen here: look at Calls for the latest.'}<//>`;
  return html`<${Panel} title="Calls in flight" note=${rows.length > 0 ? plural(rows.length, 'call') : undefined}><${Table} label="Calls in flight" columns=${columns} rows=${rows} id=${(/** @type {any} */ call) => JSON.stringify(call.id)} empty=${empty} /><//>`;
}

/** @param {{ session: any }} props */
function Streams({ session }) {
  // An older node tells only how many streams are read.
  const told = session.reader_rows ?? (Array.isArray(session.readers) ? session.readers : null);
  const readers = new Map((told ?? []).map((/** @type {any} */ reader) => [reader.stream, reader]));
  const isRead = (/** @type {any} */ row) => (told ? readers.has(row.number) : session.state === 'awake' && row.open && (session.in_flight ?? []).find((/** @type {any} */ call) => call.stream === row.number)?.is_read !== false);
  const rows = session.streams ?? [];
  const columns = [
    { title: 'Stream', kind: 'short', cell: (/** @type {any} */ row) => html`${row.number}${row.number === 0 ? html` <span class="dim">(GET)</span>` : ''}` },
    { title: 'State', kind: 'short', cell: (/** @type {any} */ row) => (row.open ? html`<${Badge} kind="good">open<//>` : html`<${Badge}>complete<//>`) },
    { title: 'Last event', kind: 'num', cell: (/** @type {any} */ row) => count(row.last) },
    { title: 'Reader', cell: (/** @type {any} */ row) => {
      const reader = readers.get(row.number);
      if (!reader && !told && isRead(row)) return html`<span class="dim">not told</span>`;
      if (!reader) return row.open ? html`<span class="warn">none</span>` : html`<span class="dim">–</span>`;
      return html`<${Name} text=${reader.remote ?? 'connected'} /><span class="under">at ${count(reader.position)}${reader.lag > 0 ? html`, <span class="warn">${plural(reader.lag, 'event')} behind</span>` : ', up to date'}${reader.since ? html`, <${Ago} at=${reader.since} />` : ''}</span>`;
    } },
    { title: 'For', less: 1, cell: (/** @type {any} */ row) => (row.requests ?? []).map((/** @type {any} */ call) => html`<${Name} text=${call.tool ?? call.method} /> `) },
    may('operator') && { title: html`<span class="hidden-text">Actions</span>`, kind: 'num', cell: (/** @type {any} */ row) => isRead(row) && html`<button class="small" onClick=${() => detach(session, row.number)}>Detach reader …</button>` },
  ];
  const { kept } = session;
  const footer = kept && html`<span>${plural(kept.events, 'event')} kept for resumption, ${bytes(kept.bytes)}${kept.oldest ? html`; the oldest <${Ago} at=${kept.oldest} />` : ''}</span>`;
  return html`<${Panel} title="Streams" footer=${footer}><${Table} label="Streams" columns=${columns} rows=${rows} id=${(/** @type {any} */ row) => row.number}
    empty=${html`<${Empty} title="The store knows no stream of this session.">A stream begins with a GET, or with a call that takes longer than a moment.<//>`} /><//>`;
}

/** @param {any} party */
const party = party => (party ? html`<${Name} text=${party.name} /> <span class="dim"><${Name} text=${party.version} /></span>` : null);

/** @param {{ session: any }} props */
function Who({ session }) {
  const ttl = session.ttl_ms;
  return html`<${Panel} title="Who and where"><div class="inside"><${Facts} of=${[
    ['Principal', session.owner ? html`<a href=${to('limits', [], { principal: session.owner })}><${Name} text=${session.owner} /></a>` : html`<span class="dim">anonymous</span>`],
    ['Client', party(session.client) ?? html`<${Name} text=${session.client_name} />`],
    ['Address', session.remote && html`<${Name} text=${session.remote} mono />`],
    ['Transport', session.transport && html`<${Name} text=${session.transport} />`],
    ['Revision', session.revision && html`<${Name} text=${session.revision} />`],
    ['Capabilities', session.capabilities && html`<${Name} text=${Array.isArray(session.capabilities) ? session.capabilities.join(', ') : Object.keys(session.capabilities).join(', ')} />`],
    ['Backend', session.backend && html`<a href=${to('backends', [session.backend])}><${Name} text=${session.backend} /></a>`],
    ['Server behind', party(session.server)],
    ['Configured as', session.configured && html`<${Name} text=${session.configured} mono />`],
    ['Node', session.node && html`<${Name} text=${session.node} />`],
    ['Log level', session.log_level],
    ['Subscriptions', session.subscriptions?.length > 0 && html`<${Name} text=${session.subscriptions.join(', ')} />`],
    ['Created', html`<${Ago} at=${session.created} />`],
    ['Last used', html`<${Ago} at=${session.last_used} />`],
    [session.state === 'ended' ? 'Ended' : 'Expires', html`<${Ago} at=${session.state === 'ended' ? session.ended : session.deadline} none="never" />`],
    ['Lives unused', ttl === undefined || ttl === 'default' ? null : ttl === 'never' || ttl === 'infinity' ? 'for ever' : `for ${span(Number(ttl))}`],
    ['Key', html`<code class="any dim">${session.key}</code>`],
  ]} /></div><//>`;
}

/** @param {{ session: any }} props */
function Figures({ session }) {
  const figures = session.figures ?? {};
  const errors = figures.errors ?? session.errors;
  const limits = session.limits ?? [];
  return html`<${Panel} title="Figures and limits"><div class="inside"><${Facts} of=${[
    ['Requests', count(figures.requests ?? session.requests)],
    ['Errors', errors === undefined ? null : html`<span class=${errors * 20 > (figures.requests ?? session.requests ?? 0) ? 'bad' : ''}>${count(errors)}</span>`],
    ['Tool calls', figures.tool_calls === undefined ? null : count(figures.tool_calls)],
    ['Last tool', session.last_tool && html`<${Name} text=${session.last_tool} />`],
    ['Resources read', figures.resource_reads === undefined ? null : count(figures.resource_reads)],
    ['Latency', figures.latency_ms && `half within ${took(figures.latency_ms.p50)}, 99 of 100 within ${took(figures.latency_ms.p99)}, the longest ${took(figures.latency_ms.max)}`],
    ['Received', figures.bytes_in === undefined ? null : bytes(figures.bytes_in)],
    ['Sent', figures.bytes_out === undefined ? null : bytes(figures.bytes_out)],
    ['Memory', session.memory_bytes === undefined ? null : bytes(session.memory_bytes)],
    ...limits.map((/** @type {any} */ line) => [limitName(line), html`<${LimitLine} line=${line} />`]),
  ]} /></div><//>`;
}

/** @param {any} line */
export const limitName = line => ({ rate: 'Rate', at_once: 'At once', day: 'A day' })[String(line.what)] ?? String(line.what ?? 'limit').replaceAll('_', ' ');

/** @param {{ line: any }} props */
export const LimitLine = ({ line }) => html`<span class=${line.left === 0 ? 'bad' : ''}>${count(line.left)} left</span> of <${Name} text=${line.limit} mono />${line.waiting > 0 ? html`, <span class="warn">${count(line.waiting)} wait</span>` : ''}${line.reset ? html`<span class="under">until <${Ago} at=${line.reset * 1000} /></span>` : ''}`;

/** @param {{ session: any }} props */
function Notes({ session }) {
  const metadata = session.metadata ?? {};
  const names = Object.keys(metadata);
  return html`<${Panel} title="Notes of operators" note="Metadata of the session; handlers see it too." side=${may('operator') && session.state !== 'ended' && html`<button class="small" onClick=${() => settings(session)}>Change …</button>`}>
    <div class="inside">${names.length === 0 ? html`<p class="dim">No notes. A ticket number helps the next person on call.</p>` : html`<${Facts} of=${names.map(name => [name, html`<${Name} text=${typeof metadata[name] === 'string' ? metadata[name] : JSON.stringify(metadata[name])} mono />`])} />`}</div>
  <//>`;
}

/** @param {{ signs: string[] }} props */
function Signs({ signs }) {
  if (!signs || signs.length === 0) return null;
  return html`<section class="panel" aria-label="What looks wrong"><ul class="problems">${signs.map(sign => html`<li><div class="problem"><span class="sign" aria-label="warning">!</span><span class="any"><${Sentence} text=${sign} /></span></div></li>`)}</ul></section>`;
}

/** @param {{ id: string }} props */
export function Session({ id }) {
  const { data: session, error, again } = useGet(`sessions/${encodeURIComponent(id)}`);
  const isBusy = session?.state === 'awake';
  const calls = useGet('calls/recent?limit=500');
  const recent = (calls.data?.rows ?? []).filter((/** @type {any} */ row) => row.session !== undefined && row.session === session?.key).slice(0, MOST_CALLS);
  useEffect(() => {
    // News of this session come over the stream; while it is awake it is also asked now and then, since calls make no news.
    const stop = listen('session', row => (row.key === id || row.label === id) && again());
    const timer = isBusy ? setInterval(() => !document.hidden && again(), 5000) : undefined;
    return () => {
      stop();
      clearInterval(timer);
    };
  }, [id, again, isBusy]);
  if (error && !session) {
    return html`<div class="view"><${Head} title="Session" /><${Trouble} error=${error} again=${again} /><p><a href=${to('sessions')}>All sessions</a></p></div>`;
  }
  if (!session) return html`<div class="view"><${Head} title="Session" text="Asking the node …" /></div>`;
  const who = session.owner ? html`<${Name} text=${session.owner} />` : 'An anonymous caller';
  const text = html`${who} with <${Name} text=${session.client?.name ?? session.client_name ?? 'an unknown client'} />${session.backend ? html` at <${Name} text=${session.backend} />` : ''}${session.remote ? html`, from <${Name} text=${session.remote} />` : ''}; ${session.state === 'ended' ? html`ended <${Ago} at=${session.ended} />` : html`last used <${Ago} at=${session.last_used} />`}.`;
  const lives = session.state === 'awake' || session.state === 'dormant';
  return html`<div class="view">
    <${Head} title=${html`<span class="mono">${session.label}</span> <${StateBadge} row=${session} />`} text=${text}>
      ${may('operator') && lives && html`
        ${session.state === 'awake' && html`<button onClick=${() => sleep(session)}>Put to sleep …</button>`}
        <button onClick=${() => settings(session)}>Notes and lifetime …</button>
        <button class="danger" onClick=${() => revoke(session)}>Revoke …</button>`}
    <//>
    <${Trouble} error=${error} again=${again} />
    <${Signs} signs=${session.problems ?? session.signs ?? []} />
    <${InFlight} session=${session} />
    <${Life} session=${session} recent=${recent} />
    <div class="columns"><${Who} session=${session} /><div class="view"><${Figures} session=${session} /><${Notes} session=${session} /></div></div>
    <${Streams} session=${session} />
    <${Events} session=${session} />
    <${Panel} title="On the command line"><div class="inside view tight"><${Copy} text=${command('tenure', 'sessions', 'show', session.label)} /><${Copy} text=${command('tenure', 'sessions', 'export', session.label, '--output', `${session.label}.jsonl`)} /></div><//>
    ${session.record && html`<details class="panel"><summary class="inside">The record as the store has it, version ${session.version}</summary><div class="inside"><pre class="text">${pretty(session.record)}</pre></div></details>`}
  </div>`;
}
