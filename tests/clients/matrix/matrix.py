"""The matrix: every client, everything that can end under its calls, and how a safe and an unsafe call come out of it.

Usage: python matrix.py DIR TENURE [PATTERN...] [--docs FILE] [--jobs N]

DIR is the folder that `tests/clients/install` and `tests/clients/matrix/install` filled, TENURE the binary. A PATTERN
chooses cells by `SERVER/CLIENT/EVENT`, such as `*/py*/kill*`. Prints a table and holds it against `expected.txt`: a cell that
is better than expected fails as well as one that is worse. With --docs, the table between the markers of that file has to be
the expected one, and is written if UPDATE_EXPECT is set.

In each cell a client of its own calls `look`, which may be run again, and `change`, which may not, at a Tenure of its own.
While both run, something ends. Then both are waited for, and the client calls once more: it has to be in the same session.
"""

import argparse
import asyncio
import os
import re
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from gateway import PATIENCE_SECONDS, Gateway, tail
from roster import HERE, Client, roster

# How long the two calls go on after the event, if they are not cut off.
CALL_SECONDS = 3
# Longer than the time that a stop gives to calls (`shutdown.grace`, 10 s unless told otherwise).
LONG_SECONDS = 14
# When something ends after both calls have begun: what opens their streams has to have reached the client.
INTO_SECONDS = 1
# A call that is not answered so long after the event hangs. Less than the minute after which some clients give up by
# themselves, more than any of them needs to come back.
HANG_SECONDS = 45

GOOD = "✔"
REASONS = {-31010: "interrupted", -31011: "unavailable", -31012: "timed out"}
# What the texts of errors without a code say, in the words of the table.
SAID = {
    r"may or may not have been carried out|shut down before the answer came": "interrupted",
    r"server has ended|broke off its answer|cannot be reached": "unavailable",
    r"refused|connect attempts failed|ECONNREFUSED": "refused",
    r"[Rr]equest timed out": "✘ hangs",
    r"reconnection attempts were exhausted": "gave up",
    r"fetch failed|other side closed|terminated|stream ended without|Connection closed|peer closed|disconnected": "cut off",
}


async def server_killed(gateway, calls):
    gateway.kill_servers_of(set(calls))


async def all_servers_killed(gateway, _):
    gateway.kill_all_servers()


def killed_for(seconds):
    async def event(gateway, _):
        await gateway.kill()
        await asyncio.sleep(seconds)
        await gateway.start()

    return event


async def killed_twice(gateway, calls):
    """Killed again when the client has come back and its call is run again, if it comes back."""
    await gateway.kill()
    await gateway.start()
    while not calls["safe"].done() and gateway.count("safe") < 2:
        await asyncio.sleep(0.1)
    await asyncio.sleep(INTO_SECONDS)
    await gateway.kill()
    await gateway.start()


async def stopped(gateway, _):
    await gateway.terminate()
    await gateway.start()


async def taken_over(gateway, _):
    await gateway.take_over()


async def upstream_restarted(gateway, _):
    await gateway.restart_server(1)


@dataclass(frozen=True)
class Event:
    name: str
    title: str
    happen: object
    is_remote: bool = False
    call_seconds: float = CALL_SECONDS


EVENTS = [
    Event("server", "its server is killed", server_killed),
    Event("servers", "all servers are killed", all_servers_killed),
    Event("kill-0.3", "`kill -9`, back after 0.3 s", killed_for(0.3)),
    Event("kill-2", "`kill -9`, back after 2 s", killed_for(2)),
    Event("kill-5", "`kill -9`, back after 5 s", killed_for(5)),
    Event("kill-twice", "`kill -9`, twice in one call", killed_twice, call_seconds=12),
    Event("stop", "`SIGTERM`, started again", stopped),
    Event("stop-long", "the same, and the calls outlast the grace", stopped, call_seconds=LONG_SECONDS),
    Event("take-over", "`--take-over`", taken_over),
    Event("take-over-long", "the same, and the calls outlast the grace", taken_over, call_seconds=LONG_SECONDS),
    Event("upstream", "a server elsewhere restarts", upstream_restarted, is_remote=True),
]

SERVERS = {
    "v1": "A server that knows sessions alone (TypeScript SDK 1.x)",
    "v2": "A server that knows both eras (TypeScript SDK 2.x)",
}
# Clients that stay in sessions see no difference between the two servers.
MODERN = {"ts2-auto", "py2-auto", "fastmcp", "fast-agent"}


@dataclass(frozen=True)
class Cell:
    server: str
    client: str
    event: Event

    def __str__(self):
        return f"{self.server}/{self.client}/{self.event.name}"


