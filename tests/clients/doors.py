"""Runs a real client, built with the Python SDK, through the doors of the demo server.

Usage: DIR/venv/bin/python tests/clients/doors.py URL      (SDK v1: /sse and /ws)
       DIR/venv-v2/bin/python tests/clients/doors.py URL   (SDK v2: /sse; it has no WebSocket)
where DIR is the folder that `tests/clients/install` filled, and URL is the server's MCP endpoint. `doors.mjs` has
the same steps: keep the two alike.

Every step opens a session of its own and ends it, so a broken step cannot break the next one.
"""

import asyncio
import importlib.metadata
import sys
import warnings
from contextlib import asynccontextmanager
from functools import partial

import anyio
import demo_steps
from demo_steps import Client, plain
from mcp import ClientSession
from mcp.client.sse import sse_client

# Every door but /mcp is old, and the SDKs say so; SDK v2 points every caller to the next revision.
warnings.simplefilter("ignore")


async def connect(door):
    async with open_client(door) as client:
        assert client.initialized["serverInfo"]["name"] == "tenure-demo"
        await client.session.send_ping()


async def half_a_megabyte(door):
    # The Python client takes no frame of more than a megabyte.
    async with open_client(door) as client:
        await demo_steps.echo_of(1 << 19, client)


async def leave_in_the_middle_of_a_call(door):
    begun = anyio.Event()
    async with open_client(door) as client:
        running = asyncio.ensure_future(
            client.call("long_task", {"seconds": 3600}, on_progress=lambda _value: begun.set())
        )
        await begun.wait()
        running.cancel()
    await asyncio.gather(running, return_exceptions=True)


STEPS = {
    "connect": connect,
    "half a megabyte": half_a_megabyte,
    "leave in the middle of a call": leave_in_the_middle_of_a_call,
}


async def main(url):
    base = url.removesuffix("/mcp")
    doors = {"/sse": lambda: sse_client(f"{base}/sse")}
    if importlib.metadata.version("mcp").startswith("1."):
        from mcp.client.websocket import websocket_client

        doors["/ws"] = lambda: websocket_client(f"ws{base.removeprefix('http')}/ws")
    passed, failed = 0, 0
    for path, door in doors.items():
        steps = {name: run(door) for name, run in STEPS.items()}
        steps |= {name: run(partial(open_client, door)) for name, run in demo_steps.STEPS.items()}
        for name, step in steps.items():
            good = await demo_steps.passes(f"{path} {name}", step)
            passed, failed = passed + good, failed + (not good)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


@asynccontextmanager
async def open_client(door, **callbacks):
    odd = []

    async def take(message):
        # What is no message comes up here.
        if isinstance(message, Exception):
            odd.append(message)

    async with door() as streams, ClientSession(*streams, message_handler=take, **callbacks) as session:
        yield Client(session, plain(await session.initialize()))
    assert not odd, f"errors of the client: {odd}"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: doors.py URL")
    sys.exit(asyncio.run(main(sys.argv[1])))
