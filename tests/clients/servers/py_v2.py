"""The server of the matrix of eras on the Python SDK v2, which knows both; `modern` makes it refuse sessions. See
README.md here for what every one of these servers offers.

Usage: py_v2.py http|stdio both|modern
"""

import asyncio
import json
import socket
import sys
import warnings

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.stdio import stdio_server
from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    EmptyResult,
    InputRequiredResult,
    SamplingMessage,
    SetLevelRequestParams,
    TextContent,
)

MODERN = "2026-07-28"
# Logging is deprecated there, and under test here.
warnings.simplefilter("ignore")
server = MCPServer("py-v2", log_level="WARNING")
note = "nothing yet"


async def set_level(_context, _params):
    return EmptyResult()


# A server that takes a level declares that it logs; MCPServer does neither.
server._lowlevel_server.add_request_handler("logging/setLevel", SetLevelRequestParams, set_level)


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
async def ask_name(context: Context) -> str | InputRequiredResult:
    """Asks the user."""
    answer = (context.input_responses or {}).get("user")
    if answer is None:
        schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        params = ElicitRequestFormParams(message="Who are you?", requested_schema=schema)
        return InputRequiredResult(input_requests={"user": ElicitRequest(params=params)})
    return f"Hello, {answer.content['name']}!" if answer.action == "accept" else f"No name: {answer.action}"


@server.tool()
async def ask_model(prompt: str, context: Context) -> str | InputRequiredResult:
    """Asks the model."""
    answer = (context.input_responses or {}).get("model")
    if answer is None:
        message = SamplingMessage(role="user", content=TextContent(type="text", text=prompt))
        params = CreateMessageRequestParams(messages=[message], max_tokens=50)
        return InputRequiredResult(
            input_requests={"model": CreateMessageRequest(params=params)}, request_state="the model was asked"
        )
    return f"The model says: {answer.content.text}"


@server.tool()
async def set_note(text: str, context: Context) -> str:
    """Changes the note."""
    global note
    note = text
    await context.notify_resource_updated("note://today")
    return "noted"


@server.tool()
async def grow(context: Context) -> str:
    """Says that the tools changed."""
    await context.notify_tools_changed()
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


def refusal(request_id, requested):
    """What a server says that does not know a revision."""
    data = {"supported": [MODERN], "requested": requested}
    error = {"code": -32022, "message": "Unsupported protocol version", "data": data}
    return {"jsonrpc": "2.0", "id": request_id, "error": error}


class ModernOnly:
    """Answers everything of the session era as a server does that never knew it."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        headers = dict(scope.get("headers", ()))
        if scope["type"] != "http" or headers.get(b"mcp-protocol-version") == MODERN.encode():
            return await self.app(scope, receive, send)
        body, more = b"", True
        while more:
            event = await receive()
            body += event.get("body", b"")
            more = event.get("more_body", False)
        try:
            message = json.loads(body)
            requested = message.get("params", {}).get("protocolVersion", "")
            answer, status = refusal(message.get("id"), requested), 400
        except (ValueError, AttributeError):
            answer, status = {}, 405
        start = {"type": "http.response.start", "status": status}
        await send({**start, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})


async def modern_stdio():
    """Serves standard input and output, and answers requests of the session era itself."""
    async with stdio_server() as (read, write):
        forward, filtered = anyio.create_memory_object_stream(16)

        async def keep_modern():
            async with forward:
                async for item in read:
                    message = item.message if hasattr(item, "message") else None
                    params = getattr(message, "params", None) or {}
                    is_request = hasattr(message, "method") and getattr(message, "id", None) is not None
                    if is_request and "io.modelcontextprotocol/protocolVersion" not in (params.get("_meta") or {}):
                        await write.send(refused(item, message, params))
                    else:
                        await forward.send(item)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keep_modern)
            inner = server._lowlevel_server
            await inner.run(filtered, write, inner.create_initialization_options())
            tasks.cancel_scope.cancel()


def refused(item, message, params):
    from mcp_types import JSONRPCError

    answer = refusal(message.id, params.get("protocolVersion", ""))
    return type(item)(JSONRPCError.model_validate(answer))


if __name__ == "__main__":
    transport, eras = (sys.argv[1:] + ["stdio", "both"])[:2] if len(sys.argv) < 3 else sys.argv[1:3]
    if transport == "stdio":
        anyio.run(modern_stdio) if eras == "modern" else server.run()
    else:
        app = server.streamable_http_app()
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
        config = uvicorn.Config(ModernOnly(app) if eras == "modern" else app, log_level="warning")
        uvicorn.Server(config).run(sockets=[listener])
