"""Attacks a real `tenure serve` as a hostile client would, on loopback alone, and measures what other clients notice of it.

Usage: python siege.py TENURE [PATTERN...] [--list] [--json FILE] [--docs FILE] [--keep FOLDER]

TENURE is the binary. A PATTERN chooses legs by name, such as `half-sent*`. For each leg a server of its own is started on a store of its
own; clients that behave call it from 127.0.0.1 before, during and after the attack, which comes from 127.0.0.2 in a process of its own
at low priority. Prints a row for each leg, and ends with 1 if one fails. A leg fails if

- memory grows by more than `clients.memory` of the leg and 64 MiB,
- a call of another client is refused, or fails,
- the 99th percentile of the others' times is more than twice that under a control, and more than 20 ms, in two runs,
- memory and descriptors are not given back within 60 s,
- or something of its own does not hold: `--list` says what.
"""

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from fnmatch import fnmatchcase
from pathlib import Path

from report import progress, table, write_docs
from run import Siege
from legs import LEGS


async def main():
    parser = argparse.ArgumentParser(
        prog="./dev siege", description=__doc__.split("\n\n", 2)[2], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tenure", help=argparse.SUPPRESS)
    parser.add_argument("patterns", nargs="*", metavar="PATTERN", help="only legs whose names match")
    parser.add_argument("--list", action="store_true", help="names the legs, and says what each does")
    parser.add_argument("--json", metavar="FILE", help="writes the figures")
    parser.add_argument("--docs", metavar="FILE", help="writes a short table between the marks of this document")
    parser.add_argument("--keep", metavar="FOLDER", help="keeps the stores and logs of all legs there")
    arguments = parser.parse_intermixed_args()
    chosen = [
        leg for leg in LEGS.values() if not arguments.patterns or any(fnmatchcase(leg.name, one) for one in arguments.patterns)
    ]
    if not chosen:
        parser.error(f"no leg matches {' '.join(arguments.patterns)}; `./dev siege --list` names them")
    if arguments.list:
        for leg in chosen:
            print(f"{leg.name:20} {leg.about}")
        return 0
    folder = Path(arguments.keep or tempfile.mkdtemp(prefix="siege-"))
    began, results = time.monotonic(), []
    for number, leg in enumerate(chosen, 1):
        place = folder / leg.name
        name = f"{number}/{len(chosen)} {leg.name}"
        result = await Siege(leg, Path(arguments.tenure).resolve(), place / "first", progress(name)).run()
        if result["is_only_slow"]:
            # Others use this machine too. What comes from the attack comes again.
            result = await Siege(leg, Path(arguments.tenure).resolve(), place / "second", progress(f"{name}, again")).run()
        results.append(result)
        progress(None)
    print(table(results))
    bad = [result for result in results if result["complaints"]]
    for result in bad:
        for complaint in result["complaints"]:
            print(f"{result['leg']}: {complaint}")
    print(f"\n{len(results)} legs, {len(bad)} failed, {time.monotonic() - began:.0f} s")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=2) + "\n")
    if arguments.docs:
        write_docs(arguments.docs, results)
    if bad:
        print(f"logs are in {folder}")
    elif not arguments.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
