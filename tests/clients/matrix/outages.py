"""Measures how clients come back after a break: how often they try, how far apart, and for how long a server may be away.

Usage: python outages.py DIR [CLIENT...]

DIR is the folder that `tests/clients/install` and `tests/clients/matrix/install` filled. The server is scripted: it opens
the stream of a call with an event that has an id, and with `retry: N`; it breaks the stream, and then refuses connections,
closes them, or answers the resume with an error. It prints every try of the client. `docs/clients.md` has the results.
"""

import asyncio
import json
import socket
import struct
import sys
import tempfile
import time
from dataclasses import dataclass

from roster import Client, roster

# Longer than any client here tries, shorter than the minute after which some give up by themselves.
GIVE_UP_SECONDS = 24
INFO = {"name": "outages", "version": "1.0.0"}
# What results of 2026-07-28 have to say, and those of sessions may.
COMPLETE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


@dataclass(frozen=True)
class Break:
    """What the server does when it breaks the streams, and afterwards."""

    era: str = "legacy"  # or "modern": 2026-07-28, whose clients are not promised that they can resume
    retry: int | None = 1000  # milliseconds, said when a stream opens
    end: str = "cut"  # or "close": the last chunk is sent
    closing_retry: int | None = None  # milliseconds, said before a close
    # Or "drop": accept and close at once; "empty": a stream with nothing in it; "hold": accept, and answer when it is over;
    # or the status of the answer.
    then: str = "refuse"
    seconds: float = GIVE_UP_SECONDS  # how long that goes on

    def __str__(self):
        words = [self.era, self.end, f"retry {self.retry}"]
        if self.closing_retry:
            words.append(f"closing with retry {self.closing_retry}")
        words.append(self.then if self.seconds >= GIVE_UP_SECONDS else f"{self.then} for {self.seconds} s")
        return ", ".join(words)


class Server:
    """An MCP server of sessions with one tool, whose answer is on the stream that is resumed."""

    def __init__(self, plan):
        self.plan = plan
        self.streams = {}
        self.broken_at = None
        self.tries = []  # (seconds since the break, what came)
        self.calls = 0
        self.called = asyncio.Event()
        self.listening = None

    async def __aenter__(self):
        self.listening = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.port = self.listening.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        return self

    async def __aexit__(self, *_):
        self.listening.close()
        for writer in self.streams:
            writer.transport.abort()

    @property
    def is_away(self):
        return self.broken_at is not None and time.monotonic() - self.broken_at < self.plan.seconds

    async def break_streams(self):
        self.broken_at = time.monotonic()
        if self.plan.then == "refuse":
            self.listening.close()
        for writer in list(self.streams):
            if self.plan.end == "cut":
                reset(writer)
                continue
            if self.plan.closing_retry:
                chunk(writer, f"retry: {self.plan.closing_retry}\n\n")
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            writer.close()
        if self.plan.then == "refuse" and self.plan.seconds < GIVE_UP_SECONDS:
            await asyncio.sleep(self.plan.seconds)
            self.listening = await asyncio.start_server(self.serve, "127.0.0.1", self.port)

    async def serve(self, reader, writer):
        if self.is_away and self.plan.then == "drop":
            # The head is read, so that the try can be told from those for the other stream.
            head, _ = await self.read(reader)
            self.note(head)
            reset(writer)
            return
        try:
            while True:
                head, body = await self.read(reader)
                if head is None or not await self.answer(head, body, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            if writer not in self.streams:
                writer.close()

    async def read(self, reader):
        try:
            lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return None, None
        method, path, _ = lines[0].split(" ")
        head = {"method": method, "path": path}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            head[name.lower()] = value.strip()
        body = await reader.readexactly(int(head.get("content-length", 0)))
        return head, json.loads(body) if body else None

    def note(self, head):
        if self.broken_at is None or head is None:
            return
        what = head["method"]
        if what == "GET":
            what = "POST stream" if head.get("last-event-id", "").startswith("call") else "GET stream"
        self.tries.append((round(time.monotonic() - self.broken_at, 1), what))

    async def answer(self, head, body, writer):
        """Answers one request; true if the connection goes on."""
        if head["path"] != "/mcp":
            # Some clients ask first how they are to log in.
            send(writer, 404, None)
            return True
        self.note(head)
        if self.is_away and self.plan.then == "hold":
            await asyncio.sleep(self.plan.seconds - (time.monotonic() - self.broken_at))
        if self.is_away and self.plan.then == "empty" and head["method"] == "GET":
            self.open(writer)
            chunk(writer, f"retry: {self.plan.retry}\n\n")
            writer.write(b"0\r\n\r\n")
            return True
        if self.is_away and self.plan.then.isdigit() and head["method"] == "GET":
            send(writer, int(self.plan.then), {"jsonrpc": "2.0", "id": None, "error": {"code": -31011, "message": "away"}})
            return True
        if head["method"] == "GET":
            resumes = head.get("last-event-id", "").startswith("call")
            self.open(writer)
            if resumes:
                number = head["last-event-id"].split("-")[1]
                event(writer, self.result(json.loads(number)), f"call-{number}-1")
                writer.write(b"0\r\n\r\n")
                return True
            event(writer, "", "get-0", self.plan.retry)
            self.streams[writer] = "GET"
            return False
        if head["method"] != "POST":
            send(writer, 200, None)
            return True
        method, id = body.get("method"), body.get("id")
        if method == "initialize":
            version = min(body["params"]["protocolVersion"], "2025-11-25")
            result = {
                "protocolVersion": version,
                "capabilities": {"tools": {}},
                "serverInfo": INFO,
            }
            send(writer, 200, {"jsonrpc": "2.0", "id": id, "result": result}, {"mcp-session-id": "s-1"})
        elif id is None:
            send(writer, 202, None)
        elif method == "tools/list":
            tool = {"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
            send(writer, 200, {"jsonrpc": "2.0", "id": id, "result": {"tools": [tool], **COMPLETE}})
        elif method == "server/discover" and self.plan.era == "modern":
            result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "serverInfo": INFO, **COMPLETE}
            send(writer, 200, {"jsonrpc": "2.0", "id": id, "result": result})
        elif method == "tools/call" and self.broken_at is None:
            self.calls += 1
            self.open(writer)
            event(writer, "", f"call-{json.dumps(id)}-0", self.plan.retry)
            self.streams[writer] = "POST"
            self.called.set()
            return False
        elif method == "tools/call":
            send(writer, 200, self.result(id))
        else:
            error = {"code": -32601, "message": "Method not found"}
            send(writer, 400 if method == "server/discover" else 200, {"jsonrpc": "2.0", "id": id, "error": error})
        return True

    def open(self, writer):
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")

    def result(self, id):
        content = [{"type": "text", "text": "seen"}]
        return {"jsonrpc": "2.0", "id": id, "result": {"content": content, "resultType": "complete"}}


def send(writer, status, body, headers=None):
    data = b"" if body is None else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(data)}"]
    if body is not None:
        lines.append("content-type: application/json")
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode() + data)


