// The routes of the admin API, answered from a world that is made up. Changes change it, and are in its audit log.

import { HOSTILE, LIMITS, TOOLS } from './world.mjs';

export class Refusal extends Error {
  constructor(status, reason, message, hint) {
    super(message);
    Object.assign(this, { status, reason, hint });
  }
}

const MINUTE = 60_000;
const ROLES = ['viewer', 'payloads', 'operator', 'admin'];

// Members of queries, as the node knows them: it refuses all others.
const SESSIONS = ['state', 'principal', 'client', 'backend', 'revision', 'waiting', 'older_than_s', 'prefix', 'limit', 'after'];
const QUERIES = [
  [/^sessions$/, SESSIONS],
  [/^sessions\/ended$/, ['limit']],
  [/^sessions\/[^/]+\/events$/, ['stream', 'after', 'limit', 'bodies']],
  [/^calls$/, ['state', 'method', 'tool', 'principal', 'older_than_s', 'limit']],
  [/^calls\/recent$/, ['limit']],
  [/^data$/, ['name', 'limit', 'after']],
  [/^data\/[^/]+$/, ['contents']],
  [/^tasks$/, ['limit']],
  [/^audit$/, ['since', 'principal', 'event', 'limit']],
  [/^history$/, ['span']],
];

/** Refuses what the node would refuse. */
function check(parts, query) {
  const path = parts.join('/');
  const known = QUERIES.find(([pattern]) => pattern.test(path))?.[1] ?? [];
  const other = Object.keys(query).find(name => !known.includes(name));
  if (other) throw new Refusal(400, 'unknown_member', `there is no \`${other}\` in the query of \`${path}\``, `it may have: ${known.join(', ')}`);
  if (Number(query.limit ?? 1) > 500) throw new Refusal(400, 'bad_request', '`limit` is 500 at most', 'ask for less');
}

export class Routes {
  constructor(world, options) {
    Object.assign(this, { world, options });
    this.recent = [];
    this.listeners = new Set();
    this.minutes = [];
    this.refused = { rate_limited: 412, too_many_sessions: 3, invalid_token: 19 };
    this.resumes = { replayed: 1204, gap: 3, foreign: 1, fresh: 322 };
    const second = Math.floor(Date.now() / 1000);
    for (let at = second - 600; at < second; at += 1) this.minutes.push(this.point(at));
    for (let index = 0; index < 200; index += 1) this.recent.push(this.call(Date.now() - (200 - index) * 300));
    this.world.running = this.makeRunning();
  }

  /** A second of the figures, with a bad patch some minutes ago. */
  point(at) {
    const wave = Math.sin(at / 47) * 0.25 + Math.sin(at / 11) * 0.1 + 1;
    const bad = at % 600 > 380 && at % 600 < 440;
    const rate = this.options.rate * wave * (0.9 + this.world.roll() * 0.2);
    return { calls: rate, errors: rate * (bad ? 0.22 : 0.012) * this.world.roll() * 1.6, p50_ms: 11 + wave * 4, p99_ms: (bad ? 1900 : 180) * (0.8 + this.world.roll() * 0.5), sessions_awake: this.awake().length, refused: bad ? 4 * this.world.roll() : 0, resumes: this.world.roll() < 0.2 ? 1 : 0 };
  }

  awake() {
    return this.world.rows.filter(row => row.state === 'awake');
  }

  makeRunning() {
    const { world } = this;
    const rows = [];
    for (const { row, in_flight } of world.details.values()) {
      if (row.state !== 'awake') continue;
      for (const call of in_flight) rows.push({ label: row.label, session: row.key, in_session: true, owner: row.owner, backend: row.backend, id: call.id, method: call.method, tool: call.tool, started: call.started, state: 'running', waits_for: call.asking ? 'client' : 'server', questions: call.asking || undefined, progress: call.progress });
    }
    const states = [['running', 'server'], ['parked', 'client'], ['task', 'server'], ['listening', 'news'], ['running', 'reader'], ['running', 'next_process']];
    for (let index = 0; index < this.options.running; index += 1) {
      const [state, waits] = states[index % states.length];
      const backend = world.pick(['github', 'search', 'tickets']);
      rows.push({ label: `c-${world.hex(8)}`, in_session: false, owner: world.pick(['corp:ann', 'corp:chen', 'key:nightly']), backend, method: state === 'listening' ? 'subscriptions/listen' : 'tools/call', tool: state === 'listening' ? undefined : world.pick(TOOLS[backend]), started: Date.now() - (index + 1) * 9000, state, waits_for: waits, questions: waits === 'client' ? 1 : undefined, attempts: 1 + (index % 3) });
    }
    return rows.sort((a, b) => a.started - b.started);
  }

