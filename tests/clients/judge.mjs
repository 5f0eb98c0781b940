// Judges what the conformance suite saved: reads every `checks.json`, not what the suite printed.
//
// Usage: node judge.mjs OUT LEG REVISION=SCENARIOS...
// OUT/REVISION holds one folder per scenario and the exit code of the suite in `status`. A scenario passes if some of its
// checks succeeded and none failed. A revision with fewer scenarios than given fails, since a suite that ran nothing must
// not pass. What `expected.txt` lists for the leg must not pass: an entry that does is out of date, and fails too.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import process from 'node:process';

import { STATUSES, isGoodCheck, isProven, readExpected, readScenarios } from './checks.mjs';

const COLUMNS = ['revision', 'scenarios', 'passed', 'expected', 'failed', ...STATUSES];

const [out, leg, ...sets] = process.argv.slice(2);
const expectations = readExpected(join(import.meta.dirname, 'expected.txt'), leg);
const rows = [];
const remarks = [];
let passed = 0;
let failed = 0;

for (const set of sets) {
  const [revision, least] = set.split('=');
  const scenarios = readScenarios(join(out, revision));
  const listed = expectations.filter(entry => entry.revision === revision);
  const verdicts = scenarios.map(scenario => judge(scenario, revision, listed));
  const count = verdict => verdicts.filter(it => it === verdict).length;
  let bad = count('failed');

  for (const { scenario, check } of listed) {
    if (scenarios.some(({ name }) => name === scenario)) continue;
    bad += 1;
    remarks.push(`FAILURE ${revision} ${label(scenario, check)}: listed in expected.txt, but it did not run`);
  }
  // A scenario that left no trace counts as failed.
  if (scenarios.length < Number(least)) {
    bad += Number(least) - scenarios.length;
    remarks.push(`FAILURE ${revision}: ${scenarios.length} scenarios ran, expected at least ${least}`);
  }
  const status = readFileSync(join(out, revision, 'status'), 'utf8').trim();
  if (status !== '0' && bad === 0 && count('expected') === 0) {
    bad += 1;
    remarks.push(`FAILURE ${revision}: the suite exited with ${status}, see ${revision}/suite.log`);
  }

  const of = wanted => scenarios.flatMap(({ checks }) => checks).filter(({ status }) => status === wanted).length;
  rows.push([revision, scenarios.length, count('passed'), count('expected'), bad, ...STATUSES.map(of)]);
  passed += count('passed');
  failed += bad;
}

print([COLUMNS, ...rows]);
for (const remark of remarks) console.log(remark);
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed === 0 && passed > 0 ? 0 : 1);

/** `passed`, `failed`, or `expected` for one that does not pass and is listed. */
function judge(scenario, revision, listed) {
  const { name, checks, problem } = scenario;
  const entries = listed.filter(entry => entry.scenario === name);
  const whole = entries.find(({ check }) => check === undefined);
  const excused = check => entries.find(entry => entry.check === check.id);
  if (problem !== undefined) remarks.push(`FAILURE ${revision} ${name}: ${problem}`);
  if (whole !== undefined) remarks.push(`EXPECTED ${revision} ${name}: ${whole.reason}`);
  for (const check of checks) {
    if (check.status === 'SUCCESS' || check.status === 'INFO' || whole !== undefined) continue;
    const reason = excused(check)?.reason;
    const word = reason === undefined ? check.status : 'EXPECTED';
    const why = reason ?? check.errorMessage ?? check.description;
    remarks.push(`${word} ${revision} ${name}: ${check.id}: ${why}`);
  }
  const stale = entries.filter(({ check }) =>
    check === undefined
      ? isProven(scenario)
      : !checks.some(({ id, status }) => id === check && status !== 'SUCCESS' && status !== 'INFO'),
  );
  for (const { check } of stale) {
    remarks.push(`FAILURE ${revision} ${label(name, check)}: it passes, but expected.txt says that it does not`);
  }
  if (stale.length > 0 || problem !== undefined) return 'failed';
  if (whole !== undefined) return 'expected';
  const excuses = checks.filter(check => !isGoodCheck(check)).every(excused);
  if (entries.length > 0 && excuses) return 'expected';
  if (isProven(scenario)) return 'passed';
  if (checks.every(isGoodCheck)) {
    remarks.push(`FAILURE ${revision} ${name}: the suite found nothing to check, and expected.txt does not list it`);
  }
  return 'failed';
}

function label(scenario, check) {
  return check === undefined ? scenario : `${scenario}:${check}`;
}

function print(table) {
  const widths = table[0].map((_, column) => Math.max(...table.map(row => `${row[column]}`.length)));
  for (const row of table) {
    console.log(row.map((cell, column) => `${cell}`.padEnd(widths[column])).join('  ').trimEnd());
  }
}
