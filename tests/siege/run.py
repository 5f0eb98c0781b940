"""One leg from its first process to its verdict.

The order: settle, measure what an idle server takes, let others call alone, attack while they go on, wait until what was taken is
given back, and then a control. The control comes last because it does what the attack did: as many requests of the same size by the
same process, but ordinary calls. Two cores that serve a busy attacker are slower for everybody; what counts is whether an attack costs
others more than as much honest work. Where a few requests make the server work all the time, the honest work is that of a client that
sends its next call as soon as the last is answered, on eight connections.
"""

import asyncio
import json
import subprocess
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

from node import MIB, Node, Sampler
from others import Others
from wire import Closed, Connection

HERE = Path(__file__).resolve().parent
SETTLE_SECONDS = 1.0
BASELINE_SECONDS = 3.0
CONTROL_SECONDS = 4.0
# Beside what clients may make it hold, a server has buffers, what the store has not written into its tables yet, and what its
# allocator keeps. As much may be left when an attack is over: the store writes its tables when there is more to write.
SLACK_BYTES = 64 * MIB
LEFT_FILES = 32
GIVE_BACK_SECONDS = 60
# A leg that takes this much longer than its attack hangs.
LEG_SECONDS = GIVE_BACK_SECONDS + 60
# Times below this are the scheduler's on a machine with two busy cores. A fault that this is about costs seconds.
FLOOR_MS = 20.0


