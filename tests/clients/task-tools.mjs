// The tools of the suite that become tasks, on the TypeScript SDK v1, which has the tasks of 2025-11-25.
//
// In: calls with or without a `task` in their params. Out: what a session's server answers them with, a task or a
// result. `fixtures.mjs` serves them.

import { createRequire } from 'node:module';
import process from 'node:process';
import { setTimeout as pause } from 'node:timers/promises';

const require = createRequire(process.execPath);
const types = require('@modelcontextprotocol/sdk/types.js');
const memory = require('@modelcontextprotocol/sdk/experimental/tasks/stores/in-memory.js');

/** Short enough that no test waits for the SDK, which polls its tasks as often as it tells others to. */
const POLL_MS = 100;
/** Long enough to be seen at work, and short enough for a suite that waits. */
const JOB_MS = 500;

export const capability = { list: {}, cancel: {}, requests: { tools: { call: {} } } };

/** What a server with tasks is made with; the tasks of all sessions are in one store. */
export function options() {
  return { taskStore, taskMessageQueue };
}
const taskStore = new memory.InMemoryTaskStore();
const taskMessageQueue = new memory.InMemoryTaskMessageQueue();

const says = words => ({ content: [{ type: 'text', text: words }] });
const string = { type: 'string' };

/** Tools by name: whether they become tasks, what they take, and what they do. `ask` asks the client. */
const TOOLS = {
  greet: ['forbidden', { name: string }, async ({ name }) => says(`Hello, ${name}!`)],
  slow_compute: [
    'optional',
    { seconds: { type: 'number' }, label: string },
    async ({ seconds = 1, label = '' }) => {
      await pause(seconds * 1000);
      return says(`${label} took ${seconds} s`);
    },
  ],
  failing_job: [
    'required',
    {},
    async () => {
      await pause(JOB_MS);
      return { isError: true, ...says('This job always fails') };
    },
  ],
  protocol_error_job: [
    'required',
    {},
    async () => {
      await pause(JOB_MS);
      throw new types.McpError(types.ErrorCode.InternalError, 'This job always ends with an error');
    },
  ],
  confirm_delete: [
    'required',
    { filename: string },
    async ({ filename }, ask) => {
      const { action, content } = await ask('confirm', `Delete ${filename}?`, { confirm: { type: 'boolean' } });
      return says(`${filename} is ${action === 'accept' && content?.confirm ? 'deleted' : 'kept'}`);
    },
  ],
  multi_input: [
    'required',
    {},
    async (_, ask) => {
      const names = ['first', 'second'].map(which => ask(which, `The ${which} name?`, { name: string }));
      const [first, second] = await Promise.all(names);
      return says(`${JSON.stringify(first.content)} and ${JSON.stringify(second.content)}`);
    },
  ],
  test_tool_with_task: [
    'required',
    {},
    async (_, __, { name }) => {
      await pause(JOB_MS);
      return says(`Hello, ${name}!`);
    },
    // Before there is a task, as part of the call.
    async ask => (await ask('user_name', 'What is your name?', { name: string })).content,
  ],
};

export function list() {
  return Object.entries(TOOLS).map(([name, [taskSupport, properties]]) => ({
    name,
    description: `The fixture ${name}`,
    inputSchema: { type: 'object', properties },
    execution: { taskSupport },
  }));
}

/** Whether there is a tool of that name. */
export const has = name => name in TOOLS;

/** Answers a call. */
export async function call({ name, arguments: given = {}, task: wish }, extra) {
  const [support, , work, before = async () => undefined] = TOOLS[name];
  if (support === 'required' && !wish) {
    throw new types.McpError(types.ErrorCode.MethodNotFound, `${name} can only be called as a task`);
  }
  const known = await before(asker(extra));
  if (support === 'forbidden' || !wish) return work(given, asker(extra), known);
  const task = await extra.taskStore.createTask({ ttl: wish.ttl, pollInterval: POLL_MS });
  const ends = work(given, asker(extra, task), known).then(
    result => extra.taskStore.storeTaskResult(task.taskId, result.isError ? 'failed' : 'completed', result),
    // The SDK has no place for the error itself.
    error => extra.taskStore.updateTaskStatus(task.taskId, 'failed', error.message)
  );
  // A task that was cancelled takes no outcome.
  ends.catch(error => console.error(`${name}: ${error.message}`));
  return { task };
}

/** Asks the client, by way of a task if there is one. */
function asker(extra, task) {
  return (key, message, properties) => {
    const params = {
      mode: 'form',
      message,
      requestedSchema: { type: 'object', properties },
      _meta: { 'dev.tenure/inputKey': key },
    };
    const relatedTask = task && { taskId: task.taskId };
    return extra.sendRequest({ method: 'elicitation/create', params }, types.ElicitResultSchema, { relatedTask });
  };
}
