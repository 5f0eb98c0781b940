// @ts-check
// The event log of a session, a page at a time. Bodies need a right of their own, and are asked for one page at a time.

import { html, useState } from '../vendor/preact.js';
import { may, useGet, withQuery } from '../api.js';
import { bytes, count } from '../format.js';
import { Ago, Empty, Name, Panel, Segments, Trouble } from '../parts/bits.js';
import { Table } from '../parts/table.js';

const PAGE = 20;

/** @param {any} body */
function text(body) {
  if (typeof body !== 'string') return JSON.stringify(body, null, 2);
  try {
    return JSON.stringify(JSON.parse(body), null, 2);
  } catch {
    return body;
  }
}

/** @param {{ session: any }} props */
export function Events({ session }) {
  const streams = (session.streams ?? []).map((/** @type {any} */ row) => row.number);
  const [stream, setStream] = useState(/** @type {number | null} */ (null));
  const [after, setAfter] = useState(/** @type {string[]} */ ([]));
  const [bodies, setBodies] = useState(false);
  const chosen = stream ?? streams[0] ?? 0;
  const path = withQuery(`sessions/${encodeURIComponent(session.key)}/events`, { stream: chosen, after: after[after.length - 1], limit: PAGE, bodies });
  const { data, error, stale, again } = useGet(streams.length > 0 ? path : null);
  if (streams.length === 0) return null;
  const rows = data?.rows ?? [];
  const columns = [
    { title: 'Position', kind: 'short', cell: (/** @type {any} */ row) => count(row.position) },
    { title: 'At', kind: 'short', cell: (/** @type {any} */ row) => html`<${Ago} at=${row.at} />` },
    { title: 'What', cell: (/** @type {any} */ row) => html`${row.mark ? html`<span class=${row.mark === 'gap' ? 'bad' : 'dim'}>${row.mark === 'gap' ? 'a gap: messages are missing here' : 'the end of the stream'}</span>` : html`<${Name} text=${row.method ?? 'message'} />`}${row.body !== undefined && html`<details><summary class="dim">body</summary><pre class="text">${text(row.body)}</pre></details>`}` },
    { title: 'Id', less: 1, cell: (/** @type {any} */ row) => html`<${Name} text=${row.id === undefined ? '' : JSON.stringify(row.id)} mono />` },
    { title: 'Size', kind: 'num', cell: (/** @type {any} */ row) => bytes(row.bytes) },
  ];
  const choose = (/** @type {string} */ value) => {
    setStream(Number(value));
    setAfter([]);
  };
  const some = streams.slice(0, 12);
  const side = html`${some.length > 1 && html`<${Segments} label="Stream" of=${some.map((/** @type {number} */ n) => [String(n), `stream ${n}`])} value=${String(chosen)} choose=${choose} />`}
    ${may('payloads') && html`<button class="small" aria-pressed=${String(bodies)} onClick=${() => setBodies(!bodies)}>Show bodies</button>`}`;
  return html`<${Panel} title="Event log" note="What was sent to the client and is kept for its resumption." side=${side}>
    <${Trouble} error=${error} again=${again} />
    ${data && html`<${Table} label="Events" columns=${columns} rows=${rows} id=${(/** @type {any} */ row) => row.position} stale=${stale} empty=${html`<${Empty} title="No event of this stream is kept.">Events are forgotten when the client has certainly read them, or when there are too many.<//>`} />`}
    ${(after.length > 0 || data?.next) && html`<div class="more"><span class="dim">${rows.length} events</span><span class="actions">
      <button class="small" disabled=${after.length === 0} onClick=${() => setAfter(after.slice(0, -1))}>Earlier</button>
      <button class="small" disabled=${!data?.next} onClick=${() => setAfter([...after, data.next])}>Later</button></span></div>`}
  <//>`;
}