  call(at) {
    const { world } = this;
    const backend = world.pick(['files', 'files', 'github', 'search', 'tickets']);
    // Those that went wrong are left alone.
    const row = world.rows[(world.details.size + Math.floor(world.roll() * 60)) % world.rows.length];
    const dice = world.roll();
    const outcome = dice < 0.93 ? 'result' : dice < 0.96 ? 'tool_error' : dice < 0.98 ? 'error' : dice < 0.99 ? 'limited' : 'gone';
    return { at, label: row.label, session: row.key, owner: row.owner, backend, method: 'tools/call', tool: world.pick(TOOLS[backend]), ms: Math.round(world.roll() ** 4 * 2400 + world.roll() * 12), outcome, code: outcome === 'error' ? -32603 : undefined, reason: outcome === 'limited' ? 'rate_limited' : undefined, bytes_in: 120 + Math.floor(world.roll() * 400), bytes_out: 300 + Math.floor(world.roll() ** 3 * 90_000), trace: world.hex(32) };
  }

  /** What happens within a part of a second. */
  tick(part) {
    const calls = this.options.rate * part;
    const n = Math.floor(calls) + Number(this.world.roll() < calls % 1);
    for (let index = 0; index < n; index += 1) {
      const call = this.call(Date.now());
      this.recent.push(call);
      this.tell('call', call);
    }
    if (this.recent.length > 1000) this.recent.splice(0, this.recent.length - 1000);
  }

  second() {
    this.minutes.push(this.point(Math.floor(Date.now() / 1000)));
    if (this.minutes.length > 600) this.minutes.shift();
    const gained = Math.round(this.minutes.at(-1).refused);
    this.refused.rate_limited += gained;
    this.tell('overview', this.overview());
  }

  tell(kind, row) {
    for (const listener of this.listeners) listener(kind, row);
  }

  problems() {
    const { world } = this;
    const problems = [];
    for (const row of world.backends.filter(of => !of.up)) problems.push({ severity: 'error', text: `the backend \`${row.name}\` is down: the program ended with exit status 1`, about: { kind: 'backend', key: row.name, label: row.name }, since: row.last_error.at });
    for (const { row } of world.details.values()) {
      if (row.state === 'ended') continue;
      for (const text of row.problems) problems.push({ severity: row.waiting_for_client ? 'error' : 'warning', text, about: { kind: 'session', key: row.key, label: row.label }, since: row.oldest_call ?? row.last_used });
    }
    if (this.options.cluster) problems.push({ severity: 'warning', text: 'node `n-b9d2` has not renewed its lease for 9s', about: { kind: 'node', key: 'n-b9d2', label: 'n-b9d2' }, since: Date.now() - 9000 });
    problems.push({ severity: 'warning', text: '11 calls wait for a place at `search`, which allows 8 at once', about: { kind: 'backend', key: 'search', label: 'search' }, since: world.now - 90_000 });
    return this.options.well ? [] : problems.sort((a, b) => a.severity.localeCompare(b.severity));
  }

  overview() {
    const { world } = this;
    const last = this.minutes.at(-1);
    const awake = this.awake();
    return {
      time: Date.now(),
      node: { label: 'n-7c11', version: this.options.version, started: world.started, state: 'serving', ready: true, why: [] },
      problems: this.problems(),
      sessions: { awake: awake.length, dormant: world.rows.filter(row => row.state === 'dormant').length, ended_recent: world.ended.length, waiting_for_client: awake.filter(row => row.waiting_for_client).length, total: world.rows.length },
      rates: { calls_per_s: last.calls, errors_per_s: last.errors, p50_ms: last.p50_ms, p99_ms: last.p99_ms, refused_per_s: last.refused, resumes_per_s: last.resumes },
      calls: { in_flight: world.running.length, waiting_for_client: world.running.filter(row => row.waits_for === 'client').length, oldest_started: world.running[0]?.started },
      streams: { open: 311, readers: 274 },
      resumes: this.resumes,
      refused: this.refused,
      process: { rss_bytes: 187_400_000, cpu_s: 5140, loop_lag_ms: 0.4, descriptors: 412 },
      store: { kind: 'disk', free_bytes: 81_400_000_000, unstored_bytes: 0, state: 'ok' },
      backends: world.backends.map(({ tool_list, ...row }) => row),
      nodes: this.options.cluster ? world.nodes.map(node => (node.node === 'n-7c11' ? { ...node, sessions: awake.length } : node)) : undefined,
    };
  }

