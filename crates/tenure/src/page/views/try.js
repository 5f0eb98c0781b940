// @ts-check
// Try: call a tool through the gateway as oneself, with a form from its schema.

import { html, useEffect, useState } from '../vendor/preact.js';
import { change, me, useGet } from '../api.js';
import { command, pretty, took } from '../format.js';
import { Badge, Copy, Empty, Head, Name, Panel, Trouble } from '../parts/bits.js';
import { begin, collect } from '../parts/schema.js';
import { SchemaForm } from '../parts/schema-form.js';
import { filter, useRoute } from '../route.js';
import { useStore } from '../store.js';

/** @param {{ answer: any }} props */
function Answer({ answer }) {
  const { result, error, ms } = answer;
  const isBad = Boolean(error) || result?.isError;
  const texts = (result?.content ?? []).filter((/** @type {any} */ part) => part.type === 'text');
  return html`<${Panel} title="Answer" side=${html`<${Badge} kind=${isBad ? 'bad' : 'good'}>${error ? 'error' : result?.isError ? 'tool error' : 'ok'}<//> <span class="dim">${took(ms)}</span>`}>
    <div class="inside view">
      ${error && html`<p class="bad"><${Name} text=${error.message ?? ''} /> <span class="dim">${error.code}</span></p>`}
      ${texts.map((/** @type {any} */ part) => html`<pre class="text">${part.text}</pre>`)}
      <details><summary class="dim">the whole answer</summary><pre class="text">${pretty(error ?? result ?? answer)}</pre></details>
    </div>
  <//>`;
}

/** @param {{ tool: any, backend: string }} props */
function Tool({ tool, backend }) {
  const schema = tool.inputSchema ?? {};
  const [fields, setFields] = useState(() => begin(schema));
  const [reason, setReason] = useState('');
  const [wrong, setWrong] = useState(/** @type {Record<string, string>} */ ({}));
  const [busy, setBusy] = useState(false);
  const [outcome, setOutcome] = useState(/** @type {any} */ (null));
  useEffect(() => {
    setFields(begin(schema));
    setOutcome(null);
    setWrong({});
  }, [tool.name, backend]);
  const found = collect(schema, fields);
  const submit = async (/** @type {any} */ event) => {
    event.preventDefault();
    setWrong(found.wrong);
    if (Object.keys(found.wrong).length > 0 || busy) return;
    setBusy(true);
    const started = performance.now();
    try {
      const answer = await change('POST', 'try', { backend, tool: tool.name, arguments: found.value, reason: reason.trim() });
      setOutcome({ answer: { ms: performance.now() - started, ...answer } });
    } catch (failure) {
      setOutcome({ failure });
    }
    setBusy(false);
  };
  const isDestructive = tool.annotations?.destructiveHint === true;
  return html`<${Panel} title=${html`<${Name} text=${tool.name} mono /> ${isDestructive ? html`<${Badge} kind="warn">destructive<//>` : ''}`} note=${tool.description && html`<${Name} text=${tool.description} />`}>
    <form class="inside view narrow" onSubmit=${submit}>
      <${SchemaForm} schema=${schema} fields=${fields} wrong=${wrong} set=${(/** @type {string} */ name, /** @type {any} */ value) => setFields({ ...fields, [name]: value })} />
      <label class="field"><span>Why? The audit log keeps it, with your name.</span><input value=${reason} maxlength="500" onInput=${(/** @type {any} */ event) => setReason(event.target.value)} placeholder="for example: does the index answer?" /></label>
      <p class="hint">The call runs through the gateway as yourself: limits, rights and the audit log see it.</p>
      <${Copy} text=${command('tenure', 'call', `http://127.0.0.1:8484/mcp/${backend}`, tool.name, JSON.stringify(found.value))} />
      <div class="actions"><button class="main" disabled=${busy || reason.trim().length < 3}>${busy ? 'It runs …' : 'Call it'}</button></div>
    </form>
  <//>
  ${outcome?.answer && html`<${Answer} answer=${outcome.answer} />`}
  <${Trouble} error=${outcome?.failure} />`;
}

export function Try() {
  const { query } = useRoute();
  const who = useStore(me);
  const list = useGet('backends');
  const backends = list.data?.rows ?? [];
  const name = query.backend ?? backends.find((/** @type {any} */ row) => row.up)?.name;
  const { data, error, again } = useGet(name ? `backends/${encodeURIComponent(name)}` : null);
  const tools = Array.isArray(data?.tools) ? data.tools : [];
  const tool = tools.find((/** @type {any} */ of) => of.name === query.tool);
  if (who && !who.features?.try) return html`<div class="view"><${Head} title="Try" /><section class="panel"><${Empty} title="Trying tools is off at this node."><code>admin.try = true</code> switches it on.<//></section></div>`;
  return html`<div class="view">
    <${Head} title="Try" text="Call a tool of a server behind, through the gateway, as yourself." />
    <div class="filters">
      <label class="field"><span>Backend</span><select value=${name ?? ''} onChange=${(/** @type {any} */ event) => filter({ backend: event.target.value, tool: undefined })}>${backends.map((/** @type {any} */ row) => html`<option value=${row.name} selected=${row.name === name}>${row.name}${row.up ? '' : ' (down)'}</option>`)}</select></label>
      <label class="field"><span>Tool</span><select value=${query.tool ?? ''} onChange=${(/** @type {any} */ event) => filter({ backend: name, tool: event.target.value })}><option value="">choose one</option>${tools.map((/** @type {any} */ of) => html`<option value=${of.name} selected=${of.name === query.tool}>${of.name}</option>`)}</select></label>
    </div>
    <${Trouble} error=${list.error ?? error} again=${again} />
    ${tool ? html`<${Tool} key=${`${name} ${tool.name}`} tool=${tool} backend=${name} />` : html`<section class="panel"><${Empty} title="Choose a tool.">Its schema becomes a form.<//></section>`}
  </div>`;
}
