"""Runs a real client, built with the Python SDK, against a server with the conformance fixtures.

Usage: DIR/venv/bin/python tests/clients/python.py URL [PID_FILE]      (SDK v1)
       DIR/venv-v2/bin/python tests/clients/python.py URL [PID_FILE]   (SDK v2)
where DIR is the folder that `tests/clients/install` filled. Both speak 2025-11-25. With a PID_FILE the
server is the demo behind `tests/clients/keeper`, and is killed in the middle of a call.
`typescript.mjs` has the same steps: keep the two alike.

Every step opens a session of its own and ends it, so a broken step cannot break the next one.
"""

import asyncio
import importlib.metadata
import os
import pathlib
import re
import signal
import sys
import warnings
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

import anyio
from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client

SDK_VERSION = importlib.metadata.version("mcp")
if SDK_VERSION.startswith("1."):
    import httpx
else:
    import httpx2 as httpx

REVISION = "2025-11-25"
STEP_DEADLINE_SECONDS = 20
ANSWER = {"username": "ada", "email": "ada@example.com"}

# SDK v2 points every caller of the 2025-11-25 methods to the next revision.
warnings.filterwarnings("ignore", message=".* as of 2026-07-28")


async def connect(url):
    async with open_client(url) as client:
        assert client.initialized["protocolVersion"] == REVISION, f"negotiated {client.initialized['protocolVersion']}"
        assert re.fullmatch(r"[\x21-\x7e]+", client.session_id or ""), f"session id {client.session_id!r}"
        await client.session.send_ping()
        ping = [request for request in client.sent if request.method == "POST"][-1].headers
        assert ping.get("mcp-session-id") == client.session_id, "session id of the next request"
        assert ping.get("mcp-protocol-version") == REVISION, "version of the next request"


async def list_everything(url):
    async with open_client(url) as client:
        tools = plain(await client.session.list_tools())["tools"]
        includes(tools, "name", "test_simple_text", "test_long_task", "test_reconnection")
        resources = plain(await client.session.list_resources())["resources"]
        includes(resources, "uri", "test://static-text", "test://watched-resource")
        prompts = plain(await client.session.list_prompts())["prompts"]
        includes(prompts, "name", "test_simple_prompt", "test_prompt_with_arguments")


async def call(url):
    async with open_client(url) as client:
        text = await client.call("test_simple_text")
        assert text == "This is a simple text response for testing.", f"got {text!r}"


async def subscribe(url):
    async with open_client(url) as client:
        await client.session.subscribe_resource("test://watched-resource")
        await client.session.unsubscribe_resource("test://watched-resource")


async def logging(url):
    logged = []

    async def take(params):
        logged.append(params.data)

    async with open_client(url, logging_callback=take) as client:
        await client.session.set_logging_level("debug")
        await client.call("test_tool_with_logging")
        assert len(logged) >= 3, f"3 log messages before the result, got {len(logged)}"


async def progress(url):
    async with open_client(url) as client:
        values = []
        await client.call("test_tool_with_progress", on_progress=values.append)
        assert len(values) >= 3, f"3 progress notifications before the result, got {values}"
        assert_increasing(values)


async def elicitation(url):
    asked = []

    async def answer(_context, params):
        asked.append(params.message)
        return types.ElicitResult(action="accept", content=ANSWER)

    async with open_client(url, elicitation_callback=answer) as client:
        text = await client.call("test_elicitation", {"message": "Who are you?"})
        assert asked == ["Who are you?"], f"the client was asked {asked}"
        assert ANSWER["email"] in text, f"the answer is not in {text!r}"


async def resume_after_a_cut_connection(url):
    # The SDK resumes the stream of a POST only if an event with an id came before the cut, and
    # only once without repeats: a second cut would make it resume from the id of the first one.
    # So this step cuts once, after two events.
    async with open_proxy(url) as proxy, open_client(proxy.url) as client:
        values = []

        def take(value):
            values.append(value)
            if len(values) == 2:
                proxy.cut()

        text = await client.call("test_long_task", {"steps": 6, "interval_ms": 100}, on_progress=take)
        assert proxy.cuts > 0, "the connection was not cut"
        assert text == "done after 6 steps", f"got {text!r}"
        assert len(values) == 6, f"every progress value once, got {values}"
        assert_increasing(values)
        client.assert_polled()


async def resume_after_the_server_ends_the_stream(url):
    async with open_client(url) as client:
        assert await client.call("test_reconnection"), "no text in the result"
        client.assert_polled()


async def terminate(url):
    async with open_client(url) as client:
        session_id = client.session_id
        assert session_id, "no session id"
        # `initialize` returns before `notifications/initialized` is sent; a ping comes after it.
        await client.session.send_ping()
        status = await status_of_ping(url, session_id)
        assert status == 200, f"status {status} while the session lives"
    # The SDK has no call that ends a session; it sends the DELETE when its context is left.
    ends = [request for request in client.sent if request.method == "DELETE"]
    assert len(ends) == 1, f"{len(ends)} DELETE requests"
    status = await status_of_ping(url, session_id)
    assert status == 404, f"status {status} after the session ended"


async def go_on_after_a_kill(url, pid_file):
    async with open_client(url) as client:
        values = []

        def take(value):
            values.append(value)
            if len(values) == 3:
                os.kill(int(pathlib.Path(pid_file).read_text()), signal.SIGKILL)

        arguments = {"seconds": 8, "interval_ms": 250}
        text = await client.call("long_task", arguments, on_progress=take)
        assert text == "worked for 2 s", f"got {text!r}"
        assert values == list(range(9)), f"every step once, got {values}"
        client.assert_polled()
        # The same session, in another process.
        text = await client.call("public_echo", {"text": "still here"})
        assert text == "still here", f"got {text!r}"
        begun = [r for r in client.sent if b'"initialize"' in r.content]
        assert len(begun) == 1, f"{len(begun)} sessions"


