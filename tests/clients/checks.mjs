// Reads what the conformance suite saved: `checks.json` of every scenario, not what the suite printed.

import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

export const STATUSES = ['SUCCESS', 'FAILURE', 'WARNING', 'INFO', 'SKIPPED'];

const TIME = /-\d{4}-\d\d-\d\dT[\d-]+Z$/;

/**
 * The scenario folders are named `server-<scenario>-<time>`, or without the first word in the client half. A scenario with a
 * slash in its name has its folder in another one.
 */
export function readScenarios(folder, group = '') {
  return readdirSync(folder, { withFileTypes: true })
    .filter(entry => entry.isDirectory())
    .flatMap(({ name: directory }) => {
      const path = join(folder, directory);
      if (group === '' && !TIME.test(directory)) return readScenarios(path, `${directory}/`);
      return [readScenario(path, group + directory.replace(/^server-/, '').replace(TIME, ''))];
    });
}

function readScenario(folder, name) {
  const file = join(folder, 'checks.json');
  if (!existsSync(file)) return { name, checks: [], problem: 'no checks.json' };
  try {
    const checks = JSON.parse(readFileSync(file, 'utf8'));
    if (!Array.isArray(checks) || checks.length === 0) return { name, checks: [], problem: 'no checks' };
    const unknown = checks.find(({ status }) => !STATUSES.includes(status));
    return { name, checks, problem: unknown && `unknown status ${unknown.status}` };
  } catch (error) {
    return { name, checks: [], problem: `unreadable checks.json: ${error.message}` };
  }
}

/** Nothing in it failed, and not all of it was skipped. */
export function isGood({ checks, problem }) {
  return problem === undefined && checks.every(isGoodCheck) && checks.some(({ status }) => status !== 'SKIPPED');
}

/** Something in it succeeded, too: there are scenarios that only remark that they found nothing to look at. */
export function isProven(scenario) {
  return isGood(scenario) && scenario.checks.some(({ status }) => status === 'SUCCESS');
}

export function isGoodCheck({ status }) {
  return status !== 'FAILURE';
}

/**
 * What is expected not to pass on a leg: the lines of `expected.txt` that name it. Each is
 * `LEG REVISION SCENARIO[:CHECK] REASON`.
 */
export function readExpected(file, leg) {
  return readFileSync(file, 'utf8')
    .split('\n')
    .filter(line => line.trim() !== '' && !line.startsWith('#'))
    .map(line => {
      const [, where, revision, what, reason] = /^(\S+)\s+(\S+)\s+(\S+)\s+(\S.*)$/.exec(line) ?? [];
      if (reason === undefined) throw new Error(`cannot read this line of ${file}: ${line}`);
      const [scenario, check] = what.split(':');
      return { where, revision, scenario, check, reason };
    })
    .filter(({ where }) => where === leg);
}