  find(key) {
    const row = this.world.rows.find(of => of.key === key || of.label === key) ?? this.world.ended.find(of => of.key === key || of.label === key);
    if (!row) throw new Refusal(404, 'not_found', `there is no session \`${String(key).slice(0, 40)}\``, 'it may have ended long ago; `tenure sessions list --state ended` shows those that are remembered');
    return row;
  }

  session(key) {
    const row = this.find(key);
    const special = this.world.details.get(row.key);
    const figures = special?.figures ?? { requests: 188, tool_calls: 140, resource_reads: 9, errors: 2, latency_ms: { p50: 14, p99: 320, max: 20_114 }, bytes_in: 91_244, bytes_out: 1_204_551 };
    const isSimple = !special;
    const { readers, ...rest } = row;
    return {
      ...rest,
      client: { name: row.client_name, version: '2.1.4' },
      server: { name: row.backend ?? 'demo', version: '11.0' },
      configured: 'https://tickets.example/mcp 5d0c11aa',
      log_level: 'info',
      subscriptions: isSimple ? [] : ['file:///srv/notes.md'],
      metadata: special?.metadata ?? {},
      ttl_ms: special?.ttl_ms ?? 'default',
      requests: figures.requests,
      errors: figures.errors,
      in_flight: row.state === 'awake' ? special?.in_flight ?? [] : [],
      streams: row.state === 'ended' ? [] : special?.streams ?? [{ number: 0, open: row.state === 'awake', last: row.events ?? 0, requests: [] }],
      readers: row.readers,
      kept: { events: row.events ?? 0, bytes: (row.events ?? 0) * 412, oldest: row.created },
      version: 42,
      record: { format: 7, principal: row.owner, client: row.client_name },
      figures,
      memory_bytes: row.state === 'awake' ? 48_220 : undefined,
      capabilities: ['elicitation', 'roots', 'sampling'],
      limits: special?.limits,
      last_tool: row.last_tool ?? 'read_file',
      timeline: special?.timeline ?? [{ at: row.created, what: 'created', text: 'the client began the session', ok: true }, ...(row.state === 'dormant' ? [{ at: row.last_used, what: 'slept', text: 'the session was not used and went dormant' }] : [])],
      node: 'n-7c11',
    };
  }

  list(query) {
    const { state, principal, client, backend, revision, waiting, older_than_s: older, prefix, limit = '50', after } = query;
    const fits = row =>
      (!state || row.state === state) && (!principal || row.owner === principal) && (!client || row.client_name?.includes(client)) && (!backend || row.backend === backend) && (!revision || row.revision === revision) &&
      (!waiting || row.waiting_for_client > 0) && (!older || (row.oldest_call && row.oldest_call < Date.now() - Number(older) * 1000)) && (!prefix || row.label.startsWith(prefix) || row.key.startsWith(prefix));
    const found = (state === 'ended' ? [...this.world.rows, ...this.world.ended] : this.world.rows).filter(fits);
    const begin = after ? found.findIndex(row => row.key === after) + 1 : 0;
    const rows = found.slice(begin, begin + Number(limit));
    const next = begin + rows.length < found.length ? rows.at(-1).key : undefined;
    const cut = client ? { looked_at: Math.min(20_000, this.world.rows.length), of: Math.max(200_000, this.world.rows.length) } : {};
    return { rows, next, ...cut };
  }

