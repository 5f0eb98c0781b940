"""Three nodes of a cluster behind HAProxy, with the matrix's server behind them: sessions are kept on NATS.

HAProxy has the file of docs/balancers, so there is no stickiness: each request goes to the next node that is ready.
"""

import asyncio
import os
import urllib.error
import urllib.request
from asyncio.subprocess import DEVNULL

from gateway import PATIENCE_SECONDS, Gateway, free_port
from roster import HERE

NODES = 3
ROOT = HERE.parents[2]
# HAProxy asks each node every second, and sends nothing to one that did not answer twice.
SETTLE_SECONDS = 3


class Cluster(Gateway):
    """Nodes that can be replaced one after the other, with the interface of one gateway."""

    def __init__(self, tenure, node, folder, version, nats, balancers):
        super().__init__(tenure, node, folder, version, is_remote=True)
        self.nats, self.balancers = nats.resolve(), balancers.resolve()
        self.engine_port = free_port()
        self.ports = [free_port() for _ in range(NODES)]
        self.nodes = [None] * NODES
        self.started = 0
        self.helpers = []

    async def start(self):
        self.helpers.append(
            await self.spawn_quiet(
                "engine", self.nats, "--jetstream", "--store_dir", self.folder / "engine",
                "--addr", "127.0.0.1", "--port", self.engine_port,
            )
        )
        await self.opens(self.engine_port)
        for number in range(NODES):
            await self.start_node(number)
        text = (ROOT / "docs/balancers/haproxy.cfg").read_text()
        for number, port in enumerate(self.ports, 1):
            text = text.replace(f"10.0.0.{number}:8484", f"127.0.0.1:{port}")
        (self.folder / "haproxy.cfg").write_text(text.replace("bind :8080", f"bind 127.0.0.1:{self.port}"))
        libraries = {**os.environ, "LD_LIBRARY_PATH": str(self.balancers / "root/usr/lib/x86_64-linux-gnu")}
        haproxy = self.balancers / "root/usr/sbin/haproxy"
        self.helpers.append(
            await self.spawn_quiet("haproxy", haproxy, "-f", self.folder / "haproxy.cfg", "-db", env=libraries)
        )
        await self.opens(self.port)
        await asyncio.sleep(SETTLE_SECONDS)

    async def start_node(self, number):
        """Starts a node on the port of its place, and waits until it is ready."""
        self.started += 1
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.folder / f"run-{self.started}")}
        self.nodes[number] = await self.spawn(
            "gateway", self.tenure, "serve", "--listen", f"127.0.0.1:{self.ports[number]}",
            "--store", f"nats://127.0.0.1:{self.engine_port}", "--set", "cluster.listen=127.0.0.1:0",
            "--upstream", f"http://127.0.0.1:{self.server_port}/mcp", env=environment,
        )
        await until(f"node {number} is ready", lambda: is_ready(self.ports[number]))

    async def roll(self):
        """Replaces all nodes, one after the other: each is asked to end, and the next one starts when it has."""
        for number, node in enumerate(self.nodes):
            node.terminate()
            await asyncio.wait_for(node.wait(), PATIENCE_SECONDS)
            await self.start_node(number)
            # The balancer has to see it before the next one goes.
            await asyncio.sleep(SETTLE_SECONDS)

    async def spawn_quiet(self, name, *command, env=None):
        with (self.folder / f"{name}.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *(str(word) for word in command), stdin=DEVNULL, stdout=log, stderr=log, env=env
            )

    async def opens(self, port):
        async def is_open():
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                return False
            writer.close()
            return True

        await until(f"port {port} is open", is_open)

    async def __aexit__(self, *_):
        for process in [*self.nodes, *reversed(self.helpers)]:
            if process is not None and process.returncode is None:
                process.kill()
                await process.wait()
        await super().__aexit__()


async def until(what, holds):
    async def wait():
        while not await holds():
            await asyncio.sleep(0.1)

    try:
        await asyncio.wait_for(wait(), PATIENCE_SECONDS)
    except asyncio.TimeoutError:
        raise RuntimeError(f"{what}: not within {PATIENCE_SECONDS} s") from None


async def is_ready(port):
    def ask():
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    return await asyncio.to_thread(ask)