STEPS = {
    "connect": connect,
    "list": list_everything,
    "call": call,
    "subscribe": subscribe,
    "logging": logging,
    "progress": progress,
    "elicitation": elicitation,
    "resume after a cut connection": resume_after_a_cut_connection,
    "resume after the server ends the stream": resume_after_the_server_ends_the_stream,
    "terminate": terminate,
}


async def main(url, *pid_file):
    failed = 0
    steps = {"go on after a kill": go_on_after_a_kill} if pid_file else STEPS
    for name, run in steps.items():
        try:
            with anyio.fail_after(STEP_DEADLINE_SECONDS):
                await run(url, *pid_file)
            print(f"ok {name}", flush=True)
        except Exception as error:
            failed += 1
            print(f"not ok {name}: {reason_of(error)}", flush=True)
    print(f"{len(steps) - failed} passed, {failed} failed")
    return 1 if failed else 0


@dataclass
class Client:
    """A connected session and the HTTP requests it sent."""

    sent: list = field(default_factory=list)
    # As the server's headers say it: SDK v2 does not expose the id.
    session_id: str | None = None
    session: ClientSession | None = None
    initialized: dict = field(default_factory=dict)

    async def call(self, tool, arguments=None, on_progress=None):
        """Calls a tool and returns its text; `on_progress` gets every progress value."""

        async def take(value, _total, _message):
            on_progress(value)

        callback = take if on_progress else None
        result = plain(await self.session.call_tool(tool, arguments, progress_callback=callback))
        text = "\n".join(item["text"] for item in result["content"] if item["type"] == "text")
        assert not result.get("isError"), f"tool error: {text}"
        return text

    def assert_polled(self):
        """The result came over a GET with `Last-Event-ID`, not by calling again."""
        resumed = [r for r in self.sent if r.method == "GET" and "last-event-id" in r.headers]
        assert resumed, "no GET with Last-Event-ID"
        calls = [r for r in self.sent if b'"tools/call"' in r.content]
        assert len(calls) == 1, f"{len(calls)} calls sent"


@asynccontextmanager
async def open_client(url, **callbacks):
    """Connects a client, and ends its session on the way out."""
    client = Client()

    async def sent(request):
        client.sent.append(request)

    async def received(response):
        client.session_id = response.headers.get("mcp-session-id", client.session_id)

    # The timeouts are the SDK's own; the read timeout has to outlast quiet streams.
    timeout = httpx.Timeout(30, read=300)
    async with (
        httpx.AsyncClient(timeout=timeout, event_hooks={"request": [sent], "response": [received]}) as http,
        streamable_http_client(url, http_client=http) as streams,
        ClientSession(streams[0], streams[1], **callbacks) as session,
    ):
        client.session = session
        client.initialized = plain(await session.initialize())
        yield client


class Proxy:
    """A TCP proxy that forwards bytes until `cut`, and keeps accepting after it."""

    def __init__(self, upstream):
        self.upstream = urlsplit(upstream)
        self.url = None
        self.cuts = 0
        self._writers = set()

    def cut(self):
        self.cuts += len(self._writers)
        for writer in self._writers:
            writer.transport.abort()

    async def accept(self, down_reader, down_writer):
        self._writers.add(down_writer)
        try:
            up_reader, up_writer = await asyncio.open_connection(self.upstream.hostname, self.upstream.port or 80)
            self._writers.add(up_writer)
            try:
                copies = [
                    asyncio.ensure_future(self._copy(down_reader, up_writer)),
                    asyncio.ensure_future(self._copy(up_reader, down_writer)),
                ]
                # Either side going ends the other: HTTP peers do not half-close.
                await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
                for copy in copies:
                    copy.cancel()
            finally:
                self._writers.discard(up_writer)
                up_writer.close()
        except OSError:
            pass  # The server is gone; the client under test sees its connection end.
        finally:
            self._writers.discard(down_writer)
            down_writer.close()

    @staticmethod
    async def _copy(reader, writer):
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass  # A reset is what this proxy is for.


@asynccontextmanager
async def open_proxy(upstream):
    proxy = Proxy(upstream)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    proxy.url = urlunsplit(proxy.upstream._replace(netloc=f"127.0.0.1:{port}"))
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut()


async def status_of_ping(url, session_id):
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-session-id": session_id,
        "mcp-protocol-version": REVISION,
    }
    body = {"jsonrpc": "2.0", "id": "raw-1", "method": "ping"}
    async with httpx.AsyncClient() as http, http.stream("POST", url, json=body, headers=headers) as response:
        return response.status_code


def plain(result):
    """The result as on the wire: the attribute names differ between SDK v1 and v2."""
    return result.model_dump(by_alias=True, mode="json")


def includes(items, key, *wanted):
    found = [item[key] for item in items]
    for value in wanted:
        assert value in found, f"{value} is not in {found}"


def assert_increasing(values):
    assert all(a < b for a, b in zip(values, values[1:])), f"progress must increase, got {values}"


def reason_of(error):
    # The transport runs in a task group, so its errors come wrapped, with the first as the cause.
    while getattr(error, "exceptions", None):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"not done after {STEP_DEADLINE_SECONDS} s"
    return str(error).split("\n")[0] or type(error).__name__


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python.py URL [PID_FILE]")
    sys.exit(asyncio.run(main(*sys.argv[1:])))