  events(key, query) {
    const row = this.find(key);
    const stream = Number(query.stream ?? 0);
    const total = this.session(row.key).streams.find(of => of.number === stream)?.last ?? 0;
    const begin = query.after ? Number(query.after) : 0;
    const rows = [];
    for (let position = begin + 1; position <= Math.min(total, begin + Number(query.limit ?? 50)); position += 1) {
      const isLast = position === total && stream !== 0;
      const method = position % 5 === 4 ? 'notifications/message' : position % 7 === 3 ? 'elicitation/create' : 'notifications/progress';
      rows.push({ stream, position, at: row.created + position * 9000, method: isLast ? undefined : method, response: isLast ? 'response' : undefined, id: isLast ? 17 : undefined, bytes: 96 + ((position * 37) % 900), body: query.bodies === 'true' ? JSON.stringify({ jsonrpc: '2.0', method, params: { message: HOSTILE, position } }) : undefined });
    }
    const last = rows.at(-1)?.position;
    return { rows, next: last !== undefined && last < total ? String(last) : undefined };
  }

  me() {
    return { name: 'operator@control', roles: ROLES.slice(0, ROLES.indexOf(this.options.role) + 1), via: 'link', node: 'n-7c11', version: this.options.version, started: this.world.started, features: { try: true, cluster: this.options.cluster, audit: true, auth: true, reload: true, restart: true } };
  }

  history(query) {
    if (query.span === '24h') {
      const points = Array.from({ length: 1440 }, (_, index) => this.point(index * 6));
      return { step_ms: 60_000, from: Date.now() - 1440 * 60_000, series: Object.fromEntries(Object.keys(points[0]).map(name => [name, points.map((point, index) => (index > 300 && index < 340 ? null : point[name]))])) };
    }
    return { step_ms: 1000, from: Date.now() - this.minutes.length * 1000, series: Object.fromEntries(Object.keys(this.minutes[0]).map(name => [name, this.minutes.map(point => point[name])])) };
  }

  recentCalls(limit) {
    const special = [...this.world.details.values()].flatMap(({ row, recent = [] }) => recent.map(call => ({ label: row.label, session: row.key, owner: row.owner, backend: row.backend, method: 'tools/call', bytes_in: 200, bytes_out: 900, ...call })));
    return { rows: [...this.recent.slice(special.length - limit), ...special].sort((a, b) => b.at - a.at) };
  }

  slowest() {
    const rows = Object.entries(TOOLS).flatMap(([backend, tools]) => tools.map((tool, index) => ({ tool, backend, calls: 40 + ((index * 977) % 4000), errors: backend === 'weather' ? 22 : (index * 31) % 40, p50_ms: 9 + index * 21, p99_ms: backend === 'search' ? 2400 + index * 1800 : 60 + index * 130 })));
    return { rows: rows.sort((a, b) => b.p99_ms - a.p99_ms) };
  }

  principals() {
    const rows = new Map();
    for (const row of this.world.rows) {
      if (row.state === 'ended') continue;
      const of = rows.get(row.owner) ?? { principal: row.owner, sessions: 0, awake: 0, data_sessions: 3, tasks: 1, calls: 0, last_used: 0, revoked: this.world.revoked?.get(row.owner) };
      of.sessions += 1;
      of.awake += Number(row.state === 'awake');
      of.calls += row.calls ?? 0;
      of.last_used = Math.max(of.last_used, row.last_used);
      rows.set(row.owner, of);
    }
    return { rows: [...rows.values(), { principal: 'corp:mallory', sessions: 0, awake: 0, data_sessions: 0, tasks: 0, calls: 0, revoked: this.world.now - 40 * MINUTE }] };
  }

  limits() {
    return { rows: ['corp:ann', 'corp:bob', 'key:ci', undefined].map((principal, index) => ({ principal, limits: index === 3 ? [] : LIMITS.map(line => ({ ...line, left: index === 1 && line.what === 'rate' ? 0 : line.left - index })) })) };
  }

  usage() {
    return {
      rows: [
        { resource: 'memory', is_bytes: true, used: 31_000_000, total: 268_435_456, peers: [{ peer: '203.0.113.7', used: 12_000_000 }, { peer: '198.51.100.20', used: 9_100_000 }] },
        { resource: 'sessions', is_bytes: false, used: this.awake().length, total: 10_000, peers: [{ peer: '203.0.113.7', used: 88 }] },
        { resource: 'calls', is_bytes: false, used: 812, total: 1000, peers: [{ peer: '192.0.2.99', used: 498 }] },
        { resource: 'parked', is_bytes: false, used: 996, total: 1000, peers: [{ peer: '192.0.2.99', used: 500 }] },
        { resource: 'disk', is_bytes: true, used: 91_000_000, total: 1_073_741_824, peers: [] },
      ],
    };
  }

