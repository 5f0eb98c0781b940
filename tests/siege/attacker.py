"""The process of the attacker: `python attacker.py LEG PORT FOLDER SECONDS [REQUESTS BYTES]`.

Runs the attack of a leg at low priority from another address, holds what it has got until the time is over, and prints what it did
as one line of JSON. With REQUESTS and BYTES it does so many ordinary calls of that size instead, evenly over the same time; with
REQUESTS of -1 as many as it can.
"""

import asyncio
import json
import os
import resource
import sys
import time
from collections import Counter

from wire import Closed, Connection, begin, call, post

ADDRESS = "127.0.0.2"
# The control uses no more of them, whatever the attack did.
CONTROL_CONNECTIONS = 8
CONTROL_TEXT_BYTES = 1 << 20


class Target:
    """Where to attack, from where, and what came of it."""

    def __init__(self, port, folder, seconds):
        self.port, self.folder, self.source = port, folder, ADDRESS
        self.until = time.monotonic() + seconds
        self.requests = self.sent = self.taken = 0
        self.outcomes = Counter()
        self.held = []

    async def connect(self, source=None):
        connection = await Connection.open(self.port, source or self.source)
        connection.on_taken = self.took
        return connection

    def took(self, size):
        self.taken += size

    def note(self, outcome, sent=0):
        """Counts a request, the bytes that were sent with it, and how it ended."""
        self.requests += 1
        self.sent += sent
        self.outcomes[outcome or "served"] += 1

    def ended(self, outcome):
        """Counts how a request ended that was counted when it began."""
        self.outcomes[outcome or "served"] += 1

    async def ask(self, connection, request):
        """One request; the answer, or nothing if the connection ended."""
        # Counted when it begins: the longest ones have no end before the attack is over.
        self.requests += 1
        self.sent += len(request)
        try:
            answer = await connection.ask(request)
        except (Closed, OSError):
            self.ended("closed")
            return None
        self.ended(answer.fault())
        return answer

    def is_time(self):
        return time.monotonic() < self.until


async def harmless(target, requests, sent):
    """Ordinary calls, as many and as large as the attack's, evenly over the time; or as fast as they are answered."""
    text, period = "x" * 100, 0.0
    if requests >= 0:
        text = "x" * min(CONTROL_TEXT_BYTES, sent // max(1, requests))
        period = max(0.0, target.until - time.monotonic()) / max(1, requests // CONTROL_CONNECTIONS)

    async def one():
        connection = await target.connect()
        request = post(call("public_echo", {"text": text}), await begin(connection))
        due = time.monotonic()
        while target.is_time():
            await target.ask(connection, request)
            due += period
            await asyncio.sleep(max(0, due - time.monotonic()))
        connection.close()

    await asyncio.gather(*(one() for _ in range(CONTROL_CONNECTIONS)))


async def main(name, port, folder, seconds, *control):
    from legs import LEGS

    # So that what is measured is the work of the server, and not who gets the processor.
    os.nice(10)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    target = Target(int(port), folder, float(seconds))
    attack = harmless(target, *map(int, control)) if control else LEGS[name].attack(target)
    trouble = None
    try:
        await asyncio.wait_for(attack, max(0.1, target.until - time.monotonic()))
        await asyncio.sleep(max(0, target.until - time.monotonic()))
    except asyncio.TimeoutError:
        pass
    except Exception as error:
        trouble = repr(error)
    told = {"requests": target.requests, "sent": target.sent, "taken": target.taken, "outcomes": dict(target.outcomes)}
    print(json.dumps({**told, "trouble": trouble}), flush=True)
    # Without farewell: a connection that is closed in good order is no attack.
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
