// @ts-check
// A chart over time, with uPlot. Its colours are those of the page, and change with them.

import { html, useEffect, useRef, useState } from '../vendor/preact.js';
import { clock } from '../format.js';

/** @typedef {{ name: string, colour: 'accent' | 'bad' | 'dim', values: (number | null)[], fill?: boolean }} Line */

/** What a colour of the style sheet is at the moment; a canvas knows no variables. @param {string} name */
function colour(name) {
  const probe = document.createElement('i');
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

/** @param {string} rgb @param {number} part */
const faint = (rgb, part) => rgb.replace(/^rgb\((.*)\)$/, `rgba($1, ${part})`);

/** @param {{ times: number[], lines: Line[], show: (value: number | null | undefined) => string, label: string }} props times in ms */
export function Chart({ times, lines, show, label }) {
  const place = useRef(/** @type {any} */ (null));
  const plot = useRef(/** @type {any} */ (null));
  const [theme, setTheme] = useState(0);
  const [at, setAt] = useState(/** @type {number | null} */ (null));
  const data = [times.map(time => time / 1000), ...lines.map(line => line.values)];
  const newest = useRef(data);
  newest.current = data;
  useEffect(() => {
    const change = () => setTheme(n => n + 1);
    addEventListener('theme', change);
    return () => removeEventListener('theme', change);
  }, []);
  useEffect(() => {
    const element = place.current;
    const [dim, line] = [colour('dim'), colour('line')];
    const axis = { stroke: dim, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: '11px system-ui, sans-serif' };
    plot.current = new /** @type {any} */ (globalThis).uPlot(
      {
        width: element.clientWidth,
        height: element.clientHeight,
        legend: { show: false },
        padding: [6, 4, 0, 0],
        cursor: { y: false, drag: { setScale: false, x: false }, points: { size: 6 } },
        scales: { y: { range: (/** @type {any} */ _, /** @type {number} */ low, /** @type {number} */ high) => [Math.min(0, low ?? 0), Math.max(1, (high ?? 1) * 1.12)] } },
        series: [{}, ...lines.map(({ name, colour: of, fill }) => ({ label: name, stroke: colour(of), width: 1.4, points: { show: false }, fill: fill ? faint(colour(of), 0.1) : undefined }))],
        axes: [
          { ...axis, grid: { show: false }, space: 90, size: 26, values: (/** @type {any} */ _, /** @type {number[]} */ all) => all.map(second => (all[all.length - 1] - all[0] < 240 ? clock(second * 1000) : clock(second * 1000).slice(0, 5))) },
          { ...axis, size: 52, space: 34, values: (/** @type {any} */ _, /** @type {number[]} */ all) => all.map(value => show(value)) },
        ],
        hooks: { setCursor: [(/** @type {any} */ of) => setAt(of.cursor.idx ?? null)] },
      },
      newest.current,
      element,
    );
    const watch = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height: element.clientHeight }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      plot.current.destroy();
      plot.current = null;
    };
  }, [theme, lines.length]);
  useEffect(() => plot.current?.setData(data), [times, lines]);
  const index = at === null || at >= times.length ? times.length - 1 : at;
  return html`<figure>
    <div class="chart" ref=${place} role="img" aria-label=${label}></div>
    <figcaption class="legend">
      ${lines.map(line => html`<span><i class=${`swatch is-${line.colour}`}></i>${line.name} <b>${show(line.values[index])}</b></span>`)}
      ${times.length > 0 && html`<span>${at === null ? 'at' : 'at'} ${clock(times[index])}</span>`}
    </figcaption>
  </figure>`;
}