@dataclass
class Outcome:
    """How the two calls of a cell came out, in a word for the table and with all that is known."""

    safe: str
    unsafe: str
    details: str = ""


def cells(kinds, patterns):
    every = [
        Cell(server, client, event)
        for server in SERVERS
        for client in kinds
        if server == "v1" or client in MODERN
        for event in EVENTS
    ]
    return [cell for cell in every if not patterns or any(fnmatchcase(str(cell), pattern) for pattern in patterns)]


async def run(cell, kinds, node, tenure, folder, starting):
    """One cell, from an empty folder to its outcome."""
    async with Gateway(tenure, node, folder, cell.server, cell.event.is_remote) as gateway:
        if cell.event.happen is taken_over and not await gateway.knows_take_over():
            return Outcome("no such flag", "no such flag")
        # Starting a client is work, and waiting for one is not.
        async with starting:
            client = await Client.start(kinds[cell.client], gateway.url, folder)
            first = await asyncio.wait_for(client.call("look", key="first", seconds=0), PATIENCE_SECONDS)
        try:
            if "error" in first:
                raise RuntimeError(f"the first call failed: {first}")
            before = await gateway.sessions()
            seconds = cell.event.call_seconds
            calls = {
                "safe": asyncio.create_task(timed(client.call("look", key="safe", seconds=seconds, held=True))),
                "unsafe": asyncio.create_task(timed(client.call("change", key="unsafe", seconds=seconds, held=True))),
            }
            await gateway.begun(calls)
            await asyncio.sleep(INTO_SECONDS)
            began = time.monotonic()
            gateway.release()
            await asyncio.wait_for(cell.event.happen(gateway, calls), PATIENCE_SECONDS)
            await asyncio.wait(calls.values(), timeout=HANG_SECONDS)
            answers = {key: call.result() if call.done() else None for key, call in calls.items()}
            for call in calls.values():
                call.cancel()
            again = asyncio.create_task(client.call("look", key="again", seconds=0))
            await asyncio.wait([again], timeout=HANG_SECONDS)
            again = again.result() if again.done() else {"error": "hangs"}
            after = await gateway.sessions()
        finally:
            await client.stop()
        words = {key: word(answer) for key, answer in answers.items()}
        if (runs := gateway.count("unsafe")) > 1:
            words["unsafe"] = f"✘ ran {runs} times"
        # The Inspector opens a session for every call.
        ending = ""
        if "error" in again:
            ending = f"; then {word((again, 0))}"
        elif cell.client != "inspector" and not after <= before:
            ending = "; other session"
        details = [f"again: {again}", f"sessions: {sorted(before)} → {sorted(after)}", f"runs: {gateway.runs()}"]
        for key, answer in answers.items():
            details.insert(0, f"{key}: " + (f"{answer[0]} {answer[1] - began:.1f} s after the event" if answer else "hangs"))
        return Outcome(words["safe"] + ending, words["unsafe"] + ending, "\n".join(details))


async def timed(call):
    return await call, time.monotonic()


def word(answer):
    """An answer in the table's words."""
    if answer is None:
        return "✘ hangs"
    answer, _ = answer
    if "error" not in answer:
        return GOOD
    text = answer["error"]
    code = answer.get("code")
    for known, reason in REASONS.items():
        if code == known or f"{known}" in text:
            return reason
    for pattern, said in SAID.items():
        if re.search(pattern, text):
            return said
    return f"✘ {text[:60]}" + (f" ({code})" if code else "")


class Expected:
    """Every cell that is not ✔, with its reason: `SERVER/CLIENT/EVENT CALL = OUTCOME: REASON`, in patterns; the first that
    matches counts."""

    def __init__(self, path):
        self.lines, self.used = [], set()
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            found = re.fullmatch(r"(\S+) (safe|unsafe|\*) = (.+?) :: (.+)", line)
            if found is None:
                sys.exit(f"error: {path}:{number} is not `SERVER/CLIENT/EVENT CALL = OUTCOME :: REASON`")
            self.lines.append(found.groups())

    def outcome(self, cell, call):
        for line in self.lines:
            if fnmatchcase(str(cell), line[0]) and line[1] in (call, "*"):
                self.used.add(line)
                return line[2]
        return GOOD

    def outcomes(self, every):
        """Every cell as it is expected."""
        return {cell: Outcome(self.outcome(cell, "safe"), self.outcome(cell, "unsafe")) for cell in every}

    def unused(self):
        return [line for line in self.lines if line not in self.used]


