"""The disk: data sessions that are copied until they fill the store, and a disk that somebody else has filled."""

import asyncio
import os
import time

from legs.connections import healthz, write
from legs.leg import MIB, Leg
from wire import Connection, begin, head, message, post

STATE_BYTES = 900_000
# What the store may take in this leg, and what the engine may take beside it while it tidies up.
STORE_BYTES = 256 * MIB
ROOM_BYTES = 192 * MIB
RECOVER_SECONDS = 30


async def forks(target):
    """Copies of a state of nearly 1 MB, as many as it gets."""

    async def one():
        connection = await target.connect()
        session = await begin(connection)
        made = (await target.ask(connection, post(message("session/create", {"hints": {"label": "large"}}), session))).message()
        id = made["result"]["id"]
        body = message("tools/call", {
            "name": "notebook_append", "arguments": {"text": "n" * STATE_BYTES}, "_meta": {"mcp/session": {"id": id}},
        })
        await target.ask(connection, post(body, session))
        request = post(message("session/fork", {"id": id}), session)
        while target.is_time():
            answer = await target.ask(connection, request)
            if answer is None:
                return
            if answer.fault():
                await asyncio.sleep(0.05)

    await asyncio.gather(*(one() for _ in range(4)))


async def others_write(siege):
    return await write(siege.kept)


async def disk_is_bounded(siege):
    complaints = await write(await Connection.open(siege.node.port))
    if siege.peak.disk > STORE_BYTES:
        complaints.append(f"the store took {siege.peak.disk // MIB} MiB; {STORE_BYTES // MIB} MiB are allowed")
    return complaints


async def fill(target):
    """Another process that writes until there is no room at all, and goes away after half of the time."""
    path = os.path.join(target.folder, "foreign")
    with open(path, "wb", buffering=0) as file:
        piece = b"z" * MIB
        while piece:
            try:
                target.sent += file.write(piece)
            except OSError:
                # Down to the last byte.
                piece = piece[: len(piece) // 2]
        target.note("filled")
        await asyncio.sleep((target.until - time.monotonic()) * 0.75)
    os.unlink(path)


async def nothing_fits(siege):
    """While there is no room: a session cannot be ended, and its client is told so."""
    free = os.statvfs(siege.node.store)
    complaints = [f"{free.f_bavail * free.f_frsize} bytes are free"] if free.f_bavail else []
    answer = await siege.kept.ask(head(0, siege.session, "DELETE"))
    siege.figures["DELETE on a full disk"] = answer.fault() or str(answer.status)
    if answer.fault() != "503 store_unavailable":
        complaints.append(f"DELETE on a full disk: {answer.fault() or answer.status}")
    return complaints


async def recovers(siege):
    """When there is room again, the same process ends the session, and takes new ones."""
    began, fault = time.monotonic(), "nothing"
    while time.monotonic() - began < RECOVER_SECONDS:
        connection = await Connection.open(siege.node.port)
        fault = (await connection.ask(head(0, siege.session, "DELETE"))).fault()
        if fault in (None, "404 session_deleted"):
            siege.figures["DELETE with room"] = fault or "204"
            siege.figures["recovered"] = f"{time.monotonic() - siege.attack_ended:.1f} s after the end"
            return [*await write(connection), *await healthz(siege)]
        connection.close()
        await asyncio.sleep(0.25)
    return [f"after {RECOVER_SECONDS} s with room a session still cannot be ended: {fault}"]


async def begin_session(siege):
    siege.session = await begin(siege.kept)


LEGS = [
    Leg(
        "forks",
        f"copies of a data session of 1 MB; the store stays within {STORE_BYTES // MIB} MiB, and others can write",
        forks,
        least=("requests", 200),
        during=others_write,
        after=disk_is_bounded,
        settings=(f"clients.disk={STORE_BYTES // 2}",),
        is_busy=True,
    ),
    Leg(
        "full-disk",
        "another process fills the disk: DELETE fails clearly, and works again by itself (needs root, for a tmpfs)",
        fill,
        before=begin_session,
        during=nothing_fits,
        after=recovers,
        tmpfs=ROOM_BYTES,
    ),
]
