// Compares two runs of the conformance suite: whatever passed in the first must pass in the second.
//
// Usage: node compare.mjs BEFORE AFTER REVISION=SCENARIOS...
// BEFORE and AFTER hold what `tests/clients/conformance` saved. A revision of which fewer scenarios than given passed
// before fails, since a comparison with nothing must not pass.

import { join } from 'node:path';
import process from 'node:process';

import { isGood, readScenarios } from './checks.mjs';

const [before, after, ...expectations] = process.argv.slice(2);
let failed = 0;
for (const expectation of expectations) {
  const [revision, least] = expectation.split('=');
  const first = readScenarios(join(before, revision)).filter(isGood);
  const second = readScenarios(join(after, revision));
  const passed = new Set(second.filter(isGood).map(({ name }) => name));
  const lost = first.filter(({ name }) => !passed.has(name));
  console.log(`${revision}: ${first.length} scenarios pass without the gateway, ${passed.size} with it`);
  for (const { name } of lost) {
    failed += 1;
    const { checks = [], problem } = second.find(scenario => scenario.name === name) ?? { problem: 'it did not run' };
    const why = checks.find(({ status }) => status === 'FAILURE');
    console.log(`FAILURE ${revision} ${name}: ${problem ?? `${why?.id}: ${why?.errorMessage ?? why?.description}`}`);
  }
  if (first.length < Number(least)) {
    failed += 1;
    console.log(`FAILURE ${revision}: ${first.length} scenarios passed without the gateway, expected at least ${least}`);
  }
}
process.exit(failed === 0 && expectations.length > 0 ? 0 : 1);
