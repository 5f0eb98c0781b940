// @ts-check
// A table: a part of its rows at first, links that keys walk over, and columns that go when there is less room.

import { html, useState } from '../vendor/preact.js';
import { count } from '../format.js';
import { go } from '../route.js';

/**
 * @typedef {object} Column
 * @property {any} title
 * @property {(row: any) => any} cell
 * @property {'num' | 'short' | 'wide' | ''} [kind]
 * @property {1 | 2 | 3} [less] goes first (3), then (2), last (1) when there is less room
 * @property {string} [hint]
 */

// Rows that are drawn at first. A browser draws a few hundred within a frame, and no person reads ten thousand.
const STEP = 100;

/** @param {string | undefined} kind @param {number | undefined} less */
const classes = (kind, less) => [kind, less && `w${less}`].filter(Boolean).join(' ') || undefined;

/**
 * @param {{ columns: (Column | null | false)[], rows: any[], id: (row: any, place: number) => any, href?: (row: any) => string | undefined, label: string, empty?: any,
 *   stale?: boolean, tight?: boolean }} props
 */
export function Table({ columns, rows, id, href, label, empty, stale, tight }) {
  const [most, setMost] = useState(STEP);
  const shown = /** @type {Column[]} */ (columns.filter(Boolean));
  if (rows.length === 0) return empty ?? null;
  /** @param {any} event @param {string} address */
  const follow = (event, address) => {
    // A click into a row is one on its link, unless it was meant for something else in it or marked text.
    if (event.defaultPrevented || event.target.closest('a, button, input, label, summary') || String(getSelection())) return;
    go(address);
  };
  return html`<div class=${`table-room ${stale ? 'stale' : ''} ${tight ? 'tail' : ''}`}>
    <table aria-label=${label}>
      <thead><tr>${shown.map(column => html`<th scope="col" class=${classes(column.kind === 'num' ? 'num' : '', column.less)} title=${column.hint}>${column.title}</th>`)}</tr></thead>
      <tbody>
        ${rows.slice(0, most).map((row, place) => {
          const address = href?.(row);
          return html`<tr key=${id(row, place)} class=${address ? 'goes' : undefined} onClick=${address && ((/** @type {any} */ event) => follow(event, address))}>
            ${shown.map(column => html`<td class=${classes(column.kind, column.less)}>${column.cell(row)}</td>`)}
          </tr>`;
        })}
      </tbody>
    </table>
    ${rows.length > most && html`<div class="more"><span class="dim">${count(most)} of ${count(rows.length)} rows are shown.</span><button class="small" onClick=${() => setMost(most + STEP * 2)}>Show ${count(Math.min(STEP * 2, rows.length - most))} more</button></div>`}
  </div>`;
}
