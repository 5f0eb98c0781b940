// @ts-check
// A session's life: a picture that explains at a glance why a client had trouble, and the same in words.

import { html, useEffect, useRef, useState } from '../vendor/preact.js';
import { clock, exact, plural, span, visible } from '../format.js';
import { now } from '../live.js';
import { Ago, Empty, Panel, Sentence } from './bits.js';
import { life, merge, verdict, word } from './life-model.js';

const LEFT = 66;
const RIGHT = 14;
const LANES = { life: 28, client: 56, calls: 78 };
const LINE = 22;

/** @param {{ session: any, recent?: any[] }} props `recent`: calls of this session that ended lately */
export function Life({ session, recent }) {
  const { state } = session;
  const reading = state !== 'awake' ? undefined : session.reader_rows?.length ?? (Array.isArray(session.readers) ? session.readers.length : session.readers);
  const begin = session.created === undefined ? [] : [{ at: session.created, what: 'created', text: 'the client began the session', ok: true }];
  const entries = merge(session.timeline ?? begin, { inFlight: session.in_flight, recent, ended: session.ended, end: session.end });
  const [on, setOn] = useState(/** @type {number | null} */ (null));
  if (entries.length === 0) {
    return html`<${Panel} title="Its life"><${Empty} title="Nothing is noted of its life yet.">Drops, resumes, sleeps, wakes and questions appear here as they happen.<//><//>`;
  }
  const told = verdict(entries, span, now(), reading);
  return html`<${Panel} title="Its life" note=${`${plural(entries.length, 'step')} since ${exact(entries[0].at)}`}>
    <div class="inside">
      ${told && html`<p class="verdict"><${Sentence} text=${told} /></p>`}
      <${Picture} entries=${entries} state=${state} reading=${reading} on=${on} setOn=${setOn} />
      <${Legend} entries=${entries} />
    </div>
    <${Story} entries=${entries} on=${on} setOn=${setOn} />
  <//>`;
}

/** @param {{ entries: any[], state: string, reading?: number, on: number | null, setOn: (on: number | null) => void }} props */
function Picture({ entries, state, reading, on, setOn }) {
  const place = useRef(/** @type {any} */ (null));
  const [width, setWidth] = useState(900);
  useEffect(() => {
    const watch = new ResizeObserver(() => setWidth(Math.max(320, place.current.clientWidth)));
    watch.observe(place.current);
    return () => watch.disconnect();
  }, []);
  const shown = life(entries, { now: now(), state, readers: reading });
  const x = (/** @type {number} */ part) => LEFT + part * (width - LEFT - RIGHT);
  const at = (/** @type {number} */ time) => x(shown.place(time));
  const lines = Math.max(1, ...shown.calls.map(call => call.line + 1));
  const bottom = LANES.calls + lines * LINE + 4;
  const wide = (/** @type {any} */ part) => Math.max(2, at(part.to) - at(part.from));
  nameCalls(shown.calls, at);
  const label = `The life of the session: ${entries.length} steps, told in words below.`;
  return html`<div ref=${place}><svg class="life" width=${width} height=${bottom + 20} viewBox=${`0 0 ${width} ${bottom + 20}`} role="img" aria-label=${label}>
    <text class="lane" x="0" y=${LANES.life + 4}>session</text>
    <text class="lane" x="0" y=${LANES.client + 4}>client</text>
    <text class="lane" x="0" y=${LANES.calls + 9}>calls</text>
    ${Object.values(LANES).slice(0, 2).map(y => html`<line class="grid" x1=${LEFT} x2=${width - RIGHT} y1=${y} y2=${y} />`)}
    ${shown.breaks.map(part => html`<g>
      <rect x=${x(part.from) + 3} width=${Math.max(0, x(part.to) - x(part.from) - 6)} y="9" height=${bottom - 8} fill="transparent"><title>${span(part.ms)} in which nothing was noted</title></rect>
      <line class="break" x1=${(x(part.from) + x(part.to)) / 2} x2=${(x(part.from) + x(part.to)) / 2} y1="10" y2=${bottom} />
      ${x(part.to) - x(part.from) > 26 && html`<text x=${(x(part.from) + x(part.to)) / 2} y="8" text-anchor="middle">${span(part.ms).split(' ')[0]}</text>`}
    </g>`)}
    ${shown.states.map(part => html`<rect class=${part.kind} x=${at(part.from)} width=${wide(part)} y=${LANES.life - 5} height="10" rx="3"><title>${part.kind} for ${span(part.to - part.from)}</title></rect>`)}
    ${shown.readers.map(part => html`<rect class=${part.kind} x=${at(part.from)} width=${wide(part)} y=${LANES.client - 4} height="8" rx="2"><title>${part.text} for ${span(part.to - part.from)}</title></rect>`)}
    ${shown.calls.map(call => html`<g>
      <rect class=${`call ${call.open ? 'is-open' : ''} ${call.bad ? 'is-bad' : ''}`} x=${at(call.from)} width=${wide(call)} y=${LANES.calls + call.line * LINE} height="8" rx="2"><title>${visible(call.title)}: ${call.open ? 'runs' : 'ran'} for ${span(call.to - call.from)}</title></rect>
      ${call.asked.map((/** @type {any} */ part) => html`<rect class="asked" x=${at(part.from)} width=${wide(part)} y=${LANES.calls + call.line * LINE + 2} height="4"><title>waits ${span(part.to - part.from)} for the client to answer a question</title></rect>`)}
      ${call.cuts.map((/** @type {number} */ cut) => html`<rect class="call is-bad" x=${at(cut) - 2} width="4" y=${LANES.calls + call.line * LINE - 2} height="12"><title>interrupted at ${clock(cut)}</title></rect>`)}
      ${call.hasRoom && html`<text class=${call.open || call.bad ? 'named' : ''} x=${Math.min(at(call.from), width - RIGHT - letters(call.title))} y=${LANES.calls + call.line * LINE + 18}>${visible(call.title).slice(0, 24)}</text>`}
    </g>`)}
    ${shown.marks.map(mark => mark.lane !== 'calls' && html`<circle class=${`mark ${mark.kind && `is-${mark.kind}`} ${on === mark.entry ? 'on' : ''}`} cx=${x(mark.at)} cy=${LANES[/** @type {'life' | 'client'} */ (mark.lane)]} r=${on === mark.entry ? 6.5 : 4.5}
      onMouseEnter=${() => setOn(mark.entry)} onMouseLeave=${() => setOn(null)}><title>${clock(entries[mark.entry].at)} ${visible(entries[mark.entry].text ?? word(entries[mark.entry]).name)}</title></circle>`)}
    ${on !== null && html`<line class="on" x1=${at(entries[on].at)} x2=${at(entries[on].at)} y1="12" y2=${bottom} />`}
    ${!shown.over && html`<line class="now" x1=${width - RIGHT} x2=${width - RIGHT} y1="12" y2=${bottom} />`}
    <${Ticks} ticks=${shown.ticks} x=${at} y=${bottom + 15} end=${shown.end} over=${shown.over} width=${width} />
  </svg></div>`;
}

