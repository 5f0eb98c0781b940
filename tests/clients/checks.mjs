// Reads what the conformance suite saved: `checks.json` of every scenario, not what the suite printed.

import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

export const STATUSES = ['SUCCESS', 'FAILURE', 'WARNING', 'INFO', 'SKIPPED'];

/** The scenario folders are named `server-<scenario>-<time>`. */
export function readScenarios(folder) {
  return readdirSync(folder, { withFileTypes: true })
    .filter(entry => entry.isDirectory())
    .map(({ name: directory }) => {
      const name = directory.replace(/^server-/, '').replace(/-\d{4}-\d\d-\d\dT[\d-]+Z$/, '');
      const file = join(folder, directory, 'checks.json');
      if (!existsSync(file)) return { name, checks: [], problem: 'no checks.json' };
      try {
        const checks = JSON.parse(readFileSync(file, 'utf8'));
        if (!Array.isArray(checks) || checks.length === 0) return { name, checks: [], problem: 'no checks' };
        const unknown = checks.find(({ status }) => !STATUSES.includes(status));
        return { name, checks, problem: unknown && `unknown status ${unknown.status}` };
      } catch (error) {
        return { name, checks: [], problem: `unreadable checks.json: ${error.message}` };
      }
    });
}

export function isGood({ checks, problem }) {
  return problem === undefined && checks.every(({ status }) => status !== 'FAILURE');
}
