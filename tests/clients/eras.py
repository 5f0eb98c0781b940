"""One client of the matrix of eras on the Python SDK, at one server, which may be a gateway: all that clients and servers
say to each other, step by step. One line for each step.

Usage: PYTHON eras.py py1|py2-legacy|py2-modern SERVER URL
       PYTHON eras.py py1|py2-legacy|py2-modern SERVER -- COMMAND [ARG...]

PYTHON is that of the SDK's environment. SERVER is what the server is called in the lines. The servers are in `servers/`.
"""

import json
import math
import random
import sys
import warnings
from contextlib import asynccontextmanager

import anyio

STEP_DEADLINE_SECONDS = 40
MODERN = "2026-07-28"
NOTE = "note://today"


class Heard:
    """What the client heard and was asked."""

    def __init__(self):
        self.all = []
        self.more = anyio.Event()

    def add(self, what, params):
        self.all.append((what, params))
        self.more.set()
        self.more = anyio.Event()

    async def until(self, what, matches=lambda _: True):
        while True:
            for found, params in self.all:
                if found == what and matches(params):
                    return params
            await self.more.wait()


def member(value, *names):
    """A member under the name it has in the SDK at hand."""
    for name in names:
        if hasattr(value, name):
            return getattr(value, name)
    raise AttributeError(f"{value!r} has none of {names}")


def callbacks(heard, types):
    """Who answers what the client is asked, and takes what it is told."""

    async def elicited(_, params):
        heard.add("elicitation", params)
        return types.ElicitResult(action="accept", content={"name": "Ann"})

    async def sampled(_, params):
        heard.add("sampling", params)
        content = types.TextContent(type="text", text="Very well.")
        return types.CreateMessageResult(role="assistant", model="a model", content=content)

    async def logged(params):
        heard.add("message", params)

    async def told(message):
        notification = getattr(message, "root", message)
        method = getattr(notification, "method", None)
        if method == "notifications/resources/updated":
            heard.add("updated", notification.params)
        elif method == "notifications/tools/list_changed":
            heard.add("tools", None)

    return {
        "elicitation_callback": elicited,
        "sampling_callback": sampled,
        "logging_callback": logged,
        "message_handler": told,
    }


class InSession:
    """What clients in sessions do in their own way; `sdk` is what takes the calls."""

    def __init__(self, sdk, level, uri):
        self.sdk, self.level, self.uri = sdk, level, uri

    async def want_logs(self):
        await self.level("debug")

    async def watch(self, uri):
        await self.sdk.subscribe_resource(self.uri(uri))

    async def await_tools(self):
        pass


class Modern:
    """What clients of the modern era do in their own way. News come on listens, each with a task of its own."""

    def __init__(self, sdk, heard, tasks):
        self.sdk, self.heard, self.tasks = sdk, heard, tasks
        self.uri = str

    async def want_logs(self):
        pass  # The client was made with a level.

    async def watch(self, uri):
        await self.tasks.start(self.listen, {"resource_subscriptions": [uri]}, ("resource_subscriptions", [uri]))

    async def await_tools(self):
        await self.tasks.start(self.listen, {"tools_list_changed": True}, ("tools_list_changed", True))

    async def listen(self, wanted, honored, task_status):
        async with self.sdk.listen(**wanted) as subscription:
            equal(getattr(subscription.honored, honored[0]), honored[1])
            task_status.started()
            async for event in subscription:
                kind = type(event).__name__
                self.heard.add({"ResourceUpdated": "updated", "ToolsListChanged": "tools"}.get(kind, kind), event)


@asynccontextmanager
async def first(target, heard):
    """The SDK v1: sessions."""
    from mcp import ClientSession, StdioServerParameters, types
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client
    from pydantic import AnyUrl

    if isinstance(target, str):
        transport = streamable_http_client(target)
    else:
        transport = stdio_client(StdioServerParameters(command=target[0], args=target[1:]))
    async with transport as (read, write, *_):
        async with ClientSession(read, write, **callbacks(heard, types)) as session:
            await session.initialize()
            yield InSession(session, session.set_logging_level, AnyUrl)


@asynccontextmanager
async def second(target, heard, mode):
    """The SDK v2, which knows both eras and speaks the one that it is told."""
    import mcp_types as types
    from mcp import Client, StdioServerParameters

    if not isinstance(target, str):
        target = StdioServerParameters(command=target[0], args=target[1:])
    level = {"log_level": "debug"} if mode == MODERN else {}
    async with Client(target, mode=mode, **level, **callbacks(heard, types)) as client:
        equal(client.protocol_version == MODERN, mode == MODERN)
        if mode != MODERN:
            yield InSession(client, client.set_logging_level, str)
            return
        async with anyio.create_task_group() as tasks:
            yield Modern(client, heard, tasks)
            tasks.cancel_scope.cancel()