class Siege:
    """A leg that runs: its node, the others, and what was measured."""

    def __init__(self, leg, tenure, folder, say):
        self.leg, self.tenure, self.folder, self.say = leg, tenure, folder, say
        self.complaints, self.figures = [], {}
        self.node = self.others = self.kept = self.session = None
        self.idle = self.peak = self.attacked = self.attack_ended = None

    async def run(self):
        """All of it; the figures and complaints of the leg."""
        began = time.monotonic()
        self.folder.mkdir(parents=True)
        result = {"leg": self.leg.name, "complaints": self.complaints, "figures": self.figures, "is_only_slow": False}
        try:
            if self.leg.tmpfs:
                self.mount()
            async with Node(
                self.tenure, self.folder, self.settings(), self.leg.behind, self.leg.max_files, self.leg.silent_log
            ) as self.node:
                await asyncio.wait_for(self.measure(result), self.leg.seconds + LEG_SECONDS)
        except (Closed, OSError, RuntimeError, asyncio.TimeoutError) as error:
            self.complaints.append(f"the leg broke off: {error!r}")
        finally:
            if self.leg.tmpfs:
                subprocess.run(["umount", "--lazy", self.folder / "store"], stderr=subprocess.DEVNULL, check=False)
        result["seconds"] = round(time.monotonic() - began, 1)
        return result

    def settings(self):
        # Sessions let go of their memory soon, so that what an attacker's hold is due within the minute.
        own = ("session.dormant_after=10s", *self.leg.settings)
        return (f"clients.memory={self.leg.memory}", "clients.max_share=50%", *own)

    def mount(self):
        store = self.folder / "store"
        store.mkdir(exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={self.leg.tmpfs}", "siege", str(store)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"this leg needs a small file system, so it has to be run as root: {done.stderr.strip()}")

    async def measure(self, result):
        self.say("settles")
        await asyncio.sleep(SETTLE_SECONDS)
        idle = self.idle = self.node.sample()
        # For what has to hold during the attack, also where no new connection can be had.
        self.kept = await Connection.open(self.node.port)
        if self.leg.before:
            await self.leg.before(self)
        async with Others(self.node.port, self.leg.fresh_others) as self.others:
            self.say("others alone")
            await self.others.during("alone", BASELINE_SECONDS)
            files = self.node.files()
            self.say("attack")
            with Sampler(self.node) as sampler:
                self.others.phase = "attack"
                self.attacked = await self.attack(self.leg.seconds, self.leg.during)
                self.others.phase, self.attack_ended = "after", time.monotonic()
            peak = self.peak = sampler.peak
            self.say("waits until all is given back")
            waited = await self.given_back(idle.rss + SLACK_BYTES, files + LEFT_FILES)
            after = self.node.sample()
            self.say("control")
            self.others.phase = "control"
            work = [self.share_of(self.attacked[name]) for name in ("requests", "sent")]
            control = await self.attack(CONTROL_SECONDS, None, *([-1, 0] if self.leg.is_busy else work))
            if control["trouble"]:
                self.complaints.append(f"the control broke off: {control['trouble']}")
            self.others.phase = "end"
        if self.leg.after:
            self.say("looks at what is left")
            self.complaints.extend(await self.leg.after(self))
        result.update(
            budget=self.leg.memory,
            share="50%",
            rss=[idle.rss, peak.rss, after.rss],
            files=[idle.files, peak.files, after.files],
            disk=[idle.disk, peak.disk, after.disk],
            given_back_seconds=waited,
            p50_ms=[self.others.percentile(phase, 0.5) for phase in ("alone", "attack", "control")],
            p99_ms=[self.others.percentile(phase, 0.99) for phase in ("alone", "attack", "control")],
            calls=[len(self.others.times[phase]) for phase in ("alone", "attack", "control")],
            refused_others=dict(self.others.refused()),
            attacker=self.attacked,
        )
        self.judge(result)

    def share_of(self, number):
        """As much of it as falls into the time of the control."""
        return int(number * CONTROL_SECONDS / self.leg.seconds)

    async def attack(self, seconds, during, *control):
        """Runs the attacker for so long, and what has to hold meanwhile from the middle on."""
        arguments = [self.leg.name, self.node.port, self.node.store, seconds, *control]
        process = await asyncio.create_subprocess_exec(
            sys.executable, HERE / "attacker.py", *map(str, arguments), stdin=DEVNULL, stdout=PIPE, cwd=HERE
        )
        try:
            watching = asyncio.create_task(self.watch(during, seconds / 2))
            told, _ = await asyncio.wait_for(process.communicate(), seconds + GIVE_BACK_SECONDS)
            self.complaints.extend(await watching)
        finally:
            if process.returncode is None:
                process.kill()
        if not told:
            raise RuntimeError("the attacker said nothing")
        told = json.loads(told)
        if told["trouble"] and not control:
            self.complaints.append(f"the attack broke off: {told['trouble']}")
        return told

    async def watch(self, during, delay):
        if during is None:
            return []
        await asyncio.sleep(delay)
        return await during(self)

    async def given_back(self, rss, files):
        """Waits until no more than this is taken; the seconds, or nothing if it took too long."""
        began = time.monotonic()
        while time.monotonic() - began < GIVE_BACK_SECONDS:
            if self.node.is_gone():
                return None
            if self.node.memory("VmRSS") <= rss and self.node.files() <= files:
                return round(time.monotonic() - began, 1)
            await asyncio.sleep(0.25)
        return None

    def judge(self, result):
        (idle, peak, after), complain = result["rss"], self.complaints.append
        if self.node.is_gone():
            complain(f"tenure has ended with {self.node.process.returncode}: {self.node.last_lines(3)}")
        name, least = self.leg.least
        if result["attacker"][name] < least:
            complain(f"the attack did not come about: {name} is {result['attacker'][name]}, and has to be {least}")
        if peak > idle + self.leg.memory + SLACK_BYTES:
            complain(f"memory grew by {(peak - idle) // MIB} MiB; {(self.leg.memory + SLACK_BYTES) // MIB} MiB are allowed")
        if result["given_back_seconds"] is None:
            complain(
                f"after {GIVE_BACK_SECONDS} s it still has {(after - idle) // MIB} MiB and "
                f"{result['files'][2] - result['files'][0]} descriptors more than when it was idle"
            )
        for reason, number in result["refused_others"].items():
            complain(f"{number} calls of others: {reason}")
        _, attacked, control = result["p99_ms"]
        if attacked > max(FLOOR_MS, 2 * control):
            result["is_only_slow"] = not self.complaints
            complain(f"others waited {attacked:.0f} ms (p99) under the attack, {control:.0f} ms under the control")