def chunk(writer, text):
    data = text.encode()
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def event(writer, message, id, retry=None):
    retry = "" if retry is None else f"retry: {retry}\n"
    chunk(writer, f"id: {id}\n{retry}data: {json.dumps(message) if message else ''}\n\n")


def reset(writer):
    """Ends a connection as the end of a killed process does."""
    connection = writer.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def measure(kind, plan):
    """What a client did: its tries, and how its call ended."""
    with tempfile.TemporaryDirectory() as folder:
        async with Server(plan) as server:
            client = await Client.start(kind, server.url, folder)
            call = asyncio.create_task(client.call("look"))
            try:
                await asyncio.wait_for(server.called.wait(), 60)
                await asyncio.sleep(1)  # The event that opens the stream has to arrive.
                broken = asyncio.create_task(server.break_streams())
                try:
                    answer = await asyncio.wait_for(asyncio.shield(call), GIVE_UP_SECONDS)
                    after = time.monotonic() - server.broken_at
                    outcome = answer.get("text") or f"{answer.get('error')} ({answer.get('code')})"
                    outcome = f"{outcome} after {after:.1f} s"
                except asyncio.TimeoutError:
                    outcome = f"no answer in {GIVE_UP_SECONDS} s"
                # The other stream may still be tried for.
                if plan.seconds >= GIVE_UP_SECONDS:
                    left = GIVE_UP_SECONDS / 2 - (time.monotonic() - server.broken_at)
                    await asyncio.sleep(max(0, left))
                broken.cancel()
            finally:
                call.cancel()
                await client.stop()
            return server.tries, outcome


PLANS = [
    *(Break(retry=retry, then="drop") for retry in (None, 1000, 3000, 5000)),
    Break(end="close", then="drop"),
    Break(end="close", closing_retry=4000, then="drop"),
    Break(then="503"),
    Break(then="404"),
    Break(then="409"),
    Break(then="empty", seconds=8),
    Break(then="hold", seconds=20),
    *(Break(retry=1000, seconds=seconds) for seconds in (0.3, 1.5, 2.5)),
    *(Break(retry=3000, seconds=seconds) for seconds in (1.5, 4.5, 7.5)),
    *(Break(retry=5000, seconds=seconds) for seconds in (2, 9, 12)),
]
# The others build on an SDK, and are only asked whether they do as it does.
SDKS = {"ts1", "ts2-legacy", "py1", "py2-legacy"}
SHORT = [
    *(Break(retry=retry, then="drop") for retry in (None, 3000)),
    Break(end="close", closing_retry=4000, then="drop"),
    Break(then="503"),
    Break(retry=3000, seconds=4.5),
]
# Clients that speak 2026-07-28 to a server that does.
MODERN = {"ts2-auto", "py2-auto", "fastmcp", "fast-agent"}
MODERN_PLANS = [
    Break(era="modern", retry=1000, then="drop"),
    Break(era="modern", retry=3000, then="drop"),
    Break(era="modern", retry=3000, seconds=4.5),
    Break(era="modern", end="close", closing_retry=4000, then="drop"),
]


async def main(folder, names):
    kinds = roster(folder)
    # Most of a measurement is waiting; starting a client is not.
    places = asyncio.Semaphore(6)

    async def one(kind, plan):
        async with places:
            try:
                tries, outcome = await measure(kind, plan)
            except Exception as error:
                tries, outcome = [], f"not measured: {error!r}"
        by_stream = {}
        for at, what in tries:
            by_stream.setdefault(what, []).append(at)
        tried = "; ".join(f"{what} {', '.join(map(str, times))}" for what, times in sorted(by_stream.items()))
        print(f"{kind.name} | {plan} | {tried or '-'} | {outcome}", flush=True)

    wanted = [(kinds[name], plan) for name in names or kinds for plan in (PLANS if name in SDKS else SHORT)]
    wanted += [(kinds[name], plan) for name in names or kinds if name in MODERN for plan in MODERN_PLANS]
    await asyncio.gather(*(one(kind, plan) for kind, plan in wanted))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
