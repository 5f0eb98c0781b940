"""Runs fast-agent, the released client that knows data sessions, against the demo server, over HTTP and over pipes.

Usage: DIR/fast-agent-0.5.3/bin/python tests/clients/data_sessions.py TENURE    (strawman)
       DIR/fast-agent-0.7.15/bin/python tests/clients/data_sessions.py TENURE   (draft)
where DIR is the folder that `tests/clients/install-fast-agent` filled, and TENURE the server's program.

Nothing here handles a cookie: the client makes its session, sends its cookie and keeps its jar by itself. Only the
model is missing, whose part, to say which tool is called, the steps play. Every step has a jar of its own.
"""

import asyncio
import importlib.metadata
import json
import os
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

from fast_agent.config import MCPServerSettings, MCPSettings, Settings
from fast_agent.context import Context
from fast_agent.mcp.mcp_agent_client_session import MCPAgentClientSession
from fast_agent.mcp.mcp_aggregator import MCPAggregator
from fast_agent.mcp_server_registry import ServerRegistry
from fast_agent.utils.async_utils import configure_uvloop

STEP_DEADLINE_SECONDS = 120
# How long a session lives unused in the step in which it expires: more than a busy machine needs for the first call.
IDLE_SECONDS = 6

VERSION = importlib.metadata.version("fast-agent-mcp")
STRAWMAN = VERSION.startswith("0.5.")
CREATE = "session/create" if STRAWMAN else "sessions/create"
COOKIE = "mcp/session" if STRAWMAN else "io.modelcontextprotocol/session"
ID = "id" if STRAWMAN else "sessionId"


async def one_session_for_a_connection(server):
    async with connect(server) as client:
        assert await client.count() == 1
        assert await client.count() == 2
        assert client.created() == 1, client.sent
        # Lists go without the cookie, calls with it.
        assert {method for method, id in client.sent if id} == {"tools/call"}, client.sent
        assert {id for _, id in client.sent if id} == {client.id}, client.sent


async def another_connection_goes_on(server):
    async with connect(server) as client:
        assert [await client.count(), await client.count()] == [1, 2]
        id = await client.keep()
    server.left()
    async with connect(server) as client:
        assert [await client.count(), await client.count()] == [3, 4]
        assert (client.created(), client.id) == (0, id), client.sent
    server.left()


async def another_process_goes_on(server):
    async with connect(server) as client:
        assert await client.count() == 1
        await client.keep()
    target = server.settings.model_dump_json(exclude_none=True)
    command = [sys.executable, __file__, "--count", server.folder, target]
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    out, _ = await process.communicate()
    assert out.splitlines()[-1:] == [b"2 after 0 created"], out


async def the_server_is_killed(server):
    async with connect(server) as client:
        assert await client.count() == 1
        await client.keep()
        await server.kill()
        # Over HTTP the connection goes on. Over pipes it went with the server, and this client starts no other: its next
        # call fails, or waits for ever.
        if isinstance(server, Http):
            assert await client.count() == 2
            assert client.created() == 1, client.sent
    async with connect(server) as client:
        assert await client.count() == (3 if isinstance(server, Http) else 2)
        assert client.created() == 0, client.sent


async def resources_and_prompts(server):
    async with connect(server) as client:
        await client.call("notebook_append", text="remember this")
        prompt = await client.aggregator.get_prompt("summarize_notebook", server_name="demo")
        assert prompt.messages, prompt
        # 0.5.3 means to send its cookie with these too, but writes `meta` for `_meta`.
        if not STRAWMAN:
            notes = await client.aggregator.get_resource("demo://notebook", "demo")
            assert notes.contents[0].text == "remember this", notes
            assert {method for method, id in client.sent if id} == {"tools/call", "resources/read", "prompts/get"}


async def begin_another_and_go_back(server):
    async with connect(server) as client:
        assert await client.count() == 1
        first = await client.keep()
        sessions = client.aggregator.experimental_sessions
        await sessions.create_session("demo", title="another")
        assert client.id != first
        assert await client.count() == 1
        await sessions.resume_session("demo", session_id=first)
        assert await client.count() == 2


async def deleted_by_the_client(server):
    async with connect(server) as client:
        assert await client.count() == 1
        await client.keep()
        assert await client.session.experimental_session_delete()
        assert client.id is None
        assert "Session required" in await client.refusal()
    await the_jar_lets_go_of_it(server)


