"""Requests that are not sent to their end, and answers that are not taken."""

import asyncio

from legs.leg import MIB, Leg
from wire import REVISION, Closed, begin, call, head

BODY_BYTES = 4 * MIB - 1024
PIECE = b"x" * (64 << 10)


async def half_sent_1(target):
    """200 connections at a time, each with a body that lacks its last bytes."""
    session = await begin(await target.connect())
    start = head(BODY_BYTES, session) + call("public_echo", {"text": ""})[:-4]

    async def one():
        while target.is_time():
            sent, outcome = 0, "closed"
            target.requests += 1
            try:
                connection = await target.connect()
                connection.writer.write(start)
                answer = asyncio.create_task(connection.answer())
                while sent < BODY_BYTES - len(start) - 100 and not answer.done():
                    piece = PIECE[: BODY_BYTES - len(start) - 100 - sent]
                    connection.writer.write(piece)
                    sent += len(piece)
                    target.sent += len(piece)
                    drained = asyncio.create_task(connection.writer.drain())
                    await asyncio.wait([answer, drained], return_when=asyncio.FIRST_COMPLETED)
                    drained.cancel()
                outcome = (await answer).fault()
                connection.close()
            except (Closed, OSError):
                pass
            target.ended(outcome)
            await asyncio.sleep(0.2)

    await asyncio.gather(*(one() for _ in range(200)))


async def half_sent_2(target):
    """128 streams of one connection, each with a body that lacks its end."""
    from http2 import Http2  # Here, so that legs can be listed where h2 is not installed.

    session = await begin(await target.connect())
    headers = [("mcp-session-id", session), ("mcp-protocol-version", REVISION), ("content-length", str(BODY_BYTES))]
    while target.is_time():
        http2 = await Http2.connect(target.port, target.source, lambda _, outcome: target.ended(outcome))
        await http2.wait(2)
        sent = {}
        while target.is_time() and not http2.is_over.is_set():
            for _ in range(min(128, http2.room())):
                sent[http2.request(headers, b"", end=False)] = 0
                target.requests += 1
            moved = 0
            for stream in [stream for stream in sent if stream in http2.open]:
                size = http2.piece(stream, PIECE[: BODY_BYTES - 100 - sent[stream]])
                sent[stream] += size
                moved += size
            target.sent += moved
            if not moved:
                await http2.wait(0.2)
            await asyncio.sleep(0)


async def untaken(target):
    """Answers of 1 MiB on streams with no room for them, as many as the server lets a connection have."""
    from http2 import Http2  # Here, so that legs can be listed where h2 is not installed.

    session = await begin(await target.connect())
    headers = [("mcp-session-id", session), ("mcp-protocol-version", REVISION)]
    text = "y" * MIB

    async def one(number):
        id = number * 1_000_000
        while target.is_time():
            http2 = await Http2.connect(target.port, target.source, lambda _, outcome: target.ended(outcome), window=0)
            await http2.wait(2)
            while target.is_time() and not http2.is_over.is_set():
                if http2.room() <= 0:
                    await http2.wait(0.5)
                    continue
                id += 1
                body = call("public_echo", {"text": text}, id)
                stream, sent = http2.request(headers, b"", end=False), 0
                target.requests += 1
                while sent < len(body) and stream in http2.open and target.is_time():
                    size = http2.piece(stream, body[sent : sent + len(PIECE)])
                    sent += size
                    target.sent += size
                    if not size:
                        await http2.wait(0.2)
                    await asyncio.sleep(0)
                if stream in http2.open:
                    http2.state.end_stream(stream)
                    http2.flush()

    await asyncio.gather(*(one(number) for number in range(8)))


LEGS = [
    Leg("half-sent", "200 bodies of 4 MiB that lack their last bytes, over HTTP/1.1", half_sent_1, least=("sent", 64 * MIB), seconds=10),
    Leg("half-sent-http2", "128 bodies of 4 MiB that lack their last bytes, on one connection of HTTP/2", half_sent_2, least=("sent", 32 * MIB), seconds=10),
    Leg("untaken-answers", "answers of 1 MiB over HTTP/2 with windows of 0", untaken, least=("sent", 32 * MIB), seconds=10),
]