def equal(actual, expected):
    if actual != expected:
        raise AssertionError(f"expected {expected!r}, got {actual!r}")


class Steps:
    """The steps, in this order."""

    ALL = (
        "tools resources prompts progress logging subscription list_changed elicitation sampling".split()
    )

    def __init__(self, name, peer, heard):
        self.name, self.peer, self.sdk, self.heard = name, peer, peer.sdk, heard

    async def call(self, tool, arguments, **more):
        result = await self.sdk.call_tool(tool, arguments, **more)
        text = "\n".join(item.text for item in result.content if item.type == "text")
        if member(result, "is_error", "isError"):
            raise AssertionError(f"tool error: {text}")
        return text

    async def read(self, uri):
        return (await self.sdk.read_resource(self.peer.uri(uri))).contents[0].text

    async def tools(self):
        names = {tool.name for tool in (await self.sdk.list_tools()).tools}
        equal(names & {"add", "count", "talk", "ask_name", "ask_model", "set_note", "grow"}, names)
        equal(await self.call("add", {"a": 2, "b": 3}), "5")

    async def resources(self):
        uris = [str(resource.uri) for resource in (await self.sdk.list_resources()).resources]
        equal("static://greeting" in uris, True)
        equal(await self.read("static://greeting"), "Hello from the server")

    async def prompts(self):
        equal("greet" in [prompt.name for prompt in (await self.sdk.list_prompts()).prompts], True)
        prompt = await self.sdk.get_prompt("greet", {"name": "Ann"})
        equal(prompt.messages[0].content.text, "Please greet Ann.")

    async def progress(self):
        reports = []

        async def reported(progress, total, _):
            reports.append((progress, total))

        equal(await self.call("count", {"steps": 3}, progress_callback=reported), "counted to 3")
        equal(reports, [(1, 3), (2, 3), (3, 3)])

    async def logging(self):
        await self.peer.want_logs()
        equal(await self.call("talk", {"message": "as it were"}), "said as it were")
        said = await self.heard.until("message", lambda params: "as it were" in json.dumps(params.data))
        equal(said.level, "info")

    async def subscription(self):
        words = f"note of {self.name} {random.random()}"
        await self.peer.watch(NOTE)
        equal(await self.call("set_note", {"text": words}), "noted")
        await self.heard.until("updated", lambda params: str(params.uri) == NOTE)
        equal(await self.read(NOTE), words)

    async def list_changed(self):
        await self.peer.await_tools()
        equal(await self.call("grow", {}), "grown")
        await self.heard.until("tools")

    async def elicitation(self):
        equal(await self.call("ask_name", {}), "Hello, Ann!")
        equal((await self.heard.until("elicitation")).message, "Who are you?")

    async def sampling(self):
        equal(await self.call("ask_model", {"prompt": "Well?"}), "The model says: Very well.")
        equal((await self.heard.until("sampling")).messages[0].content.text, "Well?")


def reason(error):
    """The first cause in a group of errors, on one line."""
    while getattr(error, "exceptions", None):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}".replace("\n", " ")


async def walk(steps, server):
    """Takes all steps, and returns how many failed."""
    failed = 0
    for step in Steps.ALL:
        try:
            with anyio.fail_after(STEP_DEADLINE_SECONDS):
                await getattr(steps, step)()
            print(f"{steps.name} {server} {step} ok", flush=True)
        except Exception as error:
            failed += 1
            print(f"{steps.name} {server} {step} FAILED: {reason(error)}", flush=True)
    return failed


async def main(name, server, target):
    kinds = {"py1": first, "py2-legacy": second, "py2-modern": second}
    more = {"py1": (), "py2-legacy": ("legacy",), "py2-modern": (MODERN,)}
    heard, failed, connected = Heard(), 0, False
    try:
        # The deadline is for connecting; scopes nest, so it has to stand around all of it.
        with anyio.fail_after(STEP_DEADLINE_SECONDS) as opening:
            async with kinds[name](target, heard, *more[name]) as peer:
                opening.deadline = math.inf
                print(f"{name} {server} connect ok", flush=True)
                connected = True
                failed += await walk(Steps(name, peer, heard), server)
    except BaseException as error:
        failed += 1
        print(f"{name} {server} {'close' if connected else 'connect'} FAILED: {reason(error)}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if len(sys.argv) < 4 or sys.argv[1] not in ("py1", "py2-legacy", "py2-modern"):
        print("usage: eras.py py1|py2-legacy|py2-modern SERVER URL|-- COMMAND...", file=sys.stderr)
        sys.exit(2)
    target = sys.argv[4:] if sys.argv[3] == "--" else sys.argv[3]
    sys.exit(anyio.run(main, sys.argv[1], sys.argv[2], target))