def table(server, kinds, outcomes):
    """The cells of one server as Markdown: safe and unsafe, or one if both are alike."""
    mine = {cell: outcome for cell, outcome in outcomes.items() if cell.server == server}
    events = [event for event in EVENTS if any(cell.event is event for cell in mine)]
    lines = [f"**{SERVERS[server]}**", "", "| client | " + " | ".join(event.title for event in events) + " |"]
    lines.append("|---|" + "---|" * len(events))
    for client, kind in kinds.items():
        if not any(cell.client == client for cell in mine):
            continue
        row = []
        for event in events:
            outcome = mine.get(Cell(server, client, event))
            if outcome is None:
                row.append("")
            elif outcome.safe == outcome.unsafe:
                row.append(outcome.safe)
            else:
                row.append(f"{outcome.safe} / {outcome.unsafe}")
        lines.append(f"| {kind.title} | " + " | ".join(text.replace("|", "\\|") for text in row) + " |")
    return "\n".join(lines)


def tables(kinds, outcomes):
    servers = [server for server in SERVERS if any(cell.server == server for cell in outcomes)]
    return "\n\n".join(table(server, kinds, outcomes) for server in servers)


def hold_docs(path, text):
    """Whether the part between the markers of a page is this text; it is written if UPDATE_EXPECT is set."""
    page = path.read_text()
    pattern = re.compile(r"(<!-- matrix -->\n).*?(<!-- /matrix -->)", re.DOTALL)
    new = pattern.sub(lambda found: f"{found[1]}\n{text}\n\n{found[2]}", page)
    if os.environ.get("UPDATE_EXPECT"):
        path.write_text(new)
        return True
    return new == page


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("tenure")
    parser.add_argument("patterns", nargs="*")
    parser.add_argument("--docs")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=1, help="run every cell so often; all have to be alike")
    parser.add_argument("--table", action="store_true", help="only print the expected table")
    parser.add_argument("--keep", help="a folder that keeps what the programs of each cell said")
    arguments = parser.parse_args()
    kinds = roster(arguments.folder)
    node = next(iter(kinds.values())).command[0]
    expected = Expected(HERE / "expected.txt")
    every = cells(kinds, [])
    if arguments.docs and not hold_docs(Path(arguments.docs), tables(kinds, expected.outcomes(every))):
        sys.exit(f"error: {arguments.docs} has another table than expected.txt\n\nhint: UPDATE_EXPECT=1 ./dev matrix --table")
    if arguments.table:
        return print(tables(kinds, expected.outcomes(every)))
    expected.used.clear()
    places, starting = asyncio.Semaphore(arguments.jobs), asyncio.Semaphore(2)
    outcomes, wrong = {}, []

    async def one(cell):
        async with places:
            folder = Path(tempfile.mkdtemp(prefix="matrix-"))
            try:
                outcome = await run(cell, kinds, node, arguments.tenure, folder, starting)
            except Exception as error:
                outcome = Outcome("✘ no outcome", "✘ no outcome", f"{error!r}")
            bad = []
            for call in ("safe", "unsafe"):
                found, wanted = getattr(outcome, call), expected.outcome(cell, call)
                if found != wanted:
                    bad.append(f"{cell} {call}: expected {wanted}, got {found}")
            if bad:
                outcome.details += "\nlog of the gateway:\n" + tail(folder / "gateway.log")
            outcomes[cell] = outcome
            print(f"{'not ok' if bad else 'ok'} {cell}: {outcome.safe} / {outcome.unsafe}", flush=True)
            wrong.extend((text, outcome.details) for text in bad)
            if arguments.keep:
                (folder / "outcome").write_text(f"{outcome.safe} / {outcome.unsafe}\n{outcome.details}\n")
                shutil.copytree(folder, Path(arguments.keep) / str(cell).replace("/", "_"), dirs_exist_ok=True,
                                ignore=shutil.ignore_patterns("store"))
            shutil.rmtree(folder, ignore_errors=True)

    chosen = cells(kinds, arguments.patterns)
    if not chosen:
        sys.exit("error: no cell matches\n\nhint: a pattern is SERVER/CLIENT/EVENT, such as `*/py*/kill*`")
    await asyncio.gather(*(one(cell) for cell in chosen for _ in range(arguments.repeat)))

    print(f"\n{tables(kinds, outcomes)}\n")
    for line, details in wrong:
        print(f"not ok {line}\n    " + details.replace("\n", "\n    "))
    if not arguments.patterns:
        for line in expected.unused():
            wrong.append(line)
            print(f"not ok expected.txt: no cell needs `{line[0]} {line[1]} = {line[2]}`")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    asyncio.run(main())
