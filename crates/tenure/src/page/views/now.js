// @ts-check
// The first view: what is wrong, in words, and then the figures.

import { html, useEffect, useMemo, useRef, useState } from '../vendor/preact.js';
import { get, round, useGet } from '../api.js';
import { amount, bytes, count, plural, span, took } from '../format.js';
import { now, overview, standing } from '../live.js';
import { Ago, Badge, Bar, Facts, Head, Name, Panel, Segments, Sentence, Trouble } from '../parts/bits.js';
import { Chart } from '../parts/chart.js';
import { Spark } from '../parts/spark.js';
import { to } from '../route.js';
import { useStore } from '../store.js';
import { BackendTable } from './backends.js';
import { NodeTable } from './nodes.js';

const SERIES = ['calls', 'errors', 'p50_ms', 'p99_ms', 'sessions_awake', 'refused', 'resumes'];
const SECONDS = 600;

/** Where a problem is looked at. @param {any} about */
export function problemAddress(about) {
  if (!about) return undefined;
  /** @type {Record<string, () => string>} */
  const places = {
    session: () => to('session', [about.key ?? about.label]),
    backend: () => to('backends', [about.key ?? about.label]),
    node: () => to('nodes'),
    store: () => to('limits'),
    loop: () => to('config'),
    limit: () => to('limits'),
    call: () => to('calls', ['running'], { find: about.label }),
  };
  return places[about.kind]?.();
}

/** @param {{ problem: any }} props */
function Problem({ problem }) {
  const { severity, text, about, since } = problem;
  const inner = html`<span class="sign" aria-label=${severity === 'error' ? 'error' : 'warning'}>${severity === 'error' ? '✕' : '!'}</span>
    <span class="any"><${Sentence} text=${text} />${since ? html` <span class="since">since <${Ago} at=${since} /></span>` : null}</span>
    <span class="about">${about?.label ? html`<${Name} text=${about.label} mono /> ` : ''}${about ? '→' : ''}</span>`;
  const address = problemAddress(about);
  const kind = `problem ${severity === 'error' ? 'is-error' : ''}`;
  return html`<li>${address ? html`<a class=${kind} href=${address}>${inner}</a>` : html`<div class=${kind}>${inner}</div>`}</li>`;
}

const FEW = 8;

/** @param {{ problems: any[] }} props */
function Problems({ problems }) {
  const [all, setAll] = useState(false);
  if (problems.length === 0) {
    return html`<section class="panel"><p class="quiet">Every session, backend and loop that this node knows of is well.</p></section>`;
  }
  const shown = all ? problems : problems.slice(0, FEW);
  return html`<section class="panel" aria-label="What is wrong">
    <ul class="problems">${shown.map(problem => html`<${Problem} key=${`${problem.about?.key ?? ''}${problem.text}`} problem=${problem} />`)}</ul>
    ${problems.length > shown.length && html`<div class="more"><span class="dim">The worst ${shown.length} of ${problems.length} are shown.</span><button class="small" onClick=${() => setAll(true)}>Show all</button></div>`}
  </section>`;
}

/** The last ten minutes, asked for once and then kept up to date by the overview of each second. */
function useMinutes() {
  const [series, setSeries] = useState(/** @type {any} */ (null));
  const news = useStore(overview);
  const turn = useStore(round);
  const last = useRef(0);
  useEffect(() => {
    const controller = new AbortController();
    get('history?span=10m', controller.signal)
      .then(history => {
        last.current = history.from + history.step_ms * (history.series.calls?.length ?? 0);
        setSeries({ ...history.series, until: last.current });
      })
      .catch(() => {});
    return () => controller.abort();
  }, [turn]);
  useEffect(() => {
    if (!news || !series || news.time <= last.current) return;
    last.current = news.time;
    const { rates = {}, sessions } = news;
    const point = { calls: rates.calls_per_s, errors: rates.errors_per_s, p50_ms: rates.p50_ms, p99_ms: rates.p99_ms, sessions_awake: sessions.awake, refused: rates.refused_per_s, resumes: rates.resumes_per_s };
    const next = Object.fromEntries(SERIES.map(name => [name, [...(series[name] ?? []), /** @type {any} */ (point)[name] ?? null].slice(-SECONDS)]));
    setSeries({ ...next, until: news.time });
  }, [news]);
  return series;
}

