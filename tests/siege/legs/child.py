"""A server behind that talks too much: on its standard error, and to its client."""

import asyncio
import sys
from pathlib import Path

from legs.leg import Leg
from wire import begin, call, post

SERVER = Path(__file__).resolve().parent.parent / "server.py"


async def noise(target):
    """One session whose child writes to its standard error, one whose child sends notifications, both as fast as they can."""

    async def one(tool):
        connection = await target.connect()
        session = await begin(connection)
        while target.is_time():
            if await target.ask(connection, post(call(tool, {"seconds": 2}), session)) is None:
                return

    await asyncio.gather(one("noise"), one("flood"))


LEGS = [
    Leg(
        "noisy-child",
        "children that write to their standard error, and send notifications, as fast as they can",
        noise,
        least=("requests", 2),
        is_busy=True,
        # A child is kept as long as its session is awake, or is kept for requests without one.
        settings=("bridge.idle=5s",),
        behind=(sys.executable, str(SERVER)),
    ),
]
