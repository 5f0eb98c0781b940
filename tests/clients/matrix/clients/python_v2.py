"""The Python SDK 2.x, as its README shows it. It finds out by itself which revision the server speaks.

Usage: python python_v2.py [legacy|auto] URL
"""

import asyncio
import sys

from lines import answer_calls
from mcp import Client


async def main(mode, url):
    async with Client(url, mode=mode) as client:
        await answer_calls(client.protocol_version, client.call_tool)


asyncio.run(main(*sys.argv[1:]))
