// A node as the mock of the admin API sees it: sessions that went wrong in every way that the page has to explain, and thousands that
// did not. The same seed gives the same world.

/** Numbers between 0 and 1 that look random and are the same each time. */
export function dice(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let word = Math.imul(state ^ (state >>> 15), state | 1);
    word ^= word + Math.imul(word ^ (word >>> 7), word | 61);
    return ((word ^ (word >>> 14)) >>> 0) / 4294967296;
  };
}

const roll = dice(4711);
const pick = list => list[Math.floor(roll() * list.length)];
const hex = digits => Array.from({ length: digits }, () => Math.floor(roll() * 16).toString(16)).join('');

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

export const HOSTILE = '<img src=x onerror=alert(1)>';
export const HOSTILE_CLIENT = '"><script>alert(1)</script>\u202egnp.exe';

const CLIENTS = ['claude-code', 'vscode', 'cursor', 'zed', 'inspector', 'agent-runner', 'goose', 'codex'];
const PRINCIPALS = ['corp:ann', 'corp:bob', 'corp:chen', 'corp:dana', 'corp:eve', 'key:ci', 'key:nightly', 'partner:acme', undefined];
const REVISIONS = ['2025-03-26', '2025-06-18', '2025-11-25'];

export const TOOLS = {
  tickets: ['create_ticket', 'find_tickets', 'close_ticket', 'assign'],
  files: ['read_file', 'write_file', 'list_folder', 'search_files'],
  github: ['search_code', 'open_pull_request', 'list_issues', HOSTILE],
  search: ['index_folder', 'query', 'explain'],
  weather: ['forecast'],
};

function session(now, changes = {}) {
  const key = hex(32);
  const created = now - Math.floor(roll() ** 3 * 72 * HOUR) - 5000;
  const isAwake = roll() < 0.12;
  return {
    key,
    label: `s-${key.slice(0, 8)}`,
    state: isAwake ? 'awake' : 'dormant',
    owner: pick(PRINCIPALS),
    client_name: pick(CLIENTS),
    backend: pick(['tickets', 'files', 'files', 'github', 'search']),
    revision: pick(REVISIONS),
    phase: 'initialized',
    created,
    last_used: isAwake ? now - Math.floor(roll() ** 2 * 15 * MINUTE) : now - Math.floor(roll() * (now - created)),
    deadline: now + 24 * HOUR,
    calls: isAwake ? Number(roll() < 0.1) : undefined,
    readers: isAwake ? Math.floor(roll() * 2.2) : undefined,
    events: Math.floor(roll() ** 4 * 300),
    problems: [],
    waiting_for_client: 0,
    node: 'n-7c11',
    last_tool: undefined,
    ...changes,
  };
}

const named = (label, changes) => ({ key: label.slice(2) + '00c2a0f8b1d4e6977731cafe'.slice(0, 24), label, ...changes });