/** @param {{ name: string, value: any, unit?: string, values?: any[], note?: any, href?: string, bad?: boolean }} props */
const Tile = ({ name, value, unit, values, note, href, bad }) => html`<a class="tile" href=${href}>
  <span class="name">${name}</span>
  <span class=${`value ${bad ? 'bad' : ''}`}>${value}${unit && html`<small>${unit}</small>`}</span>
  <${Spark} values=${values} bad=${bad} label=${`${name} in the last ten minutes`} />
  <span class="note">${note}</span>
</a>`;

/** @param {Record<string, number> | undefined} of @param {number} most */
export function largest(of, most) {
  const entries = Object.entries(of ?? {}).filter(([, n]) => n > 0).sort((a, b) => b[1] - a[1]);
  return entries.slice(0, most).map(([name, n]) => `${name.replaceAll('_', ' ')} ${count(n)}`).join(', ');
}

/** @param {{ news: any }} props */
function Tiles({ news }) {
  const series = useMinutes();
  const { rates = {}, sessions, calls, streams, resumes, refused } = news;
  const share = rates.calls_per_s > 0 ? (rates.errors_per_s / rates.calls_per_s) * 100 : 0;
  return html`<div class="tiles">
    <${Tile} name="Calls" value=${amount(rates.calls_per_s)} unit="/s" values=${series?.calls} href=${to('calls')} note=${`${count(calls.in_flight)} in flight, ${count(calls.waiting_for_client)} wait for clients`} />
    <${Tile} name="Errors" value=${amount(rates.errors_per_s)} unit="/s" values=${series?.errors} href=${to('calls', ['slowest'])} bad=${share >= 5} note=${rates.errors_per_s > 0 ? `${amount(share)} % of calls` : 'no call failed'} />
    <${Tile} name="Latency, 99 of 100" value=${took(rates.p99_ms)} values=${series?.p99_ms} href=${to('calls', ['slowest'])} note=${`half within ${took(rates.p50_ms)}`} />
    <${Tile} name="Sessions awake" value=${count(sessions.awake)} values=${series?.sessions_awake} href=${to('sessions', [], { state: 'awake' })} note=${`${count(sessions.dormant)} dormant, ${plural(streams.readers, 'stream')} read`} />
    <${Tile} name="Resumes" value=${amount(rates.resumes_per_s)} unit="/s" values=${series?.resumes} href=${to('sessions')} note=${resumes ? `${count(resumes.replayed)} replayed, ${plural(resumes.gap ?? 0, 'gap')}, ${count(resumes.foreign)} foreign` : ''} />
    <${Tile} name="Refused" value=${amount(rates.refused_per_s)} unit="/s" values=${series?.refused} href=${to('limits')} note=${largest(refused, 2) || 'no request was refused'} />
  </div>`;
}

/** @param {{ news: any }} props */
function Charts({ news }) {
  const [spanText, setSpan] = useState('10m');
  const { data, error, again } = useGet(`history?span=${spanText}`, spanText === '10m' ? 10_000 : 60_000);
  const series = data?.series ?? {};
  const length = series.calls?.length ?? 0;
  const times = useMemo(() => Array.from({ length }, (_, index) => data.from + index * data.step_ms), [data]);
  const rates = useMemo(() => [
    { name: 'calls/s', colour: /** @type {'accent'} */ ('accent'), values: series.calls ?? [], fill: true },
    { name: 'errors/s', colour: /** @type {'bad'} */ ('bad'), values: series.errors ?? [] },
  ], [data]);
  const latency = useMemo(() => [
    { name: 'p99', colour: /** @type {'accent'} */ ('accent'), values: series.p99_ms ?? [], fill: true },
    { name: 'p50', colour: /** @type {'dim'} */ ('dim'), values: series.p50_ms ?? [] },
  ], [data]);
  const side = html`<${Segments} label="Span" of=${[['10m', '10 minutes'], ['24h', '24 hours']]} value=${spanText} choose=${setSpan} />`;
  return html`<${Panel} title="Calls and latency" side=${side}>
    <div class="inside">
      <${Trouble} error=${error} again=${again} />
      ${length > 1 && html`<div class="columns">
        <${Chart} times=${times} lines=${rates} show=${amount} label="Calls and errors per second" />
        <${Chart} times=${times} lines=${latency} show=${took} label="Latency" />
      </div>`}
      ${length <= 1 && !error && html`<p class="dim">Figures appear here within a few seconds of the first call.</p>`}
    </div>
  <//>`;
}

