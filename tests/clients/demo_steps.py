"""Steps that every way to the demo server has to pass, over every transport.

Each takes `open_client(**callbacks)`, which gives a client of a server of its own, or of a session of its own.
"""

import asyncio
from dataclasses import dataclass

import anyio
from mcp import ClientSession, types

STEP_DEADLINE_SECONDS = 20


async def list_everything(open_client):
    async with open_client() as client:
        names = [tool["name"] for tool in plain(await client.session.list_tools())["tools"]]
        for name in ("public_echo", "long_task", "ask_name"):
            assert name in names, f"{name}: {names}"
        await client.session.list_resources()
        await client.session.list_prompts()


async def call(open_client):
    async with open_client() as client:
        text = "line\nbreak\r\u2028 and so on"
        echo = await client.call("public_echo", {"text": text})
        assert echo == text, f"got {echo!r}"


async def calls_at_once(open_client):
    async with open_client() as client:
        texts = [f"echo {n}" for n in range(50)]
        answers = await asyncio.gather(*(client.call("public_echo", {"text": text}) for text in texts))
        assert answers == texts, f"got {answers}"


async def logging(open_client):
    logged = []

    async def take(params):
        logged.append(params.data["n"])

    async with open_client(logging_callback=take) as client:
        await client.session.set_logging_level("debug")
        await client.call("count_slowly", {"to": 3, "interval_ms": 10, "tag": "a"})
        assert logged == [1, 2, 3], f"got {logged}"


async def progress(open_client):
    async with open_client() as client:
        values = []
        text = await client.call("long_task", {"seconds": 4, "interval_ms": 10}, on_progress=values.append)
        assert text == "worked for 0.04 s", f"got {text!r}"
        assert values == [0, 1, 2, 3, 4], f"got {values}"


async def elicitation(open_client):
    async def answer(_context, _params):
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async with open_client(elicitation_callback=answer) as client:
        text = await client.call("ask_name")
        assert text == "Hello, Ada!", f"got {text!r}"


# By name, in the order in which they are done.
STEPS = {
    "list": list_everything,
    "call": call,
    "calls at once": calls_at_once,
    "logging": logging,
    "progress": progress,
    "elicitation": elicitation,
}


@dataclass
class Client:
    """A session of its own."""

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


async def echo_of(size, client):
    """Has a text of that size echoed."""
    echo = await client.call("public_echo", {"text": "x" * size})
    assert len(echo) == size, f"{len(echo)} characters"


async def passes(name, step):
    """Does a step and says what came of it."""
    try:
        with anyio.fail_after(STEP_DEADLINE_SECONDS):
            await step
        print(f"ok {name}", flush=True)
        return True
    except Exception as error:
        print(f"not ok {name}: {reason_of(error)}", flush=True)
        return False


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