  config() {
    const set = { listen: '0.0.0.0:8443', 'store': 'disk:/var/lib/tenure', 'auth.public_url': 'https://mcp.example.com', 'admin.listen': '127.0.0.1:8485', 'audit.file': '/var/log/tenure/audit.jsonl', 'session.dormant_after': '15m', 'backends.tickets.token': '(set)' };
    const defaults = { 'session.idle_ttl': '24h', 'session.max_lifetime': '30d', 'session.max_metadata': 16_384, 'timeouts.request': '10m', 'timeouts.client_answer': '10m', 'streams.on_gap': 'error', 'clients.memory': '256MiB', 'clients.max_share': 0.5, 'log.access': true, 'limits.max_wait': '1s', 'exchanges.stream_after': '250ms', 'metrics.listen': null, 'shutdown.grace': '10s' };
    const rows = [...Object.entries(set).map(([key, value]) => ({ key, value, source: key === 'listen' ? '--listen' : key.startsWith('backends') ? 'env TICKETS_TOKEN' : '/etc/tenure/tenure.toml' })), ...Object.entries(defaults).map(([key, value]) => ({ key, value, source: 'default' }))];
    return { rows: rows.sort((a, b) => a.key.localeCompare(b.key)) };
  }

  loops() {
    const names = ['deadlines of sessions', 'sweep of sessions', 'sweep of data sessions', 'sweep of tasks', 'notes of calls', 'sessions of bridges', 'lease of this node'];
    return { rows: names.map((name, index) => ({ name, restarts: index === 3 ? 1 : 0, is_down: false, panicked: index === 3 ? this.world.now - 40 * MINUTE : undefined })) };
  }

  auditRows(query) {
    const rows = this.world.audit.filter(row => (!query.event || row.event === query.event) && (!query.since || row.time >= query.since) && (!query.principal || `${row.principal.iss ? `${row.principal.iss}:` : ''}${row.principal.sub}` === query.principal));
    return { rows: rows.slice(0, Number(query.limit ?? 200)), chain: { ok: true, checked_to: this.world.audit[0].seq } };
  }

  note(method, on, reason, more = {}) {
    this.world.audit.unshift({ seq: this.world.audit[0].seq + 1, time: new Date().toISOString(), event: 'admin_action', principal: { sub: '1000', kind: 'operator' }, method, ...on, reason, outcome: 'ok', ...more });
  }

  end(row, end, text) {
    Object.assign(row, { state: 'ended', end, ended: Date.now(), calls: undefined, oldest_call: undefined, waiting_for_client: 0, problems: [] });
    this.world.running = this.world.running.filter(call => call.session !== row.key);
    this.world.ended.unshift({ ...row, requests: 188, errors: 2 });
    this.tell('session', { key: row.key, label: row.label, what: end, at: Date.now(), text });
  }

