// A client of MCP that misbehaves on purpose: it lets questions wait, drops connections, comes back. For the tests of the operator's page.

const HEADERS = { 'Content-Type': 'application/json', Accept: 'application/json, text/event-stream' };
const REVISION = '2025-11-25';

/** The messages of a body of Server-Sent Events, as they come. */
async function* messages(response) {
  const decoder = new TextDecoder();
  let text = '';
  for await (const part of response.body) {
    text += decoder.decode(part, { stream: true });
    for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
      const event = text.slice(0, end);
      text = text.slice(end + 2);
      const id = event.match(/^id: ?(.*)$/m)?.[1];
      const data = [...event.matchAll(/^data: ?(.*)$/gm)].map(match => match[1]).join('\n');
      yield { id, message: data ? JSON.parse(data) : undefined };
    }
  }
}

export class Client {
  /** @param {string} url @param {Record<string, string>} headers */
  constructor(url, headers = {}) {
    Object.assign(this, { url, headers, id: 0, session: undefined, lastEvent: undefined });
  }

  async open(name) {
    const response = await this.post({ jsonrpc: '2.0', id: 'init', method: 'initialize', params: { protocolVersion: REVISION, capabilities: { elicitation: {} }, clientInfo: { name, version: '1.0' } } });
    if (response.status !== 200) throw new Error(`initialize: ${response.status} ${await response.text()}`);
    this.session = response.headers.get('mcp-session-id');
    await response.text();
    await (await this.post({ jsonrpc: '2.0', method: 'notifications/initialized' })).text();
    return this;
  }

  post(message, signal) {
    const session = this.session ? { 'Mcp-Session-Id': this.session, 'MCP-Protocol-Version': REVISION } : {};
    return fetch(this.url, { method: 'POST', headers: { ...HEADERS, ...session, ...this.headers }, body: JSON.stringify(message), signal });
  }

  /** Calls a tool. `onMessage` hears what comes before the answer; it is not answered unless `answer` says how. */
  async call(tool, args = {}, { signal, answer, method = 'tools/call' } = {}) {
    const id = (this.id += 1);
    const params = method === 'tools/call' ? { name: tool, arguments: args, _meta: { progressToken: id } } : args;
    const response = await this.post({ jsonrpc: '2.0', id, method, params }, signal);
    if (response.headers.get('content-type')?.startsWith('application/json')) return { status: response.status, ...(await response.json()) };
    if (response.status !== 200) return { status: response.status, text: await response.text() };
    for await (const { id: event, message } of messages(response)) {
      if (event) this.lastEvent = event;
      if (message?.method === 'elicitation/create' && answer) await (await this.post({ jsonrpc: '2.0', id: message.id, result: answer })).text();
      if (message && message.method === undefined && message.id === id) return { status: 200, ...message };
    }
    return { status: 200, cut: true };
  }

  /** Calls a tool and hangs up before the answer. */
  async abandon(tool, args, ms) {
    const controller = new AbortController();
    setTimeout(() => controller.abort(), ms);
    await this.call(tool, args, { signal: controller.signal }).catch(() => {});
  }

  /** Comes back after the last event, and reads for some time. */
  async resume(ms) {
    const headers = { Accept: 'text/event-stream', 'Mcp-Session-Id': this.session, 'MCP-Protocol-Version': REVISION, ...this.headers, ...(this.lastEvent ? { 'Last-Event-ID': this.lastEvent } : {}) };
    const controller = new AbortController();
    setTimeout(() => controller.abort(), ms);
    try {
      const response = await fetch(this.url, { headers, signal: controller.signal });
      for await (const { id } of messages(response)) if (id) this.lastEvent = id;
    } catch {
      // It has hung up.
    }
  }
}
