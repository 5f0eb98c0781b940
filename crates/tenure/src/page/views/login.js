// @ts-check
// The way in: a link that `tenure admin open` makes, good for one use. Its code stands behind `#`, so that it reaches no log.

import { html, useEffect, useState } from '../vendor/preact.js';
import { change, loggedOut, me, round } from '../api.js';
import { start } from '../live.js';
import { Copy, Trouble } from '../parts/bits.js';

/** The code of the link, taken out of the address at once. */
function takeCode() {
  if (location.pathname !== '/login') return '';
  const code = decodeURIComponent(location.hash.slice(1));
  history.replaceState(null, '', '/');
  dispatchEvent(new HashChangeEvent('hashchange'));
  return code.startsWith('/') ? '' : code;
}

// Taken once, whatever is drawn how often.
let code = takeCode();
export const hasCode = () => code !== '';

export function Login() {
  const [error, setError] = useState(/** @type {any} */ (null));
  const [busy, setBusy] = useState(hasCode());
  useEffect(() => {
    if (code === '') return;
    const once = code;
    code = '';
    change('POST', '/login', { code: once })
      .then(() => {
        loggedOut.set(false);
        round.set(round.get() + 1);
        start();
      })
      .catch(failure => {
        setError(failure);
        loggedOut.set(true);
        setBusy(false);
      });
  }, []);
  return html`<main id="main" class="login" tabindex="-1"><section class="panel"><div class="inside">
    <h1>Tenure</h1>
    ${busy ? html`<p role="status">Logging in …</p>` : html`
      <${Trouble} error=${error} />
      <p>${error ? 'Make another link on the machine of the node:' : me.get() ? 'Your login is over: eight hours have passed, or somebody ended it. Make another link on the machine of the node:' : 'This page opens with a link that is made on the machine of the node:'}</p>
      <${Copy} text="tenure admin open" />
      <p class="hint">A link is good once, and for a short time. A login ends after eight hours. Programs use keys with <code>Authorization: Bearer</code> instead.</p>
      <div class="actions"><button onClick=${start}>Look again</button></div>`}
  </div></section></main>`;
}
