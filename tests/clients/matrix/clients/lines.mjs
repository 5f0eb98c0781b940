// What every client of the matrix that runs on Node has in common: calls come in as lines, answers go out as lines.
//
// In:  {"id": 1, "tool": "look", "arguments": {…}}
// Out: {"ready": "REVISION"} once connected, then for each call {"id": 1, "text": "…"} or
//      {"id": 1, "error": "…", "code": -31010}, as the client's user would see it.
// Calls run side by side. The client leaves when its input ends, without a word to the server.

import { createRequire } from 'node:module';
import process from 'node:process';
import { createInterface } from 'node:readline';

/** The SDKs lie beside the Node that runs this. */
export const require = createRequire(process.execPath);

/** Answers calls with `call(tool, arguments)`, which gives the result of a tool or throws. */
export function answerCalls(revision, call) {
  say({ ready: revision ?? null });
  const lines = createInterface({ input: process.stdin });
  lines.on('line', async line => {
    const { id, tool, arguments: args } = JSON.parse(line);
    try {
      const result = await call(tool, args);
      const text = (result.content ?? []).filter(({ type }) => type === 'text').map(item => item.text).join('\n');
      say(result.isError === true ? { id, error: `tool error: ${text}` } : { id, text });
    } catch (error) {
      say({ id, error: describe(error), code: error?.code });
    }
  });
  lines.on('close', () => process.exit(0));
}

/** The message of an error with those of its causes, in which Node hides that a connection was refused. */
function describe(error) {
  const parts = [];
  for (let at = error; at !== undefined && at !== null; at = at.cause) parts.push(at.message || at.code || `${at}`);
  return parts.join(': ').split('\n')[0];
}

function say(message) {
  process.stdout.write(`${JSON.stringify(message)}\n`);
}
