"""Deploys one node again and again while every client of the matrix calls, and counts the calls that a deploy breaks.

Usage: python deploys.py DIR TENURE [N] [--way take-over|restart|rolling] [--clients PATTERN] [--server v1|v2]
                         [--behind http|stdio] [--nats NATS] [--balancers DIR]

DIR and TENURE are those of `matrix.py`; N is the number of deploys (default: 10). `take-over` starts the next process with
`--take-over`, so that no connection is refused; `restart` stops the old process and starts the next one when it has gone,
which refuses connections in between. `rolling` replaces three nodes of a cluster, one after the other, behind a balancer without
stickiness; it needs a NATS server and the folder that `tests/balancers/install` filled. The server behind is one over HTTP, which stays; over stdio there is one process for each
session, and every deploy starts all of them again, which takes a machine with more than a few cores. Each client makes short and long calls, safe and unsafe, all the time. Prints for each
client and kind of call how many were made and how those ended that got no result; fails if there are any but unsafe calls
that outlasted the grace and said so. An unsafe call that was run twice, or was answered and not run, is an error whatever the
client saw.
"""

import argparse
import asyncio
import collections
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from cluster import Cluster
from gateway import Gateway, tail
from matrix import GOOD, LONG_SECONDS, word
from roster import ENDED, Client, roster


@dataclass(frozen=True)
class Kind:
    """One kind of call, and how long its caller rests between two of them."""

    name: str
    tool: str
    seconds: float
    rest_seconds: float


# The last two outlast the time that a stop gives (`shutdown.grace`, 10 s unless told otherwise).
KINDS = [
    Kind("short safe", "look", 0.05, 0.6),
    Kind("short unsafe", "change", 0.05, 0.6),
    Kind("long safe", "look", 7, 0.6),
    Kind("long unsafe", "change", 4, 0.6),
    Kind("outlasting safe", "look", LONG_SECONDS, 0.6),
    Kind("outlasting unsafe", "change", LONG_SECONDS, 0.6),
]
# A call that cannot be repeated, and outlasts the grace, may end with this.
MAY_END = {("outlasting unsafe", "interrupted")}
# Every call of the Inspector is a process that has to start, so it makes fewer of them.
INSPECTOR_KINDS = {"short safe", "long unsafe"}
INSPECTOR_REST_SECONDS = 4
# Longer than the longest call, so that one that is run again by the next process is over before the deploy after that.
BETWEEN_SECONDS = LONG_SECONDS + 6
# A call that has to be run again takes as long as a deploy and twice its own time.
CALL_LIMIT_SECONDS = 90
# So many lines about what went wrong are printed.
STORIES = 60


class Load:
    """All calls of all clients, until it is told to end."""

    def __init__(self, gateway):
        self.gateway = gateway
        self.is_over = False
        self.counts = collections.defaultdict(collections.Counter)
        self.unsafe = {}
        self.stories = []
        self.began = time.monotonic()

    async def call_again_and_again(self, name, client, kind):
        rest = INSPECTOR_REST_SECONDS if name == "inspector" else kind.rest_seconds
        number = 0
        while not self.is_over:
            number += 1
            key = f"{name}-{kind.name.replace(' ', '-')}-{number}"
            at = time.monotonic() - self.began
            try:
                answer = await asyncio.wait_for(client.call(kind.tool, key=key, seconds=kind.seconds), CALL_LIMIT_SECONDS)
                outcome = word((answer, 0))
            except asyncio.TimeoutError:
                answer, outcome = {}, word(None)
            self.counts[name, kind.name][outcome] += 1
            if kind.tool == "change":
                self.unsafe[key] = outcome
            if outcome != GOOD:
                self.stories.append(f"{at:.1f} s: {key}: {answer.get('error', outcome)} ({answer.get('code')})")
            if answer.get("error") == ENDED:
                return
            await asyncio.sleep(rest)

    def wrong_runs(self):
        """Unsafe calls that were run twice, or answered and not run."""
        begun = collections.Counter(key for verb, _, key, _ in self.gateway.runs() if verb == "begin")
        for key, outcome in self.unsafe.items():
            if begun[key] > 1 or (outcome == GOOD and begun[key] != 1):
                yield f"{key}: {outcome}, and run {begun[key]} times"


