"""The Python SDK 1.x, as its README shows it.

Usage: python python_v1.py URL
"""

import asyncio
import sys

from lines import answer_calls
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client


async def main(url):
    async with streamable_http_client(url) as (read, write, *_):
        async with ClientSession(read, write) as session:
            begun = await session.initialize()
            await answer_calls(begun.protocolVersion, session.call_tool)


asyncio.run(main(sys.argv[1]))
