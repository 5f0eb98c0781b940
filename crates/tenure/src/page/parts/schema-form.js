// @ts-check
// A form from the JSON Schema of a tool. What it cannot draw is written as JSON.

import { html } from '../vendor/preact.js';
import { visible } from '../format.js';
import { Name } from './bits.js';
import { kind } from './schema.js';

/** @param {{ schema: any, fields: Record<string, any>, wrong: Record<string, string>, set: (name: string, value: any) => void }} props */
export function SchemaForm({ schema, fields, wrong, set }) {
  const entries = Object.entries(schema?.properties ?? {});
  if (entries.length === 0) return html`<p class="dim">This tool takes no arguments.</p>`;
  const required = new Set(schema?.required ?? []);
  return entries.map(([name, of]) => {
    const schemaOf = /** @type {any} */ (of);
    const shape = kind(schemaOf);
    const onInput = (/** @type {any} */ event) => set(name, event.target.value);
    const help = html`<small>${schemaOf?.description && html`<${Name} text=${schemaOf.description} />`}${wrong[name] && html` <span class="bad" role="alert">${visible(name)}: ${wrong[name]}</span>`}</small>`;
    if (shape === 'check') return html`<div key=${name}><label class="check"><input type="checkbox" checked=${fields[name]} onChange=${(/** @type {any} */ event) => set(name, event.target.checked)} /><${Name} text=${name} mono /></label> ${help}</div>`;
    const control =
      shape === 'choice' ? html`<select value=${fields[name]} onChange=${onInput}><option value=""></option>${schemaOf.enum.map((/** @type {string} */ option) => html`<option value=${option} selected=${option === fields[name]}>${visible(option)}</option>`)}</select>`
      : shape === 'long' || shape === 'json' ? html`<textarea rows="3" class=${shape === 'json' ? 'mono' : ''} value=${fields[name]} onInput=${onInput} placeholder=${shape === 'json' ? 'JSON' : ''} spellcheck="false"></textarea>`
      : html`<input value=${fields[name]} inputmode=${shape === 'text' ? undefined : 'decimal'} onInput=${onInput} />`;
    return html`<label class="field" key=${name}><span><${Name} text=${name} mono />${required.has(name) ? ' (required)' : ''}</span>${control}${help}</label>`;
  });
}