/** The sessions that went wrong, with what is known of them beyond a row. */
function special(now) {
  const at = (minutes, seconds = 0) => now - minutes * MINUTE - seconds * SECOND;
  return [
    {
      row: named('s-4f3a9c01', {
        state: 'awake', owner: 'corp:ann', client_name: 'claude-code', backend: 'tickets', revision: '2025-11-25', created: at(192), last_used: at(4, 12), calls: 2, oldest_call: at(4, 12), readers: 1, events: 214,
        waiting_for_client: 1, remote: '203.0.113.7', transport: 'https', last_tool: 'create_ticket',
        problems: ['`tools/call create_ticket` (id 17) has waited 4m 12s for the client to answer a question; the client does not read its stream'],
      }),
      in_flight: [
        { id: 17, method: 'tools/call', tool: 'create_ticket', started: at(4, 12), asking: 1, stream: 9, is_read: false },
        { id: 18, method: 'tools/call', tool: 'find_tickets', started: at(0, 9), progressed: at(0, 2), asking: 0, stream: 11, is_read: true, progress: { at: at(0, 2), text: 'page 3 of 8', value: 3, total: 8 } },
      ],
      streams: [
        { number: 0, open: true, last: 96, requests: [] },
        { number: 9, open: true, last: 3, requests: [{ id: 17, method: 'tools/call', tool: 'create_ticket' }] },
        { number: 11, open: true, last: 7, requests: [{ id: 18, method: 'tools/call', tool: 'find_tickets' }] },
        { number: 8, open: false, last: 12, requests: [] },
      ],
      readers: [{ stream: 11, remote: '203.0.113.7', position: 7, lag: 0, since: at(0, 9) }],
      timeline: [
        { at: at(192), what: 'created', text: 'the client began the session', ok: true },
        { at: at(160), what: 'dropped', text: 'a connection broke while its stream went on', ok: false },
        { at: at(159, 50), what: 'resumed', text: 'the client came back and got everything that it had missed', ok: true },
        { at: at(116), what: 'slept', text: 'the session was not used and went dormant', ok: true },
        { at: at(41), what: 'woken', text: 'a request woke the session', ok: true },
        { at: at(33), what: 'annotated', text: 'its metadata or its lifetime were changed', ok: true },
        { at: at(21, 20), what: 'taken_over', text: 'this node took the session over from another one', ok: true },
        { at: at(21, 15), what: 'rerun', text: 'a request that was open at a restart was run again', ok: true },
        { at: at(21, 10), what: 'resumed', text: 'the client came back and got everything that it had missed', ok: true },
        { at: at(12), what: 'asked', text: 'the server asked the client something', ok: true },
        { at: at(11, 50), what: 'answered', text: 'the client answered', ok: true },
        { at: at(4, 9), what: 'asked', text: 'the server asked the client something', ok: true },
        { at: at(3, 58), what: 'dropped', text: 'a connection broke while its stream went on', ok: false, times: 2 },
      ],
      recent: [
        { at: at(20, 50), ms: 70_000, tool: 'assign', outcome: 'result' },
        { at: at(11, 40), ms: 38_000, tool: 'create_ticket', outcome: 'result' },
        { at: at(8), ms: 9000, tool: 'find_tickets', outcome: 'tool_error' },
      ],
      limits: LIMITS,
      metadata: { ticket: 'OPS-4711', by: ['ann', 'chen'] },
    },
    {
      row: named('s-9b20ee41', {
        state: 'awake', owner: 'key:ci', client_name: 'agent-runner', backend: 'search', revision: '2025-06-18', created: at(320), last_used: at(9), calls: 1, oldest_call: at(9), readers: 1, events: 40, remote: '198.51.100.20', transport: 'https',
        problems: ['`tools/call index_folder` (id "job-8") runs for 9m and reported nothing for 6m 2s'],
      }),
      in_flight: [{ id: 'job-8', method: 'tools/call', tool: 'index_folder', started: at(9), progressed: at(6, 2), asking: 0, stream: 4, is_read: true, progress: { at: at(6, 2), text: 'folder src', value: 120, total: 400 } }],
      streams: [{ number: 4, open: true, last: 121, requests: [{ id: 'job-8', method: 'tools/call', tool: 'index_folder' }] }],
      readers: [{ stream: 4, remote: '198.51.100.20', position: 119, lag: 2, since: at(9) }],
      timeline: [
        { at: at(320), what: 'created', text: 'created by agent-runner 0.9', ok: true },
      ],
    },
    {
      row: named('s-c0ffee77', {
        state: 'awake', owner: 'partner:acme', client_name: HOSTILE_CLIENT, backend: 'github', revision: '2025-03-26', created: at(50), last_used: at(1), calls: 0, readers: 0, events: 512, remote: '192.0.2.99', transport: 'http',
        problems: ['31 of its 44 requests ended in an error'],
      }),
      in_flight: [],
      streams: [{ number: 0, open: true, last: 700, requests: [] }],
      readers: [],
      timeline: [
        { at: at(50), what: 'created', text: 'the client began the session', ok: true },
        { at: at(33), what: 'dropped', text: 'a connection broke while its stream went on', ok: false },
        { at: at(18), what: 'resumed_with_gap', text: 'the client came back, and some events were no longer kept', ok: false },
        { at: at(12), what: 'resumed_foreign', text: 'the client came back with an event id that is not of this session', ok: false },
        { at: at(6), what: 'dropped', text: 'a connection broke while its stream went on', ok: false },
      ],
      figures: { requests: 44, tool_calls: 40, resource_reads: 0, errors: 31, latency_ms: { p50: 31, p99: 2200, max: 4100 }, bytes_in: 40_221, bytes_out: 2_450_112 },
      metadata: { [HOSTILE]: HOSTILE },
    },
    {
      row: named('s-77aa0b12', {
        state: 'dormant', owner: 'corp:bob', client_name: 'vscode', backend: 'files', revision: '2025-11-25', created: at(600), last_used: at(75), events: 18,
        problems: ['`tools/call write_file` (id 5) was interrupted; it is dealt with when the client comes back'],
      }),
      in_flight: [],
      streams: [{ number: 3, open: true, last: 9, requests: [{ id: 5, method: 'tools/call', tool: 'write_file' }] }],
      readers: [],
      timeline: [
        { at: at(600), what: 'created', text: 'created by vscode 1.108', ok: true },
        { at: at(75), what: 'interrupted', text: 'a request was interrupted by a restart and answered with an error', ok: false },
      ],
    },
    {
      row: named('s-0dd0e5d1', { state: 'ended', end: 'revoked', owner: 'corp:eve', client_name: 'cursor', backend: 'files', revision: '2025-11-25', created: at(500), ended: at(12), problems: [] }),
      in_flight: [],
      streams: [],
      readers: [],
      timeline: [
        { at: at(500), what: 'created', text: 'created by cursor 3.2', ok: true },
        { at: at(480), what: 'slept', text: 'unused for 15m' },
        { at: at(100), what: 'woken', text: 'woken by `tools/call` within 51 ms', ok: true },
      ],
    },
    {
      row: named('s-1a2b3c4d', { state: 'awake', phase: 'initializing', client_name: 'old-agent', revision: '2025-03-26', created: at(2), last_used: at(2), calls: 0, readers: 0, events: 0, problems: ['the client never said `notifications/initialized`, so its requests are refused'] }),
      in_flight: [],
      streams: [],
      readers: [],
      timeline: [{ at: at(2), what: 'created', text: 'created by old-agent', ok: true }],
    },
  ];
}

