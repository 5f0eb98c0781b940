"""The client of FastMCP 4, as its README shows it.

Usage: python fastmcp_v4.py URL
"""

import asyncio
import sys

from fastmcp import Client
from lines import answer_calls


async def main(url):
    async with Client(url) as client:
        revision = getattr(client.session, "protocol_version", None)
        await answer_calls(revision, lambda tool, arguments: client.call_tool_mcp(tool, arguments))


asyncio.run(main(sys.argv[1]))
