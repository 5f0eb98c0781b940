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

import anyio
from mcp import ClientSession, types
from mcp.client.sse import sse_client

STEP_DEADLINE_SECONDS = 20

# Every door but /mcp is old, and the SDKs say so; SDK v2 points every caller to the next revision.
warnings.simplefilter("ignore")


async def connect(door):
    async with open_client(door) as client:
        assert client.initialized["serverInfo"]["name"] == "tenure-demo"
        await client.session.send_ping()


async def list_everything(door):
    async with open_client(door) as client:
        names = [tool["name"] for tool in plain(await client.session.list_tools())["tools"]]
        for name in ("public_echo", "long_task", "ask_name"):
            assert name in names, f"{name}: {names}"
        await client.session.list_resources()
        await client.session.list_prompts()


async def call(door):
    async with open_client(door) as client:
        text = "line\nbreak\r\u2028 and so on"
        echo = await client.call("public_echo", {"text": text})
        assert echo == text, f"got {echo!r}"


async def calls_at_once(door):
    async with open_client(door) as client:
        texts = [f"echo {n}" for n in range(50)]
        answers = await asyncio.gather(*(client.call("public_echo", {"text": text}) for text in texts))
        assert answers == texts, f"got {answers}"


async def half_a_megabyte(door):
    # The Python client takes no frame of more than a megabyte.
    async with open_client(door) as client:
        echo = await client.call("public_echo", {"text": "x" * (1 << 19)})
        assert len(echo) == 1 << 19, f"{len(echo)} characters"


async def logging(door):
    logged = []

    async def take(params):
        logged.append(params.data["n"])

    async with open_client(door, logging_callback=take) as client:
        await client.session.set_logging_level("debug")
        await client.call("count_slowly", {"to": 3, "interval_ms": 10, "tag": "a"})
        assert logged == [1, 2, 3], f"got {logged}"


async def progress(door):
    async with open_client(door) as client:
        values = []
        text = await client.call("long_task", {"seconds": 4, "interval_ms": 10}, on_progress=values.append)
        assert text == "worked for 0.04 s", f"got {text!r}"
        assert values == [0, 1, 2, 3, 4], f"got {values}"


async def elicitation(door):
    async def answer(_context, _params):
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async with open_client(door, elicitation_callback=answer) as client:
        text = await client.call("ask_name")
        assert text == "Hello, Ada!", f"got {text!r}"


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
    "list": list_everything,
    "call": call,
    "calls at once": calls_at_once,
    "half a megabyte": half_a_megabyte,
    "logging": logging,
    "progress": progress,
    "elicitation": elicitation,
    "leave in the middle of a call": leave_in_the_middle_of_a_call,
}


async def main(url):
    base = url.removesuffix("/mcp")
    doors = {"/sse": lambda: sse_client(f"{base}/sse")}
    if importlib.metadata.version("mcp").startswith("1."):
        from mcp.client.websocket import websocket_client

        doors["/ws"] = lambda: websocket_client(f"ws{base.removeprefix('http')}/ws")
    failed = 0
    for path, door in doors.items():
        for name, run in STEPS.items():
            try:
                with anyio.fail_after(STEP_DEADLINE_SECONDS):
                    await run(door)
                print(f"ok {path} {name}", flush=True)
            except Exception as error:
                failed += 1
                print(f"not ok {path} {name}: {reason_of(error)}", flush=True)
    print(f"{len(doors) * len(STEPS) - failed} passed, {failed} failed")
    return 1 if failed else 0


class Client:
    """A session of its own."""

    def __init__(self, session, initialized):
        self.session = session
        self.initialized = initialized

    async def call(self, tool, arguments=None, on_progress=None):
        """Calls a tool and returns its text; `on_progress` gets every progress value."""

        async def take(value, _total, _message):
            on_progress(value)

        callback = take if on_progress else None
        result = plain(await self.session.call_tool(tool, arguments, progress_callback=callback))
        text = "\n".join(item["text"] for item in result["content"] if item["type"] == "text")
        assert not result.get("isError"), f"tool error: {text}"
        return text


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


def plain(result):
    """The result as on the wire: the attribute names differ between SDK v1 and v2."""
    return result.model_dump(by_alias=True, mode="json")


def reason_of(error):
    # The transport runs in a task group, so its errors come wrapped, with the first as the cause.
    while getattr(error, "exceptions", None):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"not done after {STEP_DEADLINE_SECONDS} s"
    return str(error).split("\n")[0] or type(error).__name__


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: doors.py URL")
    sys.exit(asyncio.run(main(sys.argv[1])))
