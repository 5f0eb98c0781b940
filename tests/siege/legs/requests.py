"""Many requests that cost the server more than the client: listens that stay, handshakes that are never completed or refused."""

import asyncio

from legs.leg import Leg
from wire import initialize, modern, post

CONNECTIONS, STREAMS = 40, 256
HANDSHAKES, PADDING_BYTES = 20_000, 60_000


async def listens(target):
    """40 connections with as many listens as they can have, up to 256."""
    from http2 import Http2  # Here, so that legs can be listed where h2 is not installed.

    headers, body = modern("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["demo://visitors"]}})

    async def one():
        http2 = await Http2.connect(target.port, target.source, lambda _, outcome: target.ended(outcome))
        await http2.wait(2)
        for _ in range(STREAMS):
            while http2.room() <= 0 and not http2.is_over.is_set():
                await http2.wait(1)
            if http2.is_over.is_set():
                return
            http2.request(headers, body)
            target.requests += 1
            target.sent += len(body)
            await asyncio.sleep(0)
        while not http2.is_over.is_set():
            await http2.wait(1)

    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))


async def handshakes(target):
    """`initialize` with 60 KB of params, and never a word after it."""
    request = post(initialize(PADDING_BYTES))
    left = HANDSHAKES

    async def one():
        nonlocal left
        connection = await target.connect()
        while left > 0 and target.is_time():
            left -= 1
            if await target.ask(connection, request) is None:
                connection = await target.connect()

    await asyncio.gather(*(one() for _ in range(16)))


# The attacker's address counts as a proxy, so that the server takes it for a client elsewhere: on loopback addresses have no limits.
CLIENT_BEHIND = "203.0.113.9"
# `limits.initialize` is 30 a minute, and a few come with the time that the attack takes.
MOST_BEGUN = 45


async def floods(target):
    """`initialize` from one address, as fast as it is refused."""
    request = post(initialize(), extra=[("x-forwarded-for", CLIENT_BEHIND)])

    async def one():
        connection = await target.connect()
        while target.is_time():
            if await target.ask(connection, request) is None:
                connection = await target.connect()

    await asyncio.gather(*(one() for _ in range(16)))


async def are_refused(siege):
    """All but the first are refused, and not in another way than by the limit."""
    outcomes = dict(siege.attacked["outcomes"])
    begun, limited = outcomes.pop("served", 0), outcomes.pop("429 rate_limited", 0)
    complaints = [f"{number} handshakes of the flood ended otherwise: {outcome}" for outcome, number in outcomes.items()]
    if not 1 <= begun <= MOST_BEGUN or limited == 0:
        complaints.append(f"{begun} handshakes of one address were served, and {limited} refused")
    return complaints


LEGS = [
    Leg(
        "floods",
        "`initialize` from one address as fast as it is refused (RL5); another address's clients notice nothing",
        floods,
        after=are_refused,
        least=("requests", 1000),
        settings=("http.trusted_proxies=127.0.0.2",),
    ),
    Leg("listens", "40 connections with 256 listens each; others' modern requests are served", listens, least=("requests", 5001), seconds=12),
    Leg(
        "handshakes",
        "20000 times `initialize` with 60 KB of params, and nothing after it",
        handshakes,
        least=("requests", 2000),
        # What a session holds is kept until it expires.
        settings=("session.idle_ttl=20s",),
        seconds=12,
    ),
]
