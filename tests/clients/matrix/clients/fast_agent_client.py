"""fast-agent without its model: the part that talks to servers, which takes the calls that a model would make.

Usage: python fast_agent_client.py URL
"""

import asyncio
import sys

from fast_agent.config import MCPServerSettings, MCPSettings, Settings
from fast_agent.context import Context
from fast_agent.mcp.mcp_aggregator import MCPAggregator
from fast_agent.mcp_server_registry import ServerRegistry
from lines import answer_calls


async def main(url):
    settings = Settings(mcp=MCPSettings(servers={"behind": MCPServerSettings(transport="http", url=url)}))
    context = Context(config=settings, server_registry=ServerRegistry(settings))
    async with MCPAggregator(["behind"], connection_persistence=True, context=context, name="matrix") as client:
        await answer_calls(None, client.call_tool)


asyncio.run(main(sys.argv[1]))