  /** Everything that changes something. */
  change(method, parts, body) {
    const [kind, id, act] = parts;
    const looks = id === 'show' ? Object.keys(body).find(name => name !== 'principal') : undefined;
    if (looks) throw new Refusal(400, 'unknown_member', `there is no \`${looks}\` here`, 'only `principal` is asked for');
    const asks = !(kind === 'principals' && id === 'show') && !(kind === 'limits' && id === 'show');
    if (asks && (typeof body.reason !== 'string' || body.reason.length < 3 || body.reason.length > 500)) throw new Refusal(422, 'reason_missing', 'a change needs a reason of 3 to 500 characters', 'say why; the audit log keeps it');
    const needed = kind === 'principals' && id === 'reinstate' ? 'admin' : asks ? 'operator' : 'viewer';
    if (ROLES.indexOf(this.options.role) < ROLES.indexOf(needed)) throw new Refusal(403, 'forbidden', `this needs the right \`${needed}\`, and you have \`${this.options.role}\``, 'ask for a link with more rights: `tenure admin open --role operator`');
    if (kind === 'sessions' && id === 'revoke') return this.revokeAll(body);
    if (kind === 'sessions') return this.changeSession(this.find(id), act, body);
    if (kind === 'calls') {
      this.world.running = this.world.running.filter(call => call.label !== id);
      this.note('calls.cancel', { name: id }, body.reason);
      return {};
    }
    if (kind === 'data') {
      const row = this.world.data.find(of => of.key === id);
      if (act === 'revoke') Object.assign(row, { state: 'ended', end: 'revoked', ended: Date.now() });
      if (act === 'clear') row.bytes = 0;
      if (act === 'resume') Object.assign(row, { state: 'active', last_used: Date.now() });
      this.note(`data.${act}`, { name: row.name }, body.reason);
      return row;
    }
    if (kind === 'principals' && id === 'show') {
      const rows = this.world.rows.filter(row => row.owner === body.principal && row.state !== 'ended');
      const of = this.principals().rows.find(row => row.principal === body.principal);
      if (!of) throw new Refusal(404, 'not_found', `the store knows nothing of \`${body.principal}\``, 'names look like `corp:ann` or `key:ci`');
      return { ...of, session_rows: rows.slice(0, 1000), data_session_rows: [], task_rows: [], call_rows: [] };
    }
    if (kind === 'limits' && id === 'show') return { rows: [{ principal: body.principal, limits: LIMITS }] };
    if (kind === 'principals') {
      this.world.revoked ??= new Map();
      let ended = 0;
      if (id === 'revoke') {
        this.world.revoked.set(body.principal, Date.now());
        for (const row of this.world.rows.filter(of => of.owner === body.principal && of.state !== 'ended')) {
          this.end(row, 'revoked', `its principal was revoked: ${body.reason}`);
          ended += 1;
        }
      } else this.world.revoked.delete(body.principal);
      this.note(`principals.${id}`, { name: body.principal }, body.reason);
      return { sessions: ended, calls: 0, tasks: 0, data_sessions: 0, not_before: Date.now() };
    }
    if (kind === 'backends') {
      const row = this.world.backends.find(of => of.name === id);
      Object.assign(row, { starts: row.starts + 1, up: true });
      this.note('backends.restart', { name: id }, body.reason);
      this.tell('backend', row);
      return {};
    }
    if (kind === 'config') throw new Refusal(422, 'config_invalid', 'line 12: `session.idle_ttl` is not a time: `24 hourz`', 'write it like `24h`; nothing was changed');
    if (kind === 'log') return this.note('log.set', { name: body.level }, body.reason) ?? {};
    if (kind === 'try') return { result: { content: [{ type: 'text', text: `${body.tool} was called with ${JSON.stringify(body.arguments)}\n${HOSTILE}` }], isError: false }, ms: 41 };
    throw new Refusal(404, 'not_found', 'there is no such route', 'see `openapi.json`');
  }

  changeSession(row, act, body) {
    const special = this.world.details.get(row.key);
    if (row.state === 'ended') throw new Refusal(409, 'ended', `${row.label} has ended`, 'nothing of it can be changed any more');
    this.note(act === 'settings' ? 'sessions.set' : `sessions.${act}`, { session: row.label }, body.reason, act === 'cancel' ? { name: String(body.call) } : {});
    if (act === 'revoke') this.end(row, 'revoked', `revoked by operator@control: ${body.reason}`);
    else if (act === 'sleep') Object.assign(row, { state: 'dormant', calls: undefined, readers: undefined });
    else if (act === 'cancel') {
      const call = special?.in_flight.find(of => JSON.stringify(of.id) === JSON.stringify(body.call));
      if (!call) throw new Refusal(404, 'not_found', `${row.label} has no call with the id ${JSON.stringify(body.call)}`, 'it may have been answered meanwhile');
      special.in_flight = special.in_flight.filter(of => of !== call);
      special.recent = [...(special.recent ?? []), { at: Date.now(), ms: Date.now() - call.started, tool: call.tool, outcome: 'error', reason: 'cancelled_by_operator' }];
      Object.assign(row, { calls: special.in_flight.length, oldest_call: special.in_flight[0]?.started, waiting_for_client: 0, problems: [] });
      this.world.running = this.world.running.filter(of => !(of.session === row.key && of.id === call.id));
    } else if (act === 'detach') special.readers = special.readers.filter(reader => reader.stream !== body.stream);
    else if (act === 'settings' && special) {
      special.metadata = Object.fromEntries(Object.entries({ ...special.metadata, ...body.metadata }).filter(([, value]) => value !== null));
      if (body.ttl_ms !== undefined) special.ttl_ms = body.ttl_ms;
    }
    this.tell('session', { key: row.key, label: row.label, what: act, at: Date.now(), text: act });
    return {};
  }

