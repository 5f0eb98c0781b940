// @ts-check
// The frame around the views: which one is shown, whether the node is heard, who one is.

import { Component, html, render, useEffect, useRef, useState } from './vendor/preact.js';
import { change, loggedOut, me } from './api.js';
import { ago, count, exact, span } from './format.js';
import { Keys } from './keys.js';
import { connect, now, outdated, overview, refusal, standing, start } from './live.js';
import { Name } from './parts/bits.js';
import { Dialog, Notices } from './parts/dialog.js';
import { to, useRoute } from './route.js';
import { useStore } from './store.js';
import { Audit } from './views/audit.js';
import { Backends } from './views/backends.js';
import { Calls } from './views/calls.js';
import { Config } from './views/config.js';
import { Data } from './views/data.js';
import { LimitsAndPrincipals } from './views/limits.js';
import { hasCode, Login } from './views/login.js';
import { Nodes } from './views/nodes.js';
import { Now } from './views/now.js';
import { Session } from './views/session.js';
import { Sessions } from './views/sessions.js';
import { Try } from './views/try.js';

/** @typedef {{ view: string, title: string, draw: any, tally?: (news: any) => any, when?: (features: any) => boolean }} Place */

/** @type {Place[]} */
const PLACES = [
  { view: 'now', title: 'Now', draw: Now, tally: news => problemTally(news.problems ?? []) },
  { view: 'sessions', title: 'Sessions', draw: Sessions, tally: news => html`<span class="tally">${count(news.sessions.awake)}</span>` },
  { view: 'calls', title: 'Calls', draw: Calls, tally: news => html`<span class="tally">${count(news.calls.in_flight)}</span>` },
  { view: 'data', title: 'Data and tasks', draw: Data },
  { view: 'backends', title: 'Backends', draw: Backends, tally: news => downTally(news.backends ?? []) },
  { view: 'nodes', title: 'Nodes', draw: Nodes, when: features => features.cluster },
  { view: 'limits', title: 'Limits and principals', draw: LimitsAndPrincipals },
  { view: 'audit', title: 'Audit', draw: Audit, when: features => features.audit !== false },
  { view: 'config', title: 'Config', draw: Config },
  { view: 'try', title: 'Try', draw: Try, when: features => features.try },
];

/** @param {any[]} problems */
function problemTally(problems) {
  if (problems.length === 0) return null;
  const isBad = problems.some(problem => problem.severity === 'error');
  return html`<span class=${`tally ${isBad ? 'is-bad' : 'is-warn'}`} aria-label=${`${problems.length} wrong`}>${problems.length}</span>`;
}

/** @param {any[]} backends */
function downTally(backends) {
  const down = backends.filter(row => row.up === false).length;
  return down > 0 ? html`<span class="tally is-bad" aria-label=${`${down} down`}>${down}</span>` : html`<span class="tally">${backends.length}</span>`;
}

/** Draws again each second while something counts down. @param {boolean} isOn */
function useSeconds(isOn) {
  const [, setTurn] = useState(0);
  useEffect(() => {
    if (!isOn) return undefined;
    const timer = setInterval(() => setTurn(turn => turn + 1), 1000);
    return () => clearInterval(timer);
  }, [isOn]);
}

function Standing() {
  const { state } = useStore(standing);
  const words = { live: 'live', connecting: 'connecting …', lost: 'no connection', resting: 'resting' };
  return html`<span class="standing" role="status"><i class=${`dot ${state === 'live' ? 'is-good' : state === 'lost' ? 'is-bad' : ''}`}></i>${words[state]}</span>`;
}

function Bands() {
  const { state, since, retryAt } = useStore(standing);
  const old = useStore(outdated);
  const why = useStore(refusal);
  const news = useStore(overview);
  useSeconds(state === 'lost');
  const wait = Math.max(0, Math.ceil(((retryAt ?? 0) - Date.now()) / 1000));
  return html`<div>
    ${state === 'lost' && html`<div class="band is-bad" role="alert"><span><b>${why ? html`The node gives no news: <${Name} text=${why} />.` : `No connection to the node for ${span(Math.max(1000, Date.now() - since))}.`}</b> ${news ? `What is shown is of ${ago(news.time, now()).replace(/^now$/, 'a moment ago')}.` : ''} The page tries again ${wait > 0 ? `in ${wait} s` : 'now'}, by itself.</span><button class="small" onClick=${connect}>Try now</button></div>`}
    ${old && html`<div class="band" role="status"><span><b>The node has been updated.</b> This page is of the version before.</span><button class="small" onClick=${() => location.reload()}>Reload the page</button></div>`}
    ${news && news.node.state === 'draining' && html`<div class="band" role="status"><span><b>This node stops.</b> It finishes what is in flight, and clients go on elsewhere or after the restart.</span></div>`}
  </div>`;
}

