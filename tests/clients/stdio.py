"""Runs a real client, built with the Python SDK, that starts the demo server and talks to it over pipes.

Usage: DIR/venv/bin/python tests/clients/stdio.py COMMAND ARGS...      (SDK v1)
       DIR/venv-v2/bin/python tests/clients/stdio.py COMMAND ARGS...   (SDK v2)
where DIR is the folder that `tests/clients/install` filled. Both speak 2025-11-25. `stdio.mjs` has the same steps:
keep the two alike.

Every step starts a server of its own and ends it, so a broken step cannot break the next one.
"""

import asyncio
import importlib.metadata
import json
import sys
import tempfile
import warnings
from contextlib import asynccontextmanager
from functools import partial

import demo_steps
from demo_steps import Client, plain
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

# SDK v2 points every caller of the 2025-11-25 methods to the next revision.
warnings.filterwarnings("ignore", message=".* as of 2026-07-28")


async def connect(command):
    async with open_client(command) as client:
        assert client.initialized["protocolVersion"] == "2025-11-25", client.initialized["protocolVersion"]
        assert client.initialized["serverInfo"]["name"] == "tenure-demo"
        await client.session.send_ping()


async def a_megabyte(command):
    async with open_client(command) as client:
        await demo_steps.echo_of(1 << 20, client)


async def leave_in_the_middle_of_a_call(command):
    # The SDK closes the input, waits for two seconds and sends SIGTERM: then the call is cut off, and all is well.
    async with open_client(command, signal="SIGTERM") as client:
        begun = asyncio.Event()
        running = asyncio.ensure_future(
            client.call("long_task", {"seconds": 3600}, on_progress=lambda _value: begun.set())
        )
        await begun.wait()
    await asyncio.gather(running, return_exceptions=True)


STEPS = {"connect": connect, "a megabyte": a_megabyte}
# SDK v1 fails on whatever a server still says when it is left, and then neither waits for it nor ends it.
if not importlib.metadata.version("mcp").startswith("1."):
    STEPS["leave in the middle of a call"] = leave_in_the_middle_of_a_call


async def main(*command):
    steps = {name: run(command) for name, run in STEPS.items()}
    steps |= {name: run(partial(open_client, command)) for name, run in demo_steps.STEPS.items()}
    results = [await demo_steps.passes(name, step) for name, step in steps.items()]
    failed = results.count(False)
    print(f"{len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


@asynccontextmanager
async def open_client(command, signal=None, **callbacks):
    """Starts a server, which has to leave by itself on the way out, or at this signal."""
    odd = []

    async def take(message):
        # A line that is no message comes up here.
        if isinstance(message, Exception):
            odd.append(message)

    server = StdioServerParameters(command=command[0], args=list(command[1:]))
    with tempfile.TemporaryFile("w+") as logs:
        async with (
            stdio_client(server, errlog=logs) as streams,
            ClientSession(*streams, message_handler=take, **callbacks) as session,
        ):
            yield Client(session, plain(await session.initialize()))
        assert not odd, f"errors of the client: {odd}"
        # The server says on standard error how it came to its end.
        logs.seek(0)
        logged = [json.loads(line) for line in logs]
        signals = [line["signal"] for line in logged if line["message"] == "stopping"]
        assert signals == ([signal] if signal else []), f"ended by {signals}"
        assert logged[-1]["message"] == "stopped", f"the last thing it logged is {logged[-1]}"


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: stdio.py COMMAND ARGS...")
    sys.exit(asyncio.run(main(*sys.argv[1:])))
