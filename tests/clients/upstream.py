"""Runs real clients, built with the Python SDK, through a gateway to a server over HTTP that is killed meanwhile.

Usage: DIR/venv/bin/python tests/clients/upstream.py URL PID_FILE KIND      (SDK v1)
       DIR/venv-v2/bin/python tests/clients/upstream.py URL PID_FILE KIND   (SDK v2)
where URL is the gateway's endpoint, PID_FILE that of the `tests/clients/keeper` that runs the server behind it, and
KIND an entry of `upstreams.json`, which says what its tools are called. `upstream.mjs` has the same steps: keep the
two alike.
"""

import asyncio
import json
import os
import pathlib
import signal
import sys
import time
from contextlib import AsyncExitStack

import anyio
from gateway import assert_one_session
from mcp import types
from python import assert_increasing, includes, open_client, plain, reason_of

STEP_DEADLINE_SECONDS = 40
# An answer while the server is down comes at once, give or take a busy machine.
AT_ONCE_SECONDS = 5
CLIENTS = 3
INTERRUPTED = -31010
UNAVAILABLE = -31011


class Server:
    """The server behind the gateway."""

    def __init__(self, pid_file, kind):
        self.pid_file = pathlib.Path(pid_file)
        tools = json.loads((pathlib.Path(__file__).parent / "upstreams.json").read_text())[kind]
        self.plain, self.long, self.asks, self.answer = (tools[key] for key in ("plain", "long", "asks", "answer"))

    def pid(self):
        return self.pid_file.read_text()

    def kill(self):
        os.kill(int(self.pid()), signal.SIGKILL)

    async def answer_question(self, _context, _params):
        return types.ElicitResult(action="accept", content=self.answer)

    def open(self, url):
        return open_client(url, elicitation_callback=self.answer_question)


async def works(url, server):
    async with server.open(url) as client:
        tools = plain(await client.session.list_tools())["tools"]
        includes(tools, "name", server.plain["tool"], server.long["tool"], server.asks["tool"])
        await uses(client, server.plain)
        await uses(client, server.asks)


async def killed_in_a_call(url, server):
    """The call is finished by the server that comes next, if it is there in time and that is safe; else the client is told."""
    async with server.open(url) as client:
        values = []

        def take(value):
            values.append(value)
            if len(values) == 2:
                server.kill()

        before = server.pid()
        try:
            await uses(client, server.long, on_progress=take)
        except Exception as error:
            assert code_of(error) in (INTERRUPTED, UNAVAILABLE), reason_of(error)
        assert len(values) >= 2, "no server was killed"
        assert_increasing(values)
        await until(lambda: server.pid() != before)
        await uses_again(client, server)
        assert_one_session(client)


async def killed_under_load(url, server):
    """Clients that never stop calling: each call is answered, and after the restart with what they want."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(server.open(url)) for _ in range(CLIENTS)]
        answered = [0] * CLIENTS
        is_over = asyncio.Event()

        async def calls(number):
            while not is_over.is_set():
                began = time.monotonic()
                try:
                    await uses(clients[number], server.plain)
                    answered[number] += 1
                except Exception as error:
                    assert code_of(error) in (INTERRUPTED, UNAVAILABLE), reason_of(error)
                    took = time.monotonic() - began
                    assert took < AT_ONCE_SECONDS, f"the error came after {took} s"
                    await asyncio.sleep(0.02)

        async def work():
            goal = [count + 5 for count in answered]
            await until(lambda: all(count >= least for count, least in zip(answered, goal)))

        async with anyio.create_task_group() as group:
            for number in range(CLIENTS):
                group.start_soon(calls, number)
            await work()
            before = server.pid()
            server.kill()
            await until(lambda: server.pid() != before)
            await work()
            is_over.set()
        for client in clients:
            assert_one_session(client)


async def uses(client, what, on_progress=None):
    text = await client.call(what["tool"], what["arguments"], on_progress=on_progress)
    assert what["says"] in text, text


async def uses_again(client, server):
    """The server may not be up yet."""
    while True:
        try:
            return await uses(client, server.plain)
        except Exception as error:
            assert code_of(error) == UNAVAILABLE, reason_of(error)
        await asyncio.sleep(0.02)


def code_of(error):
    """The code of an error that the server answered with; both SDKs wrap it in an exception."""
    return getattr(getattr(error, "error", error), "code", None)


async def until(is_true):
    while not is_true():
        await asyncio.sleep(0.02)


async def main(url, pid_file, kind):
    server, failed = Server(pid_file, kind), 0
    for step in (works, killed_in_a_call, killed_under_load):
        name = step.__name__.replace("_", " ")
        try:
            with anyio.fail_after(STEP_DEADLINE_SECONDS):
                await step(url, server)
            print(f"ok {name}", flush=True)
        except Exception as error:
            failed += 1
            print(f"not ok {name}: {reason_of(error)}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: upstream.py URL PID_FILE KIND")
    sys.exit(asyncio.run(main(*sys.argv[1:])))