export const LIMITS = [{ what: 'rate', limit: '60/min', left: 46, waiting: 0 }, { what: 'at_once', limit: '4', left: 2, waiting: 1 }, { what: 'day', limit: '1000', left: 812, waiting: 0, reset: 1_795_132_800 }];

const SCHEMA = {
  type: 'object',
  required: ['title', 'project'],
  properties: {
    title: { type: 'string', description: 'One line that says what is wrong.' },
    project: { type: 'string', enum: ['OPS', 'WEB', 'DATA'], description: 'Where it belongs.' },
    text: { type: 'string', maxLength: 4000, description: 'The story.' },
    priority: { type: 'integer', minimum: 1, maximum: 5, default: 3 },
    notify: { type: 'boolean', default: true, description: 'Tell the team.' },
    labels: { type: 'array', items: { type: 'string' } },
  },
};

function tool(backend, name) {
  return {
    name,
    title: name.startsWith('<') ? name : name.replaceAll('_', ' '),
    description: name === HOSTILE ? `A hostile server describes itself: <b onmouseover=alert(2)>${HOSTILE}</b>` : `The tool ${name} of ${backend}. It does what its name says, and answers with a text and structured content.`,
    inputSchema: name === 'create_ticket' ? SCHEMA : { type: 'object', properties: { path: { type: 'string', description: 'Which one.' }, limit: { type: 'integer', default: 20 } }, required: ['path'] },
    annotations: { readOnlyHint: /^(find|read|list|search|query|explain|forecast)/.test(name), destructiveHint: /^(close|write)/.test(name) },
  };
}

