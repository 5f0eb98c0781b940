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
from dataclasses import dataclass

import anyio
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client

STEP_DEADLINE_SECONDS = 20

# SDK v2 points every caller of the 2025-11-25 methods to the next revision.
warnings.filterwarnings("ignore", message=".* as of 2026-07-28")


async def connect(command):
    async with open_client(command) as client:
        assert client.initialized["protocolVersion"] == "2025-11-25", client.initialized["protocolVersion"]
        assert client.initialized["serverInfo"]["name"] == "tenure-demo"
        await client.session.send_ping()


async def list_everything(command):
    async with open_client(command) as client:
        names = [tool["name"] for tool in plain(await client.session.list_tools())["tools"]]
        for name in ("public_echo", "long_task", "ask_name"):
            assert name in names, f"{name}: {names}"
        await client.session.list_resources()
        await client.session.list_prompts()


async def call(command):
    async with open_client(command) as client:
        text = "line\nbreak\r\u2028 and so on"
        echo = await client.call("public_echo", {"text": text})
        assert echo == text, f"got {echo!r}"


async def calls_at_once(command):
    async with open_client(command) as client:
        texts = [f"echo {n}" for n in range(50)]
        answers = await asyncio.gather(*(client.call("public_echo", {"text": text}) for text in texts))
        assert answers == texts, f"got {answers}"


async def a_megabyte(command):
    async with open_client(command) as client:
        echo = await client.call("public_echo", {"text": "x" * (1 << 20)})
        assert len(echo) == 1 << 20, f"{len(echo)} characters"


async def logging(command):
    logged = []

    async def take(params):
        logged.append(params.data["n"])

    async with open_client(command, logging_callback=take) as client:
        await client.session.set_logging_level("debug")
        await client.call("count_slowly", {"to": 3, "interval_ms": 10, "tag": "a"})
        assert logged == [1, 2, 3], f"got {logged}"


async def progress(command):
    async with open_client(command) as client:
        values = []
        text = await client.call("long_task", {"seconds": 4, "interval_ms": 10}, on_progress=values.append)
        assert text == "worked for 0.04 s", f"got {text!r}"
        assert values == [0, 1, 2, 3, 4], f"got {values}"


async def elicitation(command):
    async def answer(_context, _params):
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async with open_client(command, elicitation_callback=answer) as client:
        text = await client.call("ask_name")
        assert text == "Hello, Ada!", f"got {text!r}"


async def leave_in_the_middle_of_a_call(command):
    # The SDK closes the input, waits for two seconds and sends SIGTERM: then the call is cut off, and all is well.
    async with open_client(command, signal="SIGTERM") as client:
        begun = asyncio.Event()
        running = asyncio.ensure_future(
            client.call("long_task", {"seconds": 3600}, on_progress=lambda _value: begun.set())
        )
        await begun.wait()
    await asyncio.gather(running, return_exceptions=True)


STEPS = {
    "connect": connect,
    "list": list_everything,
    "call": call,
    "calls at once": calls_at_once,
    "a megabyte": a_megabyte,
    "logging": logging,
    "progress": progress,
    "elicitation": elicitation,
}
# SDK v1 fails on whatever a server still says when it is left, and then neither waits for it nor ends it.
if not importlib.metadata.version("mcp").startswith("1."):
    STEPS["leave in the middle of a call"] = leave_in_the_middle_of_a_call


async def main(*command):
    failed = 0
    for name, run in STEPS.items():
        try:
            with anyio.fail_after(STEP_DEADLINE_SECONDS):
                await run(command)
            print(f"ok {name}", flush=True)
        except Exception as error:
            failed += 1
            print(f"not ok {name}: {reason_of(error)}", flush=True)
    print(f"{len(STEPS) - failed} passed, {failed} failed")
    return 1 if failed else 0


@dataclass
class Client:
    """A session with a server of its own."""

    session: ClientSession
    initialized: dict

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
    if len(sys.argv) < 2:
        sys.exit("usage: stdio.py COMMAND ARGS...")
    sys.exit(asyncio.run(main(*sys.argv[1:])))
