"""One `tenure serve` in a folder of its own, and what it takes: memory, descriptors, room on the disk, processor time."""

import asyncio
import os
import resource
import signal
import threading
import time
from asyncio.subprocess import DEVNULL, PIPE
from dataclasses import dataclass
from pathlib import Path

# A loaded machine may take this long to start a program, or to end it.
PATIENCE_SECONDS = 60
SAMPLE_SECONDS = 0.1
MIB = 1 << 20


@dataclass
class Sample:
    """What a process takes at one moment, in bytes and numbers."""

    rss: int = 0
    files: int = 0
    disk: int = 0

    def top(self, other):
        return Sample(max(self.rss, other.rss), max(self.files, other.files), max(self.disk, other.disk))


class Node:
    """A server that is started, measured, killed and started again on its store."""

    def __init__(self, tenure, folder, settings=(), behind=(), max_files=None, silent_log=False, environment=None):
        self.tenure, self.folder, self.settings, self.behind = tenure, Path(folder), settings, behind
        self.max_files, self.silent_log, self.environment = max_files, silent_log, environment
        self.store = self.folder / "store"
        self.process = self.port = self.unread = None

    async def __aenter__(self):
        await self.start()
        return self

    async def __aexit__(self, *_):
        await self.stop()

    async def start(self):
        """Starts it and waits until it says where it listens; the seconds that this took."""
        # Its own settings alone count, and it refuses variables that it does not know.
        plain = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
        settings = [word for setting in self.settings for word in ("--set", setting)]
        behind = ("--", *self.behind) if self.behind else ()
        log = (self.folder / "log").open("ab")
        if self.silent_log:
            # A pipe whose other end is open and never read.
            self.unread, log = os.pipe()
        began = time.monotonic()
        self.process = await asyncio.create_subprocess_exec(
            self.tenure, "serve", "--listen", "127.0.0.1:0", "--store", f"disk:{self.store}", "--log", "json",
            *settings, *behind, stdin=DEVNULL, stdout=PIPE, stderr=log, preexec_fn=self.limit,
            env={**plain, **(self.environment or {})}, start_new_session=True,
        )
        os.close(log) if self.silent_log else log.close()
        line = await asyncio.wait_for(self.process.stdout.readline(), PATIENCE_SECONDS)
        if not line:
            raise RuntimeError(f"tenure did not start: {self.last_lines()}")
        self.port = int(line.decode().split("//")[1].split("/")[0].rsplit(":", 1)[1])
        # What else it says is read, so that it never waits for a reader.
        self.rest = asyncio.create_task(self.process.stdout.read())
        return time.monotonic() - began

    def limit(self):
        if self.max_files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (self.max_files, self.max_files))

    async def kill(self):
        self.process.kill()
        await self.process.wait()

    async def stop(self):
        """Asks it to stop; kills it if it does not."""
        if self.process is None:
            return
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(self.process.wait(), 15)
            except asyncio.TimeoutError:
                await self.kill()
        if self.unread is not None:
            os.close(self.unread)
            self.unread = None

    def is_gone(self):
        return self.process.returncode is not None

    def sample(self, with_disk=True):
        return Sample(self.memory("VmRSS"), self.files(), self.disk() if with_disk else 0)

    def memory(self, name):
        """A figure of /proc/PID/status, in bytes."""
        try:
            for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
                if line.startswith(f"{name}:"):
                    return int(line.split()[1]) << 10
        except OSError:
            pass
        return 0

    def files(self):
        try:
            return len(os.listdir(f"/proc/{self.process.pid}/fd"))
        except OSError:
            return 0

    def disk(self):
        """What the store takes on the disk, and not how long its files say they are."""
        found = 0
        for folder, _, names in os.walk(self.store):
            for name in names:
                try:
                    found += os.stat(os.path.join(folder, name)).st_blocks * 512
                except OSError:
                    pass  # It went meanwhile.
        return found

    def processor_seconds(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def last_lines(self, count=10):
        return "\n".join((self.folder / "log").read_text(errors="replace").splitlines()[-count:])


class Sampler:
    """Watches a node from a thread, so that those who measure times need not wait for it."""

    def __init__(self, node):
        self.node, self.peak, self.is_over = node, node.sample(), threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()

    def run(self):
        number = 0
        while not self.is_over.wait(SAMPLE_SECONDS):
            number += 1
            # The folder takes longer to look through, and grows more slowly.
            self.peak = self.peak.top(self.node.sample(with_disk=number % 5 == 0))