async def revoked_by_the_server(server):
    async with connect(server) as client:
        assert await client.count() == 1
        await client.keep()
        await client.call("session_probe", action="revoke")
        assert client.id is None, "the cookie is still there"
        assert "Session required" in await client.refusal()
        assert client.sent[-1] == ("tools/call", None), client.sent
        # What needs no session works without.
        assert await client.call("public_echo", text="open to all") == "open to all"
    await the_jar_lets_go_of_it(server)


async def expired(server):
    async with connect(server) as client:
        assert await client.count() == 1
        id = await client.keep()
        await asyncio.sleep(IDLE_SECONDS + 1)
        assert "expired" in await client.refusal()
        assert client.id is None, "the cookie is still there"
        assert "expired" in jar(server)[id]["invalidatedReason"], jar(server)
    async with connect(server) as client:
        assert await client.count() == 1
        assert (client.created(), client.id != id) == (1, True), client.sent


async def never_heard_of(server):
    async with connect(server) as client:
        assert await client.count() == 1
        await client.keep()
    await server.forget()
    await the_jar_lets_go_of_it(server)


async def the_jar_lets_go_of_it(server):
    """The client comes with a dead cookie, is told so, and begins with another one the next time."""
    (dead,) = jar(server)
    async with connect(server) as client:
        assert (client.created(), client.id) == (0, dead), client.sent
        assert await client.refusal()
        assert "invalidatedAt" in jar(server)[dead], jar(server)
        assert "Session required" in await client.refusal()
    async with connect(server) as client:
        assert await client.count() == 1
        assert (client.created(), client.id != dead) == (1, True), client.sent


STEPS = {
    "one session for a connection": one_session_for_a_connection,
    "another connection goes on": another_connection_goes_on,
    "another process goes on": another_process_goes_on,
    "the server is killed": the_server_is_killed,
    "resources and prompts": resources_and_prompts,
    "begin another and go back": begin_another_and_go_back,
    "deleted by the client": deleted_by_the_client,
    "revoked by the server": revoked_by_the_server,
    "expired": expired,
    "never heard of": never_heard_of,
}


async def main(tenure):
    # All at once: this client spends most of its time waiting.
    ok = await asyncio.gather(*(step(name, door, tenure) for door in (Http, Pipes) for name in STEPS))
    print(f"{ok.count(True)} passed, {ok.count(False)} failed")
    return 0 if all(ok) else 1


async def step(name, door, tenure):
    run = STEPS[name]
    with tempfile.TemporaryDirectory() as folder:
        server = door(tenure, Path(folder), ["--set", f"data_sessions.idle_ttl={IDLE_SECONDS}s"] if run is expired else [])
        try:
            async with asyncio.timeout(STEP_DEADLINE_SECONDS):
                await server.start()
                await run(server)
            print(f"ok {name}, {door.name}", flush=True)
            return True
        except Exception as error:
            print(f"not ok {name}, {door.name}: {reason_of(error)}", flush=True)
            return False
        finally:
            await server.stop()


class Http:
    """`tenure serve`, on one port from start to start."""

    name = "HTTP"

    def __init__(self, tenure, folder, options):
        self.folder = folder
        self.store = folder / "store"
        self.address = "127.0.0.1:0"
        self.command = [tenure, "serve", "--log", "json", "--log-level", "debug", *options]
        self.process = None

    async def start(self):
        with open(self.folder / "log", "a") as log:
            command = [*self.command, "--store", f"disk:{self.store}", "--listen", self.address]
            self.process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=log)
        # Once it listens, it says where.
        url = (await self.process.stdout.readline()).decode().strip()
        assert url, (self.folder / "log").read_text()
        self.address = urlsplit(url).netloc
        self.settings = MCPServerSettings(name="demo", transport="http", url=url)

    async def stop(self, how=signal.SIGTERM):
        if self.process and self.process.returncode is None:
            self.process.send_signal(how)
            await self.process.wait()

    async def kill(self):
        await self.stop(signal.SIGKILL)
        await self.start()

    async def forget(self):
        await self.stop()
        self.store = self.folder / "another store"
        await self.start()

    def left(self):
        """The client deleted its transport session on its way out: that must not touch the data session."""
        ended = [line for line in (self.folder / "log").read_text().splitlines() if "session ended" in line]
        assert ended and json.loads(ended[-1])["how"] == "Deleted", ended


