"""A real client, built with the Python SDK, that calls more often than it may: it is told when to come back, and goes on.

Usage: DIR/venv/bin/python tests/clients/limits.py URL      (SDK v1)
       DIR/venv-v2/bin/python tests/clients/limits.py URL   (SDK v2)
where URL is the endpoint of the demo server with `limits.tools=public_echo = 1/s` and `limits.max_wait=0s`. `limits.mjs` has the same
steps: keep the two alike.
"""

import asyncio
import importlib.metadata
import sys

import anyio
from python import open_client, plain, reason_of

DEADLINE_SECONDS = 20
FLAVOUR = importlib.metadata.version("mcp")


async def echo(client):
    return await client.call("public_echo", {"text": "hello"})


async def refused(client):
    """Calls until it is refused."""
    for _ in range(5):
        try:
            await echo(client)
        except Exception as error:  # The two versions have different errors.
            return getattr(error, "error", error)
    raise AssertionError("no call was refused")


async def goes_on(url):
    async with open_client(url) as client:
        for _ in range(3):
            error = await refused(client)
            assert error.code == -31029, error
            assert error.data["reason"] == "rate_limited", error
            assert error.data["per"] == "tool", error
            assert 0 < error.data["retryAfterMs"] <= 1000, error
            # Other calls go on meanwhile, and so does this one when the time has come.
            assert plain(await client.session.list_tools())["tools"]
            await anyio.sleep(error.data["retryAfterMs"] / 1000 + 0.02)
            assert await echo(client) == "hello"


async def main(url):
    try:
        with anyio.fail_after(DEADLINE_SECONDS):
            await goes_on(url)
    except Exception as error:
        print(f"not ok {FLAVOUR} {reason_of(error)}")
        return 1
    print(f"ok {FLAVOUR} goes on after a refusal")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: limits.py URL")
    sys.exit(asyncio.run(main(sys.argv[1])))
