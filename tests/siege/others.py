"""Clients that behave: sessions that call a cheap tool at a steady rate, and what they notice of what others do.

Owns their sessions and connections. In: the name of the phase that a call belongs to. Out: times and refusals of each phase.
"""

import asyncio
import time
from collections import Counter, defaultdict

from wire import Closed, Connection, begin, call, post, post_modern

CLIENTS = 8
PERIOD_SECONDS = 0.04
# A call that takes longer counts as refused: it is a hundred times what a slow machine needs.
LIMIT_SECONDS = 10


class Others:
    """Some clients in sessions and some without; half of each with a new connection for every call, if `fresh`."""

    def __init__(self, port, fresh=True):
        self.port, self.fresh = port, fresh
        self.phase = "start"
        self.times, self.refusals = defaultdict(list), defaultdict(Counter)
        self.running, self.is_over = [], False

    async def __aenter__(self):
        for number in range(CLIENTS):
            connection = await Connection.open(self.port)
            request = post_modern("tools/call", {"name": "public_echo", "arguments": {"text": "hello"}})
            if number % 2 == 0:
                session = await begin(connection)
                request = post(call("public_echo", {"text": "hello"}), session)
            # The first call may have to start a server.
            await connection.ask(request)
            is_fresh = self.fresh and number % 4 < 2
            if is_fresh:
                connection.close()
                connection = None
            self.running.append(asyncio.create_task(self.client(connection, request, number / CLIENTS)))
        return self

    async def __aexit__(self, *_):
        # Not cancelled: before Python 3.12 `wait_for` may lose that, and the client would go on for ever.
        self.is_over = True
        await asyncio.gather(*self.running, return_exceptions=True)

    async def client(self, connection, request, offset):
        due = time.monotonic() + offset * PERIOD_SECONDS
        while not self.is_over:
            await asyncio.sleep(max(0, due - time.monotonic()))
            phase = self.phase
            try:
                answer = await asyncio.wait_for(self.one(connection, request), LIMIT_SECONDS)
                fault = answer.fault()
            except (Closed, OSError) as error:
                fault = str(error) or repr(error)
            except asyncio.TimeoutError:
                fault = f"no answer in {LIMIT_SECONDS} s"
            if fault is not None:
                self.refusals[phase][fault] += 1
                if connection is not None:
                    connection.close()
                    connection = await self.again(phase)
            # From when it was due: a client that waits for an answer sends its next request too late.
            self.times[phase].append(time.monotonic() - due)
            due = max(due + PERIOD_SECONDS, time.monotonic() - PERIOD_SECONDS)

    async def one(self, connection, request):
        if connection is not None:
            return await connection.ask(request)
        connection = await Connection.open(self.port)
        try:
            return await connection.ask(request)
        finally:
            connection.close()

    async def again(self, phase):
        while not self.is_over:
            try:
                return await Connection.open(self.port)
            except OSError as error:
                self.refusals[phase][str(error)] += 1
                await asyncio.sleep(PERIOD_SECONDS)

    async def during(self, phase, seconds):
        self.phase = phase
        await asyncio.sleep(seconds)
        self.phase = "between"

    def percentile(self, phase, share):
        """In milliseconds."""
        times = sorted(self.times[phase])
        return times[min(len(times) - 1, int(len(times) * share))] * 1000 if times else 0.0

    def refused(self):
        """Every refusal of every phase."""
        return sum(self.refusals.values(), Counter())
