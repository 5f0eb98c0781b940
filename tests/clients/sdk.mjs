// What the scripts here share that drive the TypeScript SDK against a gateway: a client, calls, and checks.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import process from 'node:process';

/** Connects a client, prepared for what it may be asked, and keeps what it sends. */
export async function openClient(sdk, url, prepare, cleanups) {
  const sent = [];
  const transport = new sdk.Transport(new URL(url), {
    fetch: (target, init) => {
      sent.push(`${init.body ?? ''}`);
      return fetch(target, init);
    },
  });
  const capabilities = { sampling: {}, elicitation: {}, roots: {} };
  const client = new sdk.Client({ name: 'tenure-typescript', version: '1.0.0' }, { capabilities });
  // Some servers ask for the roots as soon as they begin.
  sdk.onRequest(client, 'roots/list', () => ({ roots: [] }));
  prepare?.(client);
  cleanups.push(async () => {
    await transport.terminateSession();
    await client.close();
  });
  await client.connect(transport);
  return { client, sent };
}

/** Calls a tool and returns its text. */
export async function call(sdk, client, name, args = {}, options = undefined) {
  const params = { name, arguments: args };
  const result = await sdk.callTool(client, params, options);
  const text = result.content.filter(({ type }) => type === 'text').map(item => item.text).join('\n');
  assert.ok(result.isError !== true, `tool error: ${text}`);
  return text;
}

export function assertOneSession(sent) {
  equal(sent.filter(body => body.includes('"initialize"')).length, 1, 'sessions');
}

export function equal(actual, expected, what) {
  assert.ok(actual === expected, `${what}: expected ${expected}, got ${actual}`);
}

export function includes(items, key, ...wanted) {
  const found = items.map(item => item[key]);
  for (const value of wanted) assert.ok(found.includes(value), `${value} is not in ${found}`);
}

/** The names that differ between the two SDKs. */
export function loadSdk(version) {
  const require = createRequire(process.execPath);
  if (version === 'v2') {
    const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');
    return {
      Client,
      Transport: StreamableHTTPClientTransport,
      callTool: (client, params, options) => client.callTool(params, options),
      onRequest: (client, method, answer) =>
        client.setRequestHandler(method, async ({ params }) => answer(params)),
      onNotification: (client, method, take) => client.setNotificationHandler(method, ({ params }) => take(params)),
    };
  }
  const types = require('@modelcontextprotocol/sdk/types.js');
  const schemas = {
    'sampling/createMessage': types.CreateMessageRequestSchema,
    'elicitation/create': types.ElicitRequestSchema,
    'roots/list': types.ListRootsRequestSchema,
    'notifications/message': types.LoggingMessageNotificationSchema,
    'notifications/resources/updated': types.ResourceUpdatedNotificationSchema,
  };
  return {
    Client: require('@modelcontextprotocol/sdk/client/index.js').Client,
    Transport: require('@modelcontextprotocol/sdk/client/streamableHttp.js').StreamableHTTPClientTransport,
    callTool: (client, params, options) => client.callTool(params, undefined, options),
    onRequest: (client, method, answer) =>
      client.setRequestHandler(schemas[method], async ({ params }) => answer(params)),
    onNotification: (client, method, take) =>
      client.setNotificationHandler(schemas[method], ({ params }) => take(params)),
  };
}