class Pipes:
    """`tenure stdio`, which the client starts. A shell in front of it says which process it is."""

    name = "stdio"

    def __init__(self, tenure, folder, options):
        self.folder = folder
        self.pid = folder / "pid"
        self.store = folder / "store"
        script = f'echo $$ >"{self.pid}"; exec "$@"'
        command = [tenure, "stdio", "--store", f"disk:{self.store}", *options]
        self.settings = MCPServerSettings(
            name="demo", transport="stdio", command="sh", args=["-c", script, "sh", *command]
        )

    async def start(self):
        pass

    async def stop(self):
        pass

    async def kill(self):
        os.kill(int(self.pid.read_text()), signal.SIGKILL)

    async def forget(self):
        self.store.rename(self.store.with_name("old"))

    def left(self):
        pass


class Client:
    """A connection of fast-agent to the demo server."""

    def __init__(self, server, aggregator, sent):
        self.server = server
        self.aggregator = aggregator
        self.sent = sent

    @property
    def session(self):
        return self.aggregator._require_connection_manager().running_servers["demo"].session

    @property
    def id(self):
        """The session whose cookie the client has at hand."""
        return self.session.experimental_session_id

    def created(self):
        return [method for method, _ in self.sent].count(CREATE)

    async def call(self, tool, **arguments):
        result = await self.aggregator.call_tool(f"demo__{tool}", arguments)
        text = "\n".join(item.text for item in result.content)
        assert not result.isError, text
        return text

    async def count(self):
        return json.loads(await self.call("session_counter_inc"))["counter"]

    async def refusal(self):
        """What the client says of a call that the server refuses."""
        result = await self.aggregator.call_tool("demo__session_counter_inc", {})
        assert result.isError, result
        return result.content[0].text

    async def keep(self):
        """Puts the cookie into the jar, which this client does only when it is asked to show it."""
        await self.aggregator.experimental_sessions.list_jar()
        assert self.id in jar(self.server), jar(self.server)
        return self.id


@asynccontextmanager
async def connect(server):
    settings = Settings(mcp=MCPSettings(servers={"demo": server.settings}))
    context = Context(config=settings, server_registry=ServerRegistry(settings))
    requests = []
    sent.set(requests)
    # Where the jar is: the client looks this up at once.
    os.environ["ENVIRONMENT_DIR"] = str(server.folder)
    aggregator = MCPAggregator(["demo"], connection_persistence=True, context=context, name="tester")
    async with aggregator:
        yield Client(server, aggregator, requests)


# What the client asks in this step: the method, and the id in the cookie.
sent = ContextVar("sent")
send_request = MCPAgentClientSession.send_request


async def note_and_send(self, request, *args, **kwargs):
    message = request.model_dump(by_alias=True, mode="json", exclude_none=True)
    meta = (message.get("params") or {}).get("_meta") or {}
    sent.get().append((message["method"], (meta.get(COOKIE) or {}).get(ID)))
    return await send_request(self, request, *args, **kwargs)


MCPAgentClientSession.send_request = note_and_send


def jar(server):
    """What the client keeps in its file, by id."""
    kept = json.loads((server.folder / "mcp-cookie.json").read_text())
    return {entry["id"]: entry for record in kept["cookies"].values() for entry in record["cookies"]}


async def count(folder, settings):
    """What the other process does."""
    server = SimpleNamespace(folder=folder, settings=MCPServerSettings.model_validate_json(settings))
    async with connect(server) as client:
        print(f"{await client.count()} after {client.created()} created")


def reason_of(error):
    # Connections run in task groups, so their errors come wrapped, with the first as the cause.
    while getattr(error, "exceptions", None):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"not done after {STEP_DEADLINE_SECONDS} s"
    line = error.__traceback__
    while line and line.tb_next:
        line = line.tb_next
    where = f" (line {line.tb_lineno})" if line else ""
    return (str(error).split("\n")[0] or type(error).__name__) + where


if __name__ == "__main__":
    # As the client's own command line does; otherwise it is done under a running loop, which then starts no processes.
    configure_uvloop()
    if sys.argv[1:2] == ["--count"]:
        sys.exit(asyncio.run(count(*sys.argv[2:])))
    if len(sys.argv) != 2:
        sys.exit("usage: data_sessions.py TENURE")
    sys.exit(asyncio.run(main(sys.argv[1])))