/** @param {{ news: any }} props */
function Machine({ news }) {
  const { process, store, streams, node, calls } = news;
  const state = store?.state ?? '';
  const isWell = state === 'ok' || state === 'well' || state === 'ready';
  return html`<div class="columns">
    <${Panel} title="Process"><div class="inside"><${Facts} of=${[
      ['Memory', bytes(process?.rss_bytes)],
      ['Loop lag', html`<span class=${process?.loop_lag_ms >= 100 ? 'bad' : ''}>${took(process?.loop_lag_ms)}</span>`],
      ['CPU', process?.cpu_s === undefined ? null : `${span(process.cpu_s * 1000)} since the start`],
      ['Descriptors', count(process?.descriptors)],
      ['Started', html`<${Ago} at=${node.started} />`],
      ['Oldest call', calls.oldest_started ? html`<a href=${to('calls', ['running'])}><${Ago} at=${calls.oldest_started} /></a>` : null],
      ['Streams', `${count(streams.open)} open, ${count(streams.readers)} with a reader`],
    ]} /></div><//>
    <${Panel} title="Store and resumes"><div class="inside"><${Facts} of=${[
      ['Store', html`<${Name} text=${store?.kind} /> <${Badge} kind=${isWell ? 'good' : 'bad'}>${state}<//>`],
      ['Room', store?.free_bytes === undefined ? null : bytes(store.free_bytes)],
      ['Not yet stored', store?.unstored_bytes === undefined ? null : bytes(store.unstored_bytes)],
      ['Resumes', news.resumes && `${count(news.resumes.replayed)} replayed, ${count(news.resumes.fresh)} fresh, ${count(news.resumes.gap)} with a gap, ${count(news.resumes.foreign)} of foreign ids`],
      ['Refused', largest(news.refused, 6) || 'no request'],
      ['Sessions', `${count(news.sessions.total)} known, ${count(news.sessions.ended_recent)} ended lately`],
    ]} /></div><//>
  </div>`;
}

export function Now() {
  const news = useStore(overview);
  const connection = useStore(standing);
  if (!news) return html`<div class="view"><${Head} title="Now" text=${connection.state === 'lost' ? 'The node cannot be reached.' : 'Asking the node …'} /></div>`;
  const problems = news.problems ?? [];
  const errors = problems.filter((/** @type {any} */ problem) => problem.severity === 'error').length;
  const title = problems.length === 0 ? 'Nothing is wrong' : problems.length === 1 ? 'One thing is wrong' : `${count(problems.length)} things are wrong`;
  const { node } = news;
  const state = node.ready ? `${node.label} serves` : `${node.label} is ${String(node.state).replaceAll('_', ' ')}${node.why?.length && problems.length === 0 ? `: ${node.why.join('; ')}` : ''}`;
  const ended = news.sessions.waiting_for_client > 0 ? `, ${plural(news.sessions.waiting_for_client, 'session waits for its client', 'sessions wait for their clients')}` : '';
  return html`<div class="view">
    <${Head} title=${title} text=${html`<${Name} text=${state} />, for ${span(now() - node.started)}${errors > 0 ? `; ${plural(errors, 'error')}, ${plural(problems.length - errors, 'warning')}` : ''}${ended}.`} />
    <${Problems} problems=${problems} />
    <${Tiles} news=${news} />
    <${Charts} news=${news} />
    <${Panel} title="Backends" side=${html`<a class="button" href=${to('backends')}>All about them</a>`}><${BackendTable} rows=${news.backends ?? []} /><//>
    ${news.nodes?.length > 0 && html`<${Panel} title="Nodes" side=${html`<a class="button" href=${to('nodes')}>All about them</a>`}><${NodeTable} rows=${news.nodes} /><//>`}
    <${Machine} news=${news} />
  </div>`;
}
