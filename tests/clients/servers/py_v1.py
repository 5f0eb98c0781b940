"""The server of the matrix of eras on the Python SDK v1, which knows sessions alone. See README.md here for what every
one of these servers offers.

Usage: py_v1.py http|stdio
"""

import asyncio
import socket
import sys
import weakref

import uvicorn
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.lowlevel import NotificationOptions
from mcp.types import SamplingMessage, TextContent
from pydantic import AnyUrl, BaseModel

server = FastMCP("py-v1", log_level="WARNING")
inner = server._mcp_server
note = "nothing yet"
watching: "weakref.WeakSet" = weakref.WeakSet()


class Name(BaseModel):
    name: str


def options(*_):
    """FastMCP declares neither what it can be subscribed to nor what may change."""
    made = type(inner).create_initialization_options(inner, NotificationOptions(True, True, True))
    made.capabilities.resources.subscribe = True
    return made


inner.create_initialization_options = options


@inner.set_logging_level()
async def set_level(_):
    pass


@inner.subscribe_resource()
async def subscribe(_):
    watching.add(inner.request_context.session)


@inner.unsubscribe_resource()
async def unsubscribe(_):
    watching.discard(inner.request_context.session)


@server.tool()
def add(a: int, b: int) -> str:
    """Adds."""
    return str(a + b)


@server.tool()
async def count(steps: int, context: Context) -> str:
    """Counts, and reports."""
    for step in range(1, steps + 1):
        await context.report_progress(step, steps)
        await asyncio.sleep(0.05)
    return f"counted to {steps}"


@server.tool()
async def talk(message: str, context: Context) -> str:
    """Logs."""
    await context.info(message)
    return f"said {message}"


@server.tool()
async def ask_name(context: Context) -> str:
    """Asks the user."""
    answer = await context.elicit("Who are you?", Name)
    return f"Hello, {answer.data.name}!" if answer.action == "accept" else f"No name: {answer.action}"


@server.tool()
async def ask_model(prompt: str, context: Context) -> str:
    """Asks the model."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text=prompt))
    answer = await context.session.create_message(
        [message], max_tokens=50, related_request_id=context.request_id
    )
    return f"The model says: {answer.content.text}"


@server.tool()
async def set_note(text: str) -> str:
    """Changes the note."""
    global note
    note = text
    for session in list(watching):
        await session.send_resource_updated(AnyUrl("note://today"))
    return "noted"


@server.tool()
async def grow(context: Context) -> str:
    """Says that the tools changed."""
    await context.session.send_tool_list_changed()
    return "grown"


@server.resource("static://greeting", name="greeting", mime_type="text/plain")
def greeting() -> str:
    return "Hello from the server"


@server.resource("note://today", name="note", mime_type="text/plain")
def today() -> str:
    return note


@server.prompt()
def greet(name: str) -> str:
    """A greeting."""
    return f"Please greet {name}."


if __name__ == "__main__":
    if sys.argv[1:2] == ["stdio"]:
        server.run()
    else:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
        app = uvicorn.Config(server.streamable_http_app(), log_level="warning")
        uvicorn.Server(app).run(sockets=[listener])