export function makeWorld({ sessions = 1200, now = Date.now() } = {}) {
  const details = new Map(special(now).map(of => [of.row.key, of]));
  const rows = [...details.values()].map(of => of.row);
  while (rows.length < sessions) rows.push(session(now));
  const ended = Array.from({ length: 140 }, (_, index) => {
    const created = now - Math.floor(roll() * 9 * HOUR) - HOUR;
    return session(now, { state: 'ended', end: pick(['deleted', 'deleted', 'expired', 'expired', 'revoked']), created, ended: now - index * 23_000 - 4000, calls: undefined, readers: undefined, requests: Math.floor(roll() ** 2 * 400), errors: roll() < 0.3 ? Math.floor(roll() * 9) : 0 });
  });
  ended.splice(3, 0, { ...rows.find(row => row.label === 's-0dd0e5d1'), requests: 188, errors: 2 });
  const backends = [
    { name: 'files', kind: 'child', target: 'npx -y @modelcontextprotocol/server-filesystem /srv', up: true, in_flight: 3, waiting: 0, starts: 41, server: { name: 'filesystem', version: '2026.8.31' }, era: 'sessions' },
    { name: 'github', kind: 'url', target: 'https://mcp.github.example/mcp', up: true, in_flight: 6, waiting: 0, starts: 3, server: { name: 'github-mcp', version: '4.2.0' }, era: 'modern', last_error: { at: now - 52 * MINUTE, text: 'the server answered 502; the call was repeated' } },
    { name: 'search', kind: 'child', target: 'uvx search-mcp --index /var/lib/search', up: true, in_flight: 8, waiting: 11, starts: 7, server: { name: 'search-mcp', version: '0.7.1' }, era: 'sessions' },
    { name: 'tickets', kind: 'url', target: 'https://tickets.example/mcp', up: true, in_flight: 4, waiting: 0, starts: 2, server: { name: 'tickets', version: '11.0' }, era: 'sessions' },
    { name: 'weather', kind: 'child', target: 'node /opt/weather/server.js', up: false, in_flight: 0, waiting: 0, starts: 12, last_error: { at: now - 3 * MINUTE, text: 'the program ended with exit status 1, 12 times within 10 minutes: `Error: Cannot find module \'undici\'`' } },
  ].map(row => ({ ...row, tools: TOOLS[row.name].length, tool_list: TOOLS[row.name].map(name => tool(row.name, name)) }));
  const data = Array.from({ length: 64 }, (_, index) => {
    const key = hex(32);
    const state = index % 9 === 7 ? 'expired' : index % 13 === 11 ? 'ended' : 'active';
    return {
      key, name: `d-${key.slice(0, 8)}`, state, end: state === 'ended' ? 'deleted' : undefined, owner: pick(PRINCIPALS), kind: pick(['workspace', 'cart', 'notes']), label: index === 2 ? HOSTILE : pick(['release notes', 'spring order', undefined, 'draft']),
      created: now - Math.floor(roll() * 40) * 24 * HOUR - HOUR, last_used: state === 'ended' ? undefined : now - Math.floor(roll() * 20) * HOUR, expires: state === 'active' ? now + 7 * 24 * HOUR : undefined, ended: state === 'active' ? undefined : now - HOUR,
      forgotten: state === 'active' ? undefined : now + 29 * 24 * HOUR, bytes: state === 'ended' ? undefined : Math.floor(roll() ** 3 * 900_000), edition: Math.floor(roll() * 80),
    };
  });
  const tasks = Array.from({ length: 9 }, (_, index) => ({ label: `t-${hex(8)}`, owner: pick(PRINCIPALS), backend: 'search', tool: pick(TOOLS.search), status: ['working', 'working', 'input_required', 'completed', 'failed'][index % 5], created: now - index * 7 * MINUTE, deadline: now + HOUR, node: 'n-7c11' }));
  const nodes = [
    { node: 'n-7c11', label: 'n-7c11 (this one)', address: '10.0.4.11:8486', version: '0.1.0', state: 'serving', lease_age_ms: 640, sessions: 0, load: 136, clock_ms: 0, answered: true },
    { node: 'n-a003', label: 'n-a003', address: '10.0.4.12:8486', version: '0.1.0', state: 'serving', lease_age_ms: 1210, sessions: 402, load: 402, clock_ms: 3, answered: true },
    { node: 'n-b9d2', label: 'n-b9d2', address: '10.0.4.13:8486', version: '0.0.9', state: 'draining', lease_age_ms: 9400, sessions: 17, load: 17, clock_ms: -1620, answered: false },
  ];
  return { now, rows, ended, details, backends, data, tasks, nodes, roll, pick, hex, audit: firstAudit(now), started: now - 2 * 24 * HOUR - 3 * HOUR };
}

function firstAudit(now) {
  const rows = [];
  const add = (minutes, row) => rows.push({ seq: 90_000 - rows.length, time: new Date(now - minutes * MINUTE).toISOString(), node: 'n-7c11', ...row });
  add(0.3, { event: 'call_finished', principal: { iss: 'corp', sub: 'ann', kind: 'token' }, backend: 'tickets', method: 'tools/call', name: 'find_tickets', outcome: 'ok', duration_ms: 42 });
  add(1, { event: 'refused', principal: { iss: 'partner', sub: 'acme', kind: 'token' }, reason: 'rate_limited', outcome: 'limited', method: 'tools/call', name: HOSTILE });
  add(12, { event: 'admin_action', principal: { sub: '1000', kind: 'operator' }, method: 'sessions.revoke', session: 's-0dd0e5d1', reason: 'laptop was stolen', outcome: 'ok' });
  add(12, { event: 'session_ended', principal: { iss: 'corp', sub: 'eve', kind: 'token' }, session: 's-0dd0e5d1', client: 'cursor', reason: 'revoked' });
  add(15, { event: 'elicitation_sent', principal: { iss: 'corp', sub: 'ann', kind: 'token' }, session: 's-4f3a9c01', backend: 'tickets' });
  add(33, { event: 'admin_action', principal: { sub: '1000', kind: 'operator' }, method: 'sessions.set', session: 's-4f3a9c01', reason: 'noted the ticket', outcome: 'ok', change: { ticket: { old: null, new: 'OPS-4711' } } });
  for (let index = 0; index < 40; index += 1) add(40 + index * 3, { event: 'call_finished', principal: { iss: 'corp', sub: pick(['ann', 'bob', 'chen']), kind: 'token' }, backend: 'files', method: 'tools/call', name: pick(TOOLS.files), outcome: roll() < 0.9 ? 'ok' : 'tool_error', duration_ms: Math.floor(roll() * 300) });
  return rows;
}