async def deploy(gateway, way):
    if way == "take-over":
        await gateway.take_over()
    elif way == "rolling":
        await gateway.roll()
    else:
        await gateway.terminate()
        await gateway.start()


def table(counts, names):
    lines = ["| client | " + " | ".join(kind.name for kind in KINDS) + " |", "|---|" + "---|" * len(KINDS)]
    for name, kind in names.items():
        row = []
        for call in KINDS:
            found = counts[name, call.name]
            bad = [f"{number} {outcome}" for outcome, number in sorted(found.items()) if outcome != GOOD]
            row.append(", ".join([f"{sum(found.values())} calls", *bad]) if found else "")
        lines.append(f"| {kind.title} | " + " | ".join(row) + " |")
    return "\n".join(lines)


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("tenure")
    parser.add_argument("deploys", nargs="?", type=int, default=10)
    parser.add_argument("--way", choices=["take-over", "restart", "rolling"], default="take-over")
    parser.add_argument("--clients", default="*")
    parser.add_argument("--server", choices=["v1", "v2"], default="v1")
    parser.add_argument("--behind", choices=["http", "stdio"], default="http")
    parser.add_argument("--nats", type=Path, default=Path(".dev/nats/newest"))
    parser.add_argument("--balancers", type=Path, default=Path(".dev/balancers"))
    arguments = parser.parse_args()
    kinds = {name: kind for name, kind in roster(arguments.folder).items() if fnmatchcase(name, arguments.clients)}
    node = next(iter(kinds.values())).command[0]
    if node.endswith("python"):
        node = roster(arguments.folder)["ts1"].command[0]
    folder = Path(tempfile.mkdtemp(prefix="deploys-"))
    clients, times = {}, []
    if arguments.way == "rolling":
        place = Cluster(arguments.tenure, node, folder, arguments.server, arguments.nats, arguments.balancers)
    else:
        place = Gateway(arguments.tenure, node, folder, arguments.server, arguments.behind == "http")
    async with place as gateway:
        load = Load(gateway)
        try:
            for name, kind in kinds.items():
                clients[name] = await Client.start(kind, gateway.url, folder)
            calling = [
                asyncio.create_task(load.call_again_and_again(name, client, kind))
                for name, client in clients.items()
                for kind in KINDS
                if name != "inspector" or kind.name in INSPECTOR_KINDS
            ]
            for number in range(1, arguments.deploys + 1):
                await asyncio.sleep(BETWEEN_SECONDS)
                began = time.monotonic()
                await deploy(gateway, arguments.way)
                times.append(time.monotonic() - began)
                load.stories.append(f"{time.monotonic() - load.began:.1f} s: deploy {number} took {times[-1]:.1f} s")
                print(f"deploy {number}: {times[-1]:.1f} s", flush=True)
            load.is_over = True
            await asyncio.gather(*calling)
        finally:
            for client in clients.values():
                await client.stop()
        wrong = list(load.wrong_runs())
    bad = sum(
        number
        for (_, kind), found in load.counts.items()
        for outcome, number in found.items()
        if outcome != GOOD and (kind, outcome) not in MAY_END
    )
    calls = sum(sum(found.values()) for found in load.counts.values())
    print(f"\n{table(load.counts, kinds)}\n")
    print(f"{len(times)} deploys ({arguments.way}), {calls} calls, {bad} broken, {len(wrong)} not run once")
    if bad or wrong:
        print("\n".join([*wrong, *load.stories][:STORIES]))
        print(f"\nlog of the gateways, kept in {folder}:\n{tail(folder / 'gateway.log')}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if bad or wrong else 0)


if __name__ == "__main__":
    asyncio.run(main())
