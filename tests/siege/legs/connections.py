"""Connections that do nothing, or end too early."""

import asyncio
import time

from legs.leg import Leg
from wire import Closed, Connection, begin, call, get, head, post

# One address gets its share of the connections; to use up all of them takes many.
ADDRESSES = [f"127.0.0.{number}" for number in range(2, 34)]
HEALTHZ_SECONDS = 1.0


async def hold_idle(target, count):
    """Opens so many connections from all addresses, again whenever the server closes one, and says nothing on them."""

    async def one(number):
        while target.is_time():
            try:
                connection = await target.connect(ADDRESSES[number % len(ADDRESSES)])
            except OSError:
                target.note("refused")
                await asyncio.sleep(0.5)
                continue
            target.note("connected")
            target.held.append(connection)
            await connection.reader.read(1)
            connection.close()
            target.ended("closed")
            await asyncio.sleep(0.5)

    await asyncio.gather(*(one(number) for number in range(count)))


async def healthz(siege):
    """Asked five times: each answer has to come within a second."""
    complaints = []
    for _ in range(5):
        began = time.monotonic()
        try:
            status, text = await asyncio.wait_for(get(siege.node.port, "/healthz"), 10)
        except (Closed, OSError, asyncio.TimeoutError) as error:
            complaints.append(f"/healthz: {error!r}")
            continue
        seconds = time.monotonic() - began
        siege.figures["healthz"] = f"{max(seconds * 1000, float(siege.figures.get('healthz', '0').split(' ')[0])):.0f} ms"
        if status != 200 or seconds > HEALTHZ_SECONDS:
            complaints.append(f"/healthz: {status} {text.strip()} after {seconds:.1f} s")
        await asyncio.sleep(0.2)
    return complaints


async def write(connection):
    """A session that begins and ends: two writes to the store."""
    try:
        session = await begin(connection)
        answer = await connection.ask(head(0, session, "DELETE"))
        return [f"DELETE: {answer.fault()}"] if answer.status != 204 else []
    except Closed as error:
        return [f"a write to the store: {error}"]


async def healthy_and_writing(siege):
    # Over a connection of its own, which was opened before: a new one would have to wait like those of the attacker.
    return [*await healthz(siege), *await write(siege.kept)]


async def healthy_and_writing_after(siege):
    connection = await Connection.open(siege.node.port)
    return [*await healthz(siege), *await write(connection)]


async def until_no_descriptors(target):
    await hold_idle(target, 1500)


async def more_than_seats(target):
    await hold_idle(target, 200)


async def aborted_posts(target):
    """Sends half of a request and resets the connection."""
    whole = post(call("public_echo", {"text": "x" * 5000}), "a-session-that-never-was")
    for number in range(500):
        connection = await target.connect()
        connection.writer.write(whole[: 200 + number * 9])
        await connection.writer.drain()
        connection.writer.transport.abort()
        target.note("aborted", sent=200 + number * 9)


LEGS = [
    Leg(
        "idle-connections",
        "1500 connections of 32 addresses that say nothing, with 1024 descriptors; /healthz and the store work",
        until_no_descriptors,
        least=("requests", 1000),
        during=healthy_and_writing,
        after=healthy_and_writing_after,
        max_files=1024,
        fresh_others=False,
    ),
    Leg(
        "full-house",
        "200 connections that say nothing where there may be 100; /healthz answers within 1 s",
        more_than_seats,
        least=("requests", 150),
        during=healthz,
        after=healthz,
        settings=("http.max_connections=100",),
        fresh_others=False,
    ),
    Leg(
        "unread-log",
        "500 POSTs that break off, while the log is not read",
        aborted_posts,
        least=("requests", 500),
        during=healthz,
        settings=("log.level=debug",),
        silent_log=True,
    ),
]
