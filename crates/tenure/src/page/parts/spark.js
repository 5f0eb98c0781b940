// @ts-check
// The last ten minutes of a figure, as a line without axes.

import { html } from '../vendor/preact.js';

const POINTS = 120;

/** Fewer points, each the mean of some; `null` where nothing is known. @param {(number | null)[]} values @param {number} most */
export function thin(values, most) {
  if (values.length <= most) return values;
  const step = values.length / most;
  return Array.from({ length: most }, (_, index) => {
    const some = values.slice(Math.floor(index * step), Math.floor((index + 1) * step)).filter(value => value !== null);
    return some.length === 0 ? null : some.reduce((sum, value) => Number(sum) + Number(value), 0) / some.length;
  });
}

/** @param {{ values?: (number | null)[], bad?: boolean, label: string }} props */
export function Spark({ values, bad, label }) {
  const points = thin(values ?? [], POINTS);
  const top = Math.max(1e-9, ...points.map(value => value ?? 0));
  const x = (/** @type {number} */ index) => ((index / Math.max(1, points.length - 1)) * 100).toFixed(2);
  const y = (/** @type {number} */ value) => (25 - (value / top) * 23).toFixed(2);
  // A line for each run of known values, so that a gap stays a gap.
  /** @type {[number, number][][]} */
  const runs = [];
  points.forEach((value, index) => {
    if (value === null) return;
    const last = runs.at(-1);
    if (last && last[last.length - 1][0] === index - 1) last.push([index, value]);
    else runs.push([[index, value]]);
  });
  const line = runs.map(run => `M${run.map(([index, value]) => `${x(index)} ${y(value)}`).join('L')}`).join('');
  const area = runs.map(run => `M${x(run[0][0])} 26L${run.map(([index, value]) => `${x(index)} ${y(value)}`).join('L')}L${x(run[run.length - 1][0])} 26Z`).join('');
  return html`<svg class=${`spark ${bad ? 'is-bad' : ''}`} viewBox="0 0 100 26" preserveAspectRatio="none" role="img" aria-label=${label}>
    <path class="area" d=${area} /><path class="line" d=${line} />
  </svg>`;
}