/** The room of a name in pixels, roughly. @param {string} title */
const letters = title => Math.min(24, title.length) * 6.2;

/** Which calls can be named below their bars without writing over each other. @param {any[]} calls @param {(time: number) => number} at */
function nameCalls(calls, at) {
  /** @type {number[]} */
  const ends = [];
  for (const call of calls) {
    const from = at(call.from);
    call.hasRoom = from > (ends[call.line] ?? 0);
    if (call.hasRoom) ends[call.line] = from + letters(call.title) + 8;
  }
}

/** Times below the picture, as many as have room. @param {{ ticks: number[], x: (time: number) => number, y: number, end: number, over: boolean, width: number }} props */
function Ticks({ ticks, x, y, end, over, width }) {
  /** @type {number[]} */
  const shown = [];
  const last = over ? width : width - RIGHT - 34;
  for (const time of ticks) {
    const previous = shown[shown.length - 1];
    // The first one begins at its place, the others have it in their middle.
    const room = shown.length === 1 ? 84 : 62;
    if (time !== end && x(time) < last - 46 && (previous === undefined || x(time) - x(previous) > room)) shown.push(time);
  }
  return html`${shown.map(time => html`<text x=${x(time)} y=${y} text-anchor=${x(time) < LEFT + 20 ? 'start' : 'middle'}>${clock(time)}</text>`)}
    <text x=${width - RIGHT} y=${y} text-anchor="end">${over ? clock(end) : 'now'}</text>`;
}

/** @param {{ entries: any[] }} props */
function Legend({ entries }) {
  const has = (/** @type {string[]} */ ...words) => entries.some(entry => words.includes(entry.what));
  return html`<p class="legend">
    <span><i class="swatch is-accent"></i>awake, read, running</span>
    ${has('slept', 'woken') && html`<span><i class="swatch is-dim"></i>dormant</span>`}
    ${has('asked') && html`<span class="warn">■ waits for the client to answer</span>`}
    ${has('dropped', 'detached') && html`<span class="warn">┅ the client does not read</span>`}
    ${has('interrupted', 'failed', 'gap', 'resumed_with_gap', 'not_answered') && html`<span class="bad">■ failed, interrupted, a gap</span>`}
    <span>Quiet times are drawn short; their length stands above.</span>
  </p>`;
}

/** @param {{ entries: any[], on: number | null, setOn: (on: number | null) => void }} props */
function Story({ entries, on, setOn }) {
  // The newest first: that is why one looks.
  const rows = entries.map((entry, index) => ({ entry, index })).reverse();
  return html`<ol class="story" aria-label="Its life in words, the newest first" tabindex="0">
    ${rows.map(({ entry, index }) => html`<li key=${`${entry.at}-${index}`} class=${`is-${word(entry).tone} ${on === index ? 'on' : ''}`} onMouseEnter=${() => setOn(index)} onMouseLeave=${() => setOn(null)}>
      <span class="dim"><${Ago} at=${entry.at} /></span><span class="what">${visible(word(entry).name)}</span><span class="any"><${Sentence} text=${entry.text ?? ''} />${entry.times > 1 ? html` <b>${entry.times} times</b>` : ''}</span>
    </li>`)}
  </ol>`;
}
