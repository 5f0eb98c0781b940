#!/usr/bin/env python3
"""Runs legs of the tests, side by side where they mostly wait. `table.py` holds them.

Usage: tests/legs/run.py [--list] [--output] NAME...

A NAME may be a pattern, such as 'clients/*' or '*sse*'. What the legs need is made first, and legs that others need run too.
A leg that passes is a line with its seconds; of one that fails, the whole output is printed. With --output, or if there is
only one, that of all. Ends with 1 if a leg failed, after everything that was started has ended.
"""

import argparse
import concurrent.futures
import fnmatch
import os
import pathlib
import signal
import sys
import tempfile
import threading
import time

import leg as legs
from show import Screen
from table import LEGS, NEEDS

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Legs side by side. Most of a leg is waiting, but starting its programs is not. While the Rust tests take three places and lints
# one, two are left for legs that wait.
SLOTS = 6


def main():
    parser = argparse.ArgumentParser(prog="./dev leg", description=__doc__.partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="list the legs in place of running them")
    parser.add_argument("--output", action="store_true", help="print the output of legs that pass, too")
    parser.add_argument("names", nargs="*", help="names of legs, or patterns such as 'clients/*' or '*sse*'")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    chosen = selected(arguments.names, parser)
    if arguments.list:
        width = max(len(leg.name) for leg in chosen)
        for leg in chosen:
            print(f"{leg.name:<{width}}  {leg.shows}")
        return 0
    chosen = with_needed(chosen)
    run = Run(chosen, arguments.output or len(chosen) == 1)
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, lambda *_: run.stop())
    return run.go()


def selected(patterns, parser):
    """The legs that patterns name, in the order of the table; all of them without a pattern."""
    for pattern in patterns:
        if not any(fnmatch.fnmatch(leg.name, pattern) for leg in LEGS):
            parser.error(f"no leg is called {pattern}; `./dev legs` lists them")
    return [leg for leg in LEGS if not patterns or any(fnmatch.fnmatch(leg.name, pattern) for pattern in patterns)]


def with_needed(chosen):
    """These legs and those that they need."""
    names = {leg.name for leg in chosen}
    while True:
        needed = {need for leg in LEGS if leg.name in names for need in leg.needs} - {need.name for need in NEEDS}
        if needed <= names:
            return [leg for leg in LEGS if leg.name in names]
        names |= needed


class Run:
    """What is still to do, what is running, and how each thing ended."""

    def __init__(self, chosen, show_output):
        self.waiting = [need for need in NEEDS if any(need.name in leg.needs for leg in chosen)] + list(chosen)
        self.running = {}
        self.passed, self.failed, self.skipped = set(), [], []
        self.processes = legs.Processes()
        self.show_output = show_output
        self.stopped = threading.Event()
        self.screen = Screen(len(self.waiting))

    def go(self):
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="tenure-legs-") as folder, concurrent.futures.ThreadPoolExecutor(32) as pool:
            while (self.waiting and not self.stopped.is_set()) or self.running:
                self.start_ready(pool, pathlib.Path(folder))
                done, _ = concurrent.futures.wait(
                    self.running, timeout=0.5, return_when=concurrent.futures.FIRST_COMPLETED
                )
                for future in done:
                    self.finish(future)
                self.screen.redraw([(leg.name, start, path) for leg, start, path in self.running.values()])
        self.screen.clear()
        for leg in self.skipped:
            print(f"  {leg.name} was not run: what it needs failed")
        seconds = time.monotonic() - began
        if self.stopped.is_set():
            print(f"stopped after {seconds:.0f} s")
            return 130
        if self.failed:
            names = " ".join(self.failed)
            print(f"{len(self.failed)} failed, {len(self.passed)} passed in {seconds:.0f} s; again: ./dev leg {names}")
            return 1
        print(f"{len(self.passed)} passed in {seconds:.0f} s")
        return 0

    def start_ready(self, pool, folder):
        """Starts what can start now, in the order of the table."""
        free = SLOTS - sum(leg.slots for leg, _, _ in self.running.values())
        turns = {leg.turn for leg, _, _ in self.running.values() if leg.turn}
        lost = {*self.failed, *(leg.name for leg in self.skipped)}
        for leg in [] if self.stopped.is_set() else list(self.waiting):
            if lost.intersection(leg.needs):
                self.waiting.remove(leg)
                self.skipped.append(leg)
                lost.add(leg.name)
            elif leg.turn not in turns and self.passed.issuperset(leg.needs):
                if leg.slots > free:
                    # Those behind it must not take the places that it waits for.
                    break
                self.waiting.remove(leg)
                free -= leg.slots
                turns |= {leg.turn} - {""}
                path = folder / leg.name.replace("/", "-")
                self.running[pool.submit(self.run_one, leg, path)] = (leg, time.monotonic(), path)

    def run_one(self, leg, path):
        with open(path, "wb") as output:
            return legs.run(leg, self.processes, output)

    def finish(self, future):
        leg, began, path = self.running.pop(future)
        passed = future.result()
        if self.stopped.is_set() and not passed:
            return
        self.passed.add(leg.name) if passed else self.failed.append(leg.name)
        text = path.read_text(errors="replace")
        if passed and not self.show_output:
            text = "\n".join(text.splitlines()[-leg.tail :]) if leg.tail else ""
        self.screen.ended(leg.name, passed, time.monotonic() - began, text)

    def stop(self):
        """Ends all that was started. The loop sees that by itself, so a signal handler need not wait for it."""
        if not self.stopped.is_set():
            self.stopped.set()
            threading.Thread(target=self.processes.stop_all).start()


if __name__ == "__main__":
    sys.exit(main())