  revokeAll(body) {
    const found = this.list({ ...body.filter, limit: '1000000' }).rows.filter(row => row.state !== 'ended');
    if (found.length > body.expect) throw new Refusal(409, 'more_than_expected', `${found.length} sessions match, and you expected ${body.expect} at most`, 'look at the list again; none was ended');
    for (const row of found) this.end(row, 'revoked', `revoked by a filter: ${body.reason}`);
    this.note('sessions.revoke', { name: JSON.stringify(body.filter) }, body.reason, { count: found.length });
    return { ended: found.length, gone: 0 };
  }

  /** Everything that only reads. */
  read(parts, query) {
    check(parts, query);
    const [kind, id, act] = parts;
    const { world } = this;
    const plain = {
      me: () => this.me(), overview: () => this.overview(), history: () => this.history(query), usage: () => this.usage(), limits: () => this.limits(), log: () => ({ level: 'info' }),
      logins: () => ({ rows: [{ label: 'l-3f20aa91', name: 'operator@control', role: 'admin', since: Date.now() - 40 * MINUTE, expires: Date.now() + 440 * MINUTE, last_used: Date.now(), remote: '127.0.0.1' }, { label: 'l-77c1d002', name: 'wall', role: 'viewer', since: Date.now() - 190 * MINUTE, expires: Date.now() + 290 * MINUTE, last_used: Date.now() - 3000, remote: '10.0.4.80' }] }), loops: () => this.loops(), config: () => this.config(), nodes: () => ({ rows: this.overview().nodes ?? [] }),
      audit: () => this.auditRows(query), principals: () => this.principals(), tasks: () => ({ rows: world.tasks }),
    };
    if (id === undefined && plain[kind]) return plain[kind]();
    if (kind === 'sessions' && id === undefined) return this.list(query);
    if (kind === 'sessions' && id === 'ended') return { rows: world.ended.slice(0, Number(query.limit ?? 50)) };
    if (kind === 'sessions' && act === 'events') return this.events(id, query);
    if (kind === 'sessions') return this.session(id);
    if (kind === 'calls' && id === 'recent') return this.recentCalls(Number(query.limit ?? 200));
    if (kind === 'calls' && id === 'slowest') return this.slowest();
    if (kind === 'calls') {
      const rows = world.running.filter(row => (!query.state || row.state === query.state) && (!query.older_than_s || row.started < Date.now() - Number(query.older_than_s) * 1000));
      return { rows: rows.slice(0, Number(query.limit ?? 50)), of: rows.length };
    }
    if (kind === 'backends' && id === undefined) return { rows: this.overview().backends };
    if (kind === 'backends') {
      const row = world.backends.find(of => of.name === id);
      if (!row) throw new Refusal(404, 'not_found', `there is no backend \`${id}\``, '`tenure serve --check` lists those that are configured');
      return { ...row, tools: row.tool_list, tool_list: undefined };
    }
    if (kind === 'data' && id === undefined) {
      const rows = world.data.filter(row => !query.name || row.name.startsWith(query.name) || row.key.startsWith(query.name));
      const begin = query.after ? rows.findIndex(row => row.key === query.after) + 1 : 0;
      const page = rows.slice(begin, begin + Number(query.limit ?? 50));
      return { rows: page, next: begin + page.length < rows.length ? page.at(-1).key : undefined };
    }
    if (kind === 'data') {
      const row = world.data.find(of => of.key === id);
      if (!row) throw new Refusal(404, 'not_found', 'there is no such data session', '`tenure sessions data list` shows those that there are');
      return { ...row, idle_ttl_ms: 7 * 86_400_000, hints: { purpose: 'keeps a draft' }, contents: query.contents === 'true' ? { text: `# Notes\n${HOSTILE}\n` } : undefined };
    }
    throw new Refusal(404, 'not_found', 'there is no such route', 'see `openapi.json`');
  }
}
