// @ts-check
// Numbers, sizes, times and foreign texts, as people read them. Pure functions.

const whole = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });

/** @param {number | null | undefined} n */
export function count(n) {
  return n === null || n === undefined ? '–' : whole.format(n);
}

/** A rate or a measure, with as many digits as it deserves. @param {number | null | undefined} n */
export function amount(n) {
  if (n === null || n === undefined) return '–';
  const size = Math.abs(n);
  if (size >= 100) return whole.format(n);
  if (size >= 10) return n.toFixed(size % 1 === 0 ? 0 : 1);
  if (size === 0) return '0';
  return size < 0.05 ? '<0.1' : n.toFixed(1);
}

/** @param {number | null | undefined} n */
export function bytes(n) {
  if (n === null || n === undefined) return '–';
  if (n < 1024) return `${n} B`;
  const units = ['KiB', 'MiB', 'GiB', 'TiB'];
  let size = n / 1024;
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${size >= 100 ? size.toFixed(0) : size.toFixed(1)} ${units[unit]}`;
}

/** How long something took. @param {number | null | undefined} ms */
export function took(ms) {
  if (ms === null || ms === undefined) return '–';
  if (ms === 0) return '0 ms';
  if (ms < 1) return '<1 ms';
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1).replace(/\.0$/, '') : Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  return span(ms);
}

/** A span in its two largest units, as the commands print it. @param {number} ms */
export function span(ms) {
  const seconds = Math.floor(Math.max(0, ms) / 1000);
  const parts = [
    [Math.floor(seconds / 86_400), 'd'],
    [Math.floor(seconds / 3600) % 24, 'h'],
    [Math.floor(seconds / 60) % 60, 'm'],
    [seconds % 60, 's'],
  ];
  const first = parts.findIndex(([n]) => Number(n) > 0);
  if (first < 0) return '0s';
  return parts.slice(first, first + 2).filter(([n]) => Number(n) > 0).map(([n, unit]) => `${n}${unit}`).join(' ');
}

/** "3 min ago", or "in 3 min". @param {number} at @param {number} now */
export function ago(at, now) {
  const ms = now - at;
  const size = Math.abs(ms);
  if (size < 2000) return 'now';
  const [n, unit] =
    size < 60_000 ? [size / 1000, 's']
    : size < 3_600_000 ? [size / 60_000, 'min']
    : size < 48 * 3_600_000 ? [size / 3_600_000, 'h']
    : [size / 86_400_000, 'days'];
  const text = `${Math.floor(n)} ${unit}`;
  return ms >= 0 ? `${text} ago` : `in ${text}`;
}

/** @param {number} at */
export const exact = at => {
  const time = new Date(at);
  if (Number.isNaN(time.getTime())) return 'not a time';
  const two = (/** @type {number} */ n) => String(n).padStart(2, '0');
  const offset = -time.getTimezoneOffset();
  const zone = offset === 0 ? 'UTC' : `UTC${offset > 0 ? '+' : '-'}${two(Math.floor(Math.abs(offset) / 60))}:${two(Math.abs(offset) % 60)}`;
  const day = `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
  return `${day} ${clock(at)}.${String(time.getMilliseconds()).padStart(3, '0')} ${zone}`;
};

/** The time of the day. @param {number} at */
export function clock(at) {
  const time = new Date(at);
  return [time.getHours(), time.getMinutes(), time.getSeconds()].map(n => String(n).padStart(2, '0')).join(':');
}

/** @param {number} n @param {string} one @param {string} [many] */
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

// Control characters, changes of the writing direction and invisible characters.
const STEERS = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** A text of a client or a server in one line, with what would steer the display spelled out. @param {unknown} text */
export function visible(text) {
  return String(text).replace(STEERS, letter => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** A word of a command for a POSIX shell; `null` if it cannot be pasted safely. @param {string} word */
export function shellWord(word) {
  // A quote does not keep a word from being an option.
  if (word.search(STEERS) >= 0 || (word.startsWith('-') && !/^--[a-z-]+$/.test(word))) return null;
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** A command; `null` if one of its words cannot be pasted safely. @param {...string} words */
export function command(...words) {
  const quoted = words.map(shellWord);
  return quoted.includes(null) ? null : quoted.join(' ');
}

/** A request to the control socket of a node, whose file is in the folder of its store. @param {string} method @param {string} path @param {object} body */
export function curl(method, path, body) {
  const way = method === 'POST' ? [] : ['--request', method];
  return command('curl', '--unix-socket', 'control.sock', ...way, '--header', 'Content-Type: application/json', '--data', JSON.stringify(body), `http://control/api/v1/${path}`);
}

/** JSON as people read it. @param {unknown} value */
export const pretty = value => JSON.stringify(value, null, 2) ?? '';
