"""Data sessions without a session, by the Python SDK of 2026-07-28: the extension's methods, the cookie in `_meta`, a
handle among a tool's arguments, over a kill of the server.

Usage: DIR/venv-v2/bin/python tests/clients/data_sessions_modern.py TENURE
where DIR is the folder that `tests/clients/install` filled, and TENURE the server's program.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
from typing import Any

import anyio
import mcp_types as types
from mcp import MCPError
from mcp.client.client import Client
from mcp.client.extension import advertise

STEP_DEADLINE_SECONDS = 60
COOKIE = "dev.tenure/session"


class Made(types.Result):
    """What the extension's methods answer."""

    model_config = {"extra": "allow"}


class Asked(types.Request[dict[str, Any], str]):
    """A method of the extension."""

    method: str
    params: dict[str, Any]


@contextlib.contextmanager
def served(program, folder):
    """A server on a store in this folder."""
    command = [program, "serve", "--listen", "127.0.0.1:0", "--store", f"disk:{folder}/store"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        for line in server.stderr:
            if '"listening"' in line:
                yield json.loads(line)["url"]
                break
    finally:
        server.kill()
        server.wait()


def client(url):
    return Client(url, mode="2026-07-28", extensions=[advertise("dev.tenure/sessions")])


async def ask(client, verb, **params):
    request = Asked(method=f"dev.tenure/session/{verb}", params=params)
    return (await client.session.send_request(request, Made)).meta[COOKIE]


async def call(client, tool, cookie=None, **arguments):
    """What a tool tells, and the cookie that comes back with it."""
    meta = {COOKIE: cookie} if cookie else None
    result = await client.call_tool(tool, arguments, meta=meta)
    return result.structured_content, (result.meta or {}).get(COOKIE)


async def by_cookie(program, folder):
    with served(program, folder) as url:
        async with client(url) as first:
            cookie = await ask(first, "create", hints={"label": "sdk"})
            told, cookie = await call(first, "session_counter_inc", cookie)
            assert told == {"counter": 1}, told
    # The server was killed. Another one, another connection, the same state.
    with served(program, folder) as url:
        async with client(url) as second:
            told, echoed = await call(second, "session_counter_inc", cookie)
            assert told == {"counter": 2} and echoed["sessionId"] == cookie["sessionId"], (told, echoed)
            fork = await ask(second, "fork", sessionId=cookie["sessionId"])
            assert (await call(second, "session_counter_get", fork))[0] == {"counter": 2}
            assert await ask(second, "delete", sessionId=cookie["sessionId"]) is None
            with_error = await refused(call(second, "session_counter_get", cookie))
            assert with_error == (-31043, "data_session_deleted"), with_error
            with_error = await refused(call(second, "session_counter_get"))
            assert with_error == (-31044, "data_session_required"), with_error


async def by_handle(program, folder):
    with served(program, folder) as url:
        async with client(url) as model:
            # The SDK sends the header for the handle's argument once it knows the tools.
            await model.list_tools()
            made, _ = await call(model, "create_workspace")
            handle = made["workspace_id"]
            assert (await call(model, "notebook_append", text="one", workspace_id=handle))[0] == {"notes": 1}
    with served(program, folder) as url:
        async with client(url) as model:
            await model.list_tools()
            told, cookie = await call(model, "notebook_read", workspace_id=handle)
            assert told == {"notes": ["one"]} and cookie is None, (told, cookie)


async def refused(asked):
    try:
        await asked
    except MCPError as error:
        return error.error.code, error.error.data["reason"]
    raise AssertionError("it was not refused")


async def main(program):
    failed = 0
    for step in (by_cookie, by_handle):
        with tempfile.TemporaryDirectory() as folder:
            try:
                with anyio.fail_after(STEP_DEADLINE_SECONDS):
                    await step(program, folder)
                print(f"ok {step.__name__}")
            except Exception as error:
                failed += 1
                print(f"FAILED {step.__name__}: {error!r}")
    sys.exit(1 if failed else 0)


anyio.run(main, sys.argv[1])
