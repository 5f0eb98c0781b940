"""Events: floods of them, and what they leave behind in memory and on the disk."""

import asyncio

from legs.leg import MIB, Leg
from wire import Closed, begin, call, get, head, post

TAG_BYTES = 64_000
# What a call may say is bounded (`streams.max_call`, 64 MiB): this is just below it.
EVENTS = 900
# A store has to be open again within this time, and to need no more memory than this for it.
OPEN_SECONDS = 5.0
OPEN_BYTES = 256 * MIB
PASSED_BYTES = 1_500_000_000


async def counting(target, total, connections=8):
    """Calls that say a great deal, the same again and again, until so much has been read."""

    async def one():
        connection = await target.connect()
        session = await begin(connection)
        request = post(call("count_slowly", {"to": EVENTS, "interval_ms": 1, "tag": "x" * TAG_BYTES}), session)
        while target.is_time() and target.taken < total:
            if await target.ask(connection, request) is None:
                return
        await target.ask(connection, head(0, session, "DELETE"))
        connection.close()

    await asyncio.gather(*(one() for _ in range(connections)))


async def progress(target):
    """A token of 3.9 MB, which has to be refused; then calls with small ones that report as fast as they can."""
    connection = await target.connect()
    session = await begin(connection)
    long = post(call("long_task", {"seconds": 1, "interval_ms": 1}, token="t" * 3_900_000), session)
    for _ in range(3):
        answer = await target.ask(connection, long)
        if answer is None or answer.fault() != "400 invalid_params":
            raise RuntimeError(f"a token of 3.9 MB: {answer and answer.fault()}")

    async def one(number):
        connection = await target.connect()
        session = await begin(connection)
        count = 0
        while target.is_time():
            count += 1
            body = call("long_task", {"seconds": 3600, "interval_ms": 1}, count, token="t" * 1000)
            if await target.ask(connection, post(body, session)) is None:
                return

    await asyncio.gather(*(one(number) for number in range(32)))


async def passing(target):
    await counting(target, PASSED_BYTES)


async def enough_passed(siege):
    taken = siege.attacked["taken"]
    siege.figures["passed"] = f"{taken // MIB} MiB"
    # A slow machine may not manage all of it, but much less would say nothing.
    return [] if taken > PASSED_BYTES / 3 else [f"only {taken // MIB} MiB of events passed"]


async def repeating(target):
    """Sessions stay: their events are in the store when the server is killed."""

    async def one():
        connection = await target.connect()
        session = await begin(connection)
        request = post(call("count_slowly", {"to": EVENTS, "interval_ms": 1, "tag": "x" * TAG_BYTES}), session)
        while target.is_time():
            if await target.ask(connection, request) is None:
                return

    await asyncio.gather(*(one() for _ in range(8)))


async def opens_again(siege):
    """Kills the server and starts it on the same store: how long that takes, and how much memory."""
    disk, idle = siege.node.disk(), siege.idle.rss
    await siege.node.kill()
    seconds = await siege.node.start()
    peak = siege.node.memory("VmHWM")
    try:
        status, _ = await get(siege.node.port, "/healthz")
    except Closed:
        status = 0
    siege.figures["opened again"] = f"{seconds:.1f} s, {peak // MIB} MiB, store {disk // MIB} MiB"
    complaints = []
    if status != 200 or seconds > OPEN_SECONDS:
        complaints.append(f"it took {seconds:.1f} s to open {disk // MIB} MiB again (/healthz: {status})")
    if peak > idle + OPEN_BYTES:
        complaints.append(f"it took {peak // MIB} MiB of memory to open {disk // MIB} MiB again")
    return complaints


LEGS = [
    Leg("progress", "progress tokens of 3.9 MB, then calls that report progress as fast as they can", progress, least=("taken", 20_000_000), is_busy=True),
    Leg(
        "passing-events",
        "1.5 GB of events that are read; the memory is given back within a minute",
        passing,
        after=enough_passed,
        seconds=25,
        is_busy=True,
    ),
    Leg(
        "killed-store",
        "repetitive events, then a kill: the store opens again within 5 s and 256 MiB",
        repeating,
        least=("taken", 100_000_000),
        after=opens_again,
        seconds=10,
        is_busy=True,
    ),
]
