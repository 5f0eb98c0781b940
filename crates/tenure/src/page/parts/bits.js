// @ts-check
// The small parts: badges, empty lists, errors, names of others, times, commands to copy.
//
// Names of tools, clients and principals are chosen by strangers. They become text nodes, never markup, and characters that would steer
// the display are spelled out.

import { html, useEffect, useRef, useState } from '../vendor/preact.js';
import { ago, exact, visible } from '../format.js';
import { now } from '../live.js';

/** A name that somebody else chose. @param {{ text: unknown, mono?: boolean }} props */
export function Name({ text, mono }) {
  if (text === undefined || text === null || text === '') return html`<span class="dim">–</span>`;
  return html`<bdi class=${mono ? 'mono any' : 'any'}>${visible(text)}</bdi>`;
}

/** @param {{ kind?: '' | 'good' | 'bad' | 'warn', children?: any, title?: string }} props */
export const Badge = ({ kind = '', children, title }) => html`<span class=${`badge ${kind && `is-${kind}`}`} title=${title}>${children}</span>`;

/** @type {Set<() => void>} */
const tellers = new Set();
setInterval(() => {
  if (!document.hidden) for (const tell of tellers) tell();
}, 1000);

/** "3 min ago", kept up to date without drawing the view again. @param {{ at?: number | null, none?: string }} props */
export function Ago({ at, none = '–' }) {
  const place = useRef(/** @type {any} */ (null));
  useEffect(() => {
    if (at === undefined || at === null) return undefined;
    const tell = () => {
      const text = ago(at, now());
      if (place.current && place.current.textContent !== text) place.current.textContent = text;
    };
    tell();
    tellers.add(tell);
    return () => {
      tellers.delete(tell);
    };
  }, [at]);
  if (at === undefined || at === null) return html`<span class="dim">${none}</span>`;
  // The text is set by the effect alone: with a text of its own, a later drawing would put the old one back.
  return html`<time class="nowrap" ref=${place} dateTime=${Number.isNaN(new Date(at).getTime()) ? undefined : new Date(at).toISOString()} title=${exact(at)}></time>`;
}

/** A list without rows: why, and what to do. @param {{ title: string, children?: any }} props */
export const Empty = ({ title, children }) => html`<div class="empty"><b>${title}</b>${children}</div>`;

/** An error of the API, with its hint. @param {{ error: any, again?: () => void }} props */
export function Trouble({ error, again }) {
  if (!error) return null;
  return html`<div class="trouble" role="alert">
    <div><strong><${Sentence} text=${error.message} /></strong>${error.hint && html`<div class="hint">Hint: <${Sentence} text=${error.hint} plain /></div>`}</div>
    ${again && html`<button class="small" onClick=${again}>Try again</button>`}
  </div>`;
}

/**
 * A sentence of the node: what stands between backticks is shown as code.
 * @param {{ text: unknown, plain?: boolean }} props
 */
export function Sentence({ text, plain }) {
  const parts = visible(text ?? '').split('`');
  // Without its closing one a backtick is a letter like others.
  if (parts.length % 2 === 0) return html`<bdi>${parts.join('`')}</bdi>`;
  const first = plain ? parts[0] : parts[0].charAt(0).toUpperCase() + parts[0].slice(1);
  return html`<bdi>${[first, ...parts.slice(1)].map((part, index) => (index % 2 === 1 ? html`<code class="any">${part}</code>` : part))}</bdi>`;
}

/** @param {{ text: string | null }} props */
export function Copy({ text }) {
  const [done, setDone] = useState('');
  if (text === null) return html`<p class="hint">There is no command to copy: the name has characters that would steer a terminal.</p>`;
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setDone('Copied');
    } catch {
      setDone('Select it and copy');
    }
    setTimeout(() => setDone(''), 2500);
  };
  return html`<div class="copy"><code>${text}</code><button type="button" class="small" onClick=${copy} aria-live="polite">${done || 'Copy'}</button></div>`;
}

/** @param {{ title: any, note?: any, side?: any, children?: any, footer?: any, label?: string }} props */
export const Panel = ({ title, note, side, children, footer, label }) => html`<section class="panel" aria-label=${label ?? (typeof title === 'string' ? title : undefined)}>
  <header><div><h2>${title}</h2>${note && html`<div class="dim">${note}</div>`}</div>${side && html`<div class="actions">${side}</div>`}</header>
  ${children}${footer && html`<footer>${footer}</footer>`}
</section>`;

/** Pairs of a name and a value; a pair without a value is left out. @param {{ of: [string, any][] }} props */
export const Facts = ({ of }) => html`<dl class="facts">${of.filter(([, value]) => value !== undefined && value !== null && value !== '' && value !== false).map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`;

/** @param {{ title: string, text?: any, children?: any }} props */
export const Head = ({ title, text, children }) => html`<div class="head"><div><h1 tabindex="-1">${title}</h1>${text && html`<p>${text}</p>`}</div>${children && html`<div class="actions">${children}</div>`}</div>`;

/** How much of a bound is in use. @param {{ used: number, total?: number | null, plain?: boolean }} props `plain` if a full bar is good */
export function Bar({ used, total, plain }) {
  if (!total) return null;
  const part = Math.min(1, used / total);
  const kind = plain ? '' : part >= 0.95 ? 'is-bad' : part >= 0.8 ? 'is-warn' : '';
  return html`<div class=${`bar ${kind}`} role="img" aria-label=${`${Math.round(part * 100)} %`}><i style=${{ width: `${(part * 100).toFixed(1)}%` }}></i></div>`;
}

/** @param {{ of: [string, string][], value: string, choose: (value: string) => void, label: string }} props */
export const Segments = ({ of, value, choose, label }) => html`<div class="segments" role="group" aria-label=${label}>
  ${of.map(([key, text]) => html`<button type="button" aria-pressed=${String(value === key)} onClick=${() => choose(key)}>${text}</button>`)}
</div>`;
