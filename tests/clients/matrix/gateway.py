"""One Tenure with the matrix's server behind it, as a person would run them: a port, a folder, and ways to end processes."""

import asyncio
import json
import os
import signal
import socket
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

from roster import HERE

# A loaded machine may take this long to start a program, or to end it.
PATIENCE_SECONDS = 120


class Gateway:
    """A gateway that can be killed, stopped, taken over from and started again on its port and its store."""

    def __init__(self, tenure, node, folder, version, is_remote, settings=()):
        self.tenure, self.node, self.folder = Path(tenure).resolve(), node, Path(folder)
        self.version, self.is_remote, self.settings = version, is_remote, settings
        self.record = self.folder / "record"
        self.record.touch()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self.server_port = free_port()
        self.process = self.server = None
        self.olds = []

    async def __aenter__(self):
        if self.is_remote:
            await self.start_server()
        try:
            await self.start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_):
        for process in [*self.olds, self.process, self.server]:
            if process is not None and process.returncode is None:
                process.kill()
                await process.wait()

    async def start(self, *flags):
        """Starts the gateway, and waits until it says that it listens."""
        behind = ("--upstream", f"http://127.0.0.1:{self.server_port}/mcp")
        if not self.is_remote:
            behind = ("--", *self.server_command("stdio"))
        settings = [word for setting in self.settings for word in ("--set", setting)]
        self.process = await self.spawn(
            "gateway", self.tenure, "serve", "--listen", f"127.0.0.1:{self.port}",
            "--store", f"disk:{self.folder}/store", *settings, *flags, *behind,
        )

    async def start_server(self):
        self.server = await self.spawn("server", *self.server_command("http"), str(self.server_port))

    def server_command(self, transport):
        return (self.node, str(HERE / "server.mjs"), self.version, transport, str(self.record))

    async def spawn(self, name, *command, env=None):
        """Starts a program that says as its first line that it is ready."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=PIPE, stderr=log, env=env)
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_SECONDS)
        if not line:
            raise RuntimeError(f"`{name}` did not start: {tail(self.folder / f'{name}.log')}")
        # What else it says is read, so that it never waits for a reader.
        process.rest = asyncio.create_task(process.stdout.read())
        return process

    async def kill(self):
        self.process.kill()
        await self.process.wait()

    async def terminate(self):
        """Asks it to stop, and waits until it has."""
        self.process.terminate()
        await asyncio.wait_for(self.process.wait(), PATIENCE_SECONDS)

    async def take_over(self):
        """Starts another one that takes over, and waits until the first has ended."""
        old = self.process
        self.olds.append(old)
        await self.start("--take-over")
        await asyncio.wait_for(old.wait(), PATIENCE_SECONDS)

    async def knows_take_over(self):
        command = await asyncio.create_subprocess_exec(self.tenure, "serve", "--help", stdout=PIPE)
        text, _ = await command.communicate()
        return b"--take-over" in text

    def kill_servers_of(self, keys):
        """Kills the servers that run the calls with these keys."""
        for pid in {pid for verb, _, key, pid in self.runs() if verb == "begin" and key in keys}:
            kill(pid)

    def kill_all_servers(self):
        """Kills every server behind, also spares that serve no session."""
        for pid in running_with(str(self.record)):
            kill(pid)

    async def restart_server(self, away_seconds):
        """Kills the server elsewhere, and starts it again."""
        self.server.kill()
        await self.server.wait()
        await asyncio.sleep(away_seconds)
        await self.start_server()

    def release(self):
        """Lets the seconds of calls that are held begin."""
        self.record.with_name("record.go").touch()

    def runs(self):
        """Every line of the record: begin or end, the tool, the key, the process."""
        lines = [line.split(" ") for line in self.record.read_text().splitlines()]
        return [(verb, tool, key, int(pid)) for verb, tool, key, pid in lines]

    def count(self, key, verb="begin"):
        return sum(1 for found, _, name, _ in self.runs() if (found, name) == (verb, key))

    async def begun(self, keys):
        """Waits until the calls with these keys run."""
        async def wait():
            while not all(self.count(key) for key in keys):
                await asyncio.sleep(0.05)

        await asyncio.wait_for(wait(), PATIENCE_SECONDS)

    async def sessions(self):
        """The names of the sessions that are there."""
        command = await asyncio.create_subprocess_exec(
            self.tenure, "sessions", "list", "--json", "--store", f"disk:{self.folder}/store", stdout=PIPE, stderr=PIPE
        )
        out, complaint = await command.communicate()
        if command.returncode != 0:
            raise RuntimeError(f"the sessions are not known: {complaint.decode()}")
        found = [json.loads(line) for line in out.decode().splitlines()]
        return {session["label"] for session in found if session["state"] != "ended"}


def running_with(argument):
    """The processes that were started with this argument themselves; the gateway has it among those of its server."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = entry.joinpath("cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if entry.name.isdigit() and argument in words and words[1:2] == [str(HERE / "server.mjs")]:
            found.append(int(entry.name))
    return found


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def tail(path):
    return "\n".join(path.read_text().splitlines()[-10:])
