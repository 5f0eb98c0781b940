"""A server on the Python SDK's own FastMCP, for tests of the gateway: what is under test is the SDK's half.

Usage: fastmcp_server.py [stdio|sse|streamable-http [PORT]]
"""

import asyncio
import sys

from mcp.server.fastmcp import Context, FastMCP
from pydantic import BaseModel

server = FastMCP("fastmcp")


class Name(BaseModel):
    name: str


@server.tool(annotations={"readOnlyHint": True})
async def work(steps: int, context: Context) -> str:
    """Works for some steps of a fifth of a second each."""
    for step in range(steps):
        await context.report_progress(step + 1, steps)
        await asyncio.sleep(0.2)
    return f"did {steps} steps"


@server.tool()
async def greet(context: Context) -> str:
    """Logs, asks for a name, and greets."""
    await context.info("about to ask")
    answer = await context.elicit("Who are you?", Name)
    return f"Hello, {answer.data.name}!"


@server.resource("note://first")
def first() -> str:
    return "the first note"


@server.prompt()
def ask_for(topic: str) -> str:
    return f"Tell me about {topic}."


if __name__ == "__main__":
    transport = sys.argv[1] if len(sys.argv) > 1 else "stdio"
    if len(sys.argv) > 2:
        server.settings.port = int(sys.argv[2])
    server.run(transport=transport)
