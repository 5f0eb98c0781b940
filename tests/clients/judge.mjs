// Judges what the conformance suite saved: reads every `checks.json`, not what the suite printed.
//
// Usage: node judge.mjs OUT REVISION=SCENARIOS...
// OUT/REVISION holds one folder per scenario and the exit code of the suite in `status`. A scenario
// passes if it has checks and none of them failed. A revision with fewer scenarios than given
// fails, since a suite that ran nothing must not pass.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import process from 'node:process';

import { STATUSES, isGood, readScenarios } from './checks.mjs';

const COLUMNS = ['revision', 'scenarios', 'passed', 'failed', ...STATUSES];

const [out, ...expectations] = process.argv.slice(2);
const rows = [];
const remarks = [];
let passed = 0;
let failed = 0;

for (const expectation of expectations) {
  const [revision, least] = expectation.split('=');
  const scenarios = readScenarios(join(out, revision));
  const good = scenarios.filter(isGood);
  let bad = scenarios.length - good.length;

  for (const { name, checks, problem } of scenarios) {
    if (problem !== undefined) remarks.push(`FAILURE ${revision} ${name}: ${problem}`);
    for (const check of checks) {
      if (check.status === 'SUCCESS' || check.status === 'INFO') continue;
      remarks.push(`${check.status} ${revision} ${name}: ${check.id}: ${check.errorMessage ?? check.description}`);
    }
  }
  // A scenario that left no trace counts as failed.
  if (scenarios.length < Number(least)) {
    bad += Number(least) - scenarios.length;
    remarks.push(`FAILURE ${revision}: ${scenarios.length} scenarios ran, expected at least ${least}`);
  }
  const status = readFileSync(join(out, revision, 'status'), 'utf8').trim();
  if (status !== '0' && bad === 0) {
    bad += 1;
    remarks.push(`FAILURE ${revision}: the suite exited with ${status}, see ${revision}/suite.log`);
  }

  const count = wanted => scenarios.flatMap(({ checks }) => checks).filter(({ status }) => status === wanted).length;
  rows.push([revision, scenarios.length, good.length, bad, ...STATUSES.map(count)]);
  passed += good.length;
  failed += bad;
}

print([COLUMNS, ...rows]);
for (const remark of remarks) console.log(remark);
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed === 0 && passed > 0 ? 0 : 1);

function print(table) {
  const widths = table[0].map((_, column) => Math.max(...table.map(row => `${row[column]}`.length)));
  for (const row of table) {
    console.log(row.map((cell, column) => `${cell}`.padEnd(widths[column])).join('  ').trimEnd());
  }
}