const Mark = () => html`<svg viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="7" fill="#0d6f6f" /><path d="M7 10h18M16 10v13" stroke="#fff" stroke-width="3" stroke-linecap="round" fill="none" /><circle cx="25" cy="23" r="2.4" fill="#9be3dc" /></svg>`;

async function logout() {
  try {
    await change('POST', '/logout', { reason: 'logged out in the page' });
  } finally {
    loggedOut.set(true);
    location.hash = '';
  }
}

/** @param {{ places: Place[], view: string }} props */
function Side({ places, view }) {
  const who = useStore(me);
  const news = useStore(overview);
  const shown = view === 'session' ? 'sessions' : view;
  return html`<header class="side">
    <a class="brand" href=${to('now')} aria-label="Tenure, now"><${Mark} /><span>Tenure<small><${Name} text=${news?.node?.label ?? who?.node ?? ''} /></small></span></a>
    <nav class="views" aria-label="Views">${places.map(place => html`<a key=${place.view} href=${to(place.view)} aria-current=${place.view === shown ? 'page' : undefined}>${place.title}${news && place.tally?.(news)}</a>`)}</nav>
    <div class="side-foot">
      <${Standing} />
      <div class="row">
        <button class="small" onClick=${() => dispatchEvent(new Event('toggle-theme'))} title="Light or dark (t)">Light or dark</button>
        <button class="small" onClick=${() => dispatchEvent(new Event('show-keys'))} title="Keys (?)" aria-label="Keys">?</button>
      </div>
      <div class="row"><span class="any" title=${who?.started ? `Node started ${exact(who.started)}` : undefined}><${Name} text=${who?.name} /></span>${who?.via !== 'socket' && html`<button class="small plain" onClick=${logout}>Log out</button>`}</div>
    </div>
  </header>`;
}

/** Holds what fails in a view, so that the others can still be reached. */
class Guard extends Component {
  /** @type {{ error: any }} */
  state = { error: null };

  /** @param {any} error */
  componentDidCatch(error) {
    console.error(error);
    this.setState({ error });
  }

  /** @param {any} props @param {any} state */
  render({ children }, { error }) {
    if (!error) return children;
    return html`<div class="view"><h1>This view failed</h1>
      <p>What the node answered could not be drawn: <code class="any">${String(error?.message ?? error)}</code>. That is a fault of the page. Please report it with the version of the node, ${me.get()?.version ?? 'unknown'}.</p>
      <div class="actions"><button onClick=${() => this.setState({ error: null })}>Try again</button></div></div>`;
  }
}

/** @param {any} place @param {any} route */
const title = (place, route) => (route.view === 'session' ? 'Session' : place?.title ?? 'Not found');

function App() {
  const route = useRoute();
  const who = useStore(me);
  const isOut = useStore(loggedOut);
  const problems = useStore(overview)?.problems?.length ?? 0;
  const features = who?.features ?? {};
  const places = PLACES.filter(place => !place.when || place.when(features));
  const place = PLACES.find(of => of.view === route.view);
  const name = title(place, route);
  useEffect(() => {
    document.title = `${problems > 0 ? `(${problems}) ` : ''}${name} – Tenure`;
  }, [name, problems]);
  const address = `${route.view}/${route.rest.join('/')}`;
  const isFirst = useRef(true);
  useEffect(() => {
    if (isFirst.current) {
      isFirst.current = false;
      return;
    }
    // A new view begins at its top, and a screen reader hears its heading.
    scrollTo(0, 0);
    /** @type {HTMLElement | null} */ (document.querySelector('main'))?.focus({ preventScroll: true });
  }, [address]);
  if (isOut) return html`<${Login} />`;
  const draw = route.view === 'session' ? html`<${Session} key=${route.rest[0]} id=${route.rest[0] ?? ''} />` : place ? html`<${place.draw} key=${route.view} />` : html`<div class="view"><h1>There is no such view</h1><p><a href=${to('now')}>Go to Now</a></p></div>`;
  return html`<a class="skip" href="#main" onClick=${(/** @type {any} */ event) => { event.preventDefault(); /** @type {any} */ (document.querySelector('main'))?.focus(); }}>Skip to the view</a>
    <div class="frame">
      <${Side} places=${places} view=${route.view} />
      <div><${Bands} /><main id="main" tabindex="-1"><${Guard} key=${address}>${draw}<//></main></div>
    </div>
    <${Dialog} /><${Notices} /><${Keys} features=${features} />`;
}

if (hasCode()) loggedOut.set(true);
render(html`<${App} />`, /** @type {HTMLElement} */ (document.getElementById('page')));
// With a code, the view of the login begins.
if (!hasCode()) start();
