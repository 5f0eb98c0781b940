"""Runs real clients, built with the Python SDK, that log in at a real authorization server, against the demo behind it.

Usage: DIR/venv/bin/python tests/clients/auth/python.py URL GRACE_SECONDS NODE      (SDK v1)
       DIR/venv-v2/bin/python tests/clients/auth/python.py URL GRACE_SECONDS NODE   (SDK v2)
where DIR is the folder that `tests/clients/install` filled, and NODE runs `user.mjs`. `run` starts both servers.
`typescript.mjs` has the same checks: keep the two alike.

The SDK finds out by itself where to log in, registers, asks for tokens and renews them. The client only hands the user to the
page that the SDK names, and hands back what the user returns with. Every check opens sessions of its own.
"""

import asyncio
import importlib.metadata
import logging
import pathlib
import sys
import time
import warnings
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

import anyio
from mcp import ClientSession
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata

IS_V1 = importlib.metadata.version("mcp").startswith("1.")
if IS_V1:
    import httpx
else:
    import httpx2 as httpx
    from mcp.shared.auth import AuthorizationCodeResult

USER = str(pathlib.Path(__file__).resolve().parent / "user.mjs")
CHECK_DEADLINE_SECONDS = 60
# What a busy machine may be late by.
LATE_SECONDS = 5
VISITORS = "demo://visitors"
# Nothing listens there: the user hands the URL to the client.
CALLBACK = "http://127.0.0.1:9/callback"

# SDK v2 points every caller of the 2025-11-25 methods to the next revision.
warnings.filterwarnings("ignore", message=".* as of 2026-07-28")
# The SDK logs what it raises too.
logging.disable(logging.CRITICAL)


async def a_challenge_leads_to_a_login(place):
    async with place.open("alice") as alice:
        await alice.echo("hello")
        origin = "{0.scheme}://{0.netloc}".format(urlsplit(place.url))
        login = urlsplit(alice.logins[0])
        issuer = f"{login.scheme}://{login.netloc}"
        way = [f"{sent.method} {sent.url} {sent.status}" for sent in alice.sent]
        expected = [
            f"POST {place.url} 401",
            f"GET {origin}/.well-known/oauth-protected-resource/mcp 200",
            f"GET {issuer}/.well-known/oauth-authorization-server 200",
            f"POST {issuer}/reg 201",
            f"POST {issuer}/token 200",
            f"POST {place.url} 200",
        ]
        assert way[: len(expected)] == expected, f"the way was {way}"
        asked, exchange = parse_qs(login.query), parse_qs(alice.sent[4].body)
        assert asked["resource"] == [place.url], f"resource of the login: {asked}"
        assert asked["code_challenge_method"] == ["S256"], f"method of PKCE: {asked}"
        assert "mcp:use" in asked["scope"][0].split(), f"scope of the login: {asked}"
        assert exchange["resource"] == [place.url], f"resource of the token: {exchange}"
        assert "code_verifier" in exchange, "no code verifier"


async def the_list_has_what_the_token_allows(place):
    async with place.open("alice") as alice:
        names = await alice.tool_names()
        assert "public_echo" in names, f"public_echo is not in {names}"
        for name in ("notebook_append", "notebook_read"):
            assert name not in names, f"{name} is in {names}"


async def append_a_note(alice):
    """Calls a tool that needs a wider token. Both versions ask the user for it while the call waits."""
    made = plain(await alice.session.call_tool("create_workspace", {}))
    note = {"text": "milk", "workspace_id": made["structuredContent"]["workspace_id"]}
    text = await alice.call("notebook_append", note)
    assert "1" in text, f"the note is not there: {text}"


async def a_call_that_needs_more_leads_to_a_wider_token(place):
    async with place.open("alice") as alice:
        await append_a_note(alice)
        assert len(alice.logins) == 2, f"{len(alice.logins)} logins"
        alice.assert_one_session()


async def what_could_be_called_before_still_can(place):
    async with place.open("alice") as alice:
        await append_a_note(alice)
        await alice.echo("as before")
        assert "notebook_append" in await alice.tool_names(), "the list lacks the new tool"
        assert len(alice.logins) == 2, f"{len(alice.logins)} logins"
        alice.assert_one_session()


async def an_expired_token_is_renewed_in_the_same_session(place):
    async with place.open("alice") as alice:
        for number in (1, 2):
            before = len(alice.sent)
            # Two seconds more than the client is told: the server counts in whole seconds, and is the last to notice.
            await asyncio.sleep(alice.tokens.expires_in + 2)
            await alice.echo(f"round {number}")
            assert any(sent.is_renewal() for sent in alice.sent[before:]), "nothing was renewed"
        assert len(alice.logins) == 1, f"{len(alice.logins)} logins"
        # Both versions count the seconds themselves, and renew a token before it is refused. One that is refused earlier would
        # cost a login: they do not renew after a 401.
        refused = sum(sent.status == 401 for sent in alice.sent) - 1
        assert refused == 0, f"{refused} requests were refused"
        alice.assert_one_session()
        return f"{refused} refused, {sum(sent.is_renewal() for sent in alice.sent)} renewed"


async def the_listening_stream_ends_after_its_token_and_comes_back(place):
    changes = []

    async def take(message):
        note = plain(message) if not isinstance(message, Exception) and hasattr(message, "model_dump") else {}
        if note.get("method") == "notifications/resources/updated" and note["params"]["uri"] == VISITORS:
            changes.append(note)

    async with place.open("alice", message_handler=take) as alice:
        issued = next(sent.began for sent in alice.sent if sent.is_grant())
        # Until then the server takes the token, and the stream goes on a while. The server counts in whole seconds.
        expected = alice.tokens.expires_in + place.grace
        await alice.session.subscribe_resource(VISITORS)

        def streams(after=0):
            return [sent for sent in alice.sent if sent.is_stream(place.url) and sent.began > after]

        stream = (await until("the stream", streams, LATE_SECONDS))[0]
        await until("its end", lambda: stream.ended, expected + 1 + LATE_SECONDS)
        lasted = stream.ended - issued
        assert lasted > expected - 1, f"it ended {lasted:.1f} s after its token was issued, not {expected} s"
        following = (await until("the next stream", lambda: streams(stream.ended), 3 * LATE_SECONDS))[0]
        assert following.token != stream.token, "it came back with the token that had expired"
        # Every session that begins changes the number of visitors.
        seen = len(changes)
        async with place.open("bob"):
            await until("the notification", lambda: len(changes) > seen, LATE_SECONDS)
        assert len(alice.logins) == 1, f"{len(alice.logins)} logins"
        alice.assert_one_session()
        return f"ended after {lasted:.1f} s, back after {following.began - stream.ended:.1f} s"


async def another_user_finds_no_such_session(place):
    async with place.open("alice") as alice, place.open("bob") as bob:
        await alice.echo("mine")
        foreign = await ping(place.url, bob, alice.session_id)
        unknown = await ping(place.url, bob, "0123456789abcdef0123456789abcdef")
        assert foreign[0] == 404, f"status {foreign[0]}"
        assert foreign == unknown, f"they can be told apart: {foreign} {unknown}"
        await alice.echo("still mine")
        alice.assert_one_session()


# By name, in the order in which they are done.
CHECKS = {
    "a challenge leads to a login": a_challenge_leads_to_a_login,
    "the list has what the token allows": the_list_has_what_the_token_allows,
    "a call that needs more leads to a wider token": a_call_that_needs_more_leads_to_a_wider_token,
    "what could be called before still can": what_could_be_called_before_still_can,
    "an expired token is renewed in the same session": an_expired_token_is_renewed_in_the_same_session,
    "the listening stream ends after its token and comes back": the_listening_stream_ends_after_its_token_and_comes_back,
    "another user finds no such session": another_user_finds_no_such_session,
}


async def main(url, grace, node):
    failed = 0
    place = Place(url, int(grace), node)
    for name, run in CHECKS.items():
        try:
            with anyio.fail_after(CHECK_DEADLINE_SECONDS):
                figures = await run(place)
            print(f"ok {name} ({figures})" if figures else f"ok {name}", flush=True)
        except Exception as error:
            failed += 1
            print(f"not ok {name}: {reason_of(error)}", flush=True)
    print(f"{len(CHECKS) - failed} passed, {failed} failed")
    return 1 if failed else 0


@dataclass
class Sent:
    """A request, and what became of it."""

    method: str
    url: str
    body: str
    token: str | None
    session_id: str | None
    began: float
    status: int | None = None
    ended: float | None = None

    def is_stream(self, url):
        return self.method == "GET" and self.url == url and self.status == 200

    def is_grant(self):
        return "grant_type=authorization_code" in self.body and self.status == 200

    def is_renewal(self):
        return "grant_type=refresh_token" in self.body and self.status == 200


@dataclass
class Place:
    """The server, and what belongs to it."""

    url: str
    grace: int
    node: str

    @asynccontextmanager
    async def open(self, user, **callbacks):
        """Connects a client of a user, which needs a login first, and ends its session on the way out."""
        client = Client(user, self.node)
        provider = OAuthClientProvider(
            server_url=self.url,
            client_metadata=OAuthClientMetadata(
                client_name="tenure-python",
                redirect_uris=[CALLBACK],
                grant_types=["authorization_code", "refresh_token"],
                response_types=["code"],
                token_endpoint_auth_method="none",
            ),
            storage=client,
            redirect_handler=client.redirect,
            callback_handler=client.returned,
        )
        hooks = {"request": [client.note_request], "response": [client.note_response]}
        async with AsyncExitStack() as stack:
            # The timeouts are the SDK's own; the read timeout has to outlast quiet streams.
            http = httpx.AsyncClient(auth=provider, timeout=httpx.Timeout(30, read=300), event_hooks=hooks)
            await stack.enter_async_context(http)
            streams = await stack.enter_async_context(streamable_http_client(self.url, http_client=http))
            client.session = await stack.enter_async_context(ClientSession(streams[0], streams[1], **callbacks))
            await client.session.initialize()
            yield client


@dataclass
class Client:
    """A client of one user: what it has to keep for the SDK, and what the SDK sent."""

    user: str
    node: str
    # Where the SDK sent the user.
    logins: list = field(default_factory=list)
    sent: list = field(default_factory=list)
    tokens: object = None
    registered: object = None
    # As the server's headers say it: SDK v2 does not expose the id.
    session_id: str | None = None
    session: ClientSession | None = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.registered

    async def set_client_info(self, registered):
        self.registered = registered

    async def redirect(self, page):
        self.logins.append(page)

    async def returned(self):
        """Sends the user to the page of the newest login, and returns what they come back with."""
        process = await asyncio.create_subprocess_exec(
            self.node, USER, self.user, self.logins[-1], stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate()
        answer = {key: values[0] for key, values in parse_qs(urlsplit(out.decode().strip()).query).items()}
        assert "code" in answer, f"no code: {answer}"
        if IS_V1:
            return answer["code"], answer["state"]
        return AuthorizationCodeResult(code=answer["code"], state=answer["state"], iss=answer["iss"])

    async def note_request(self, request):
        token, session_id = (request.headers.get(name) for name in ("authorization", "mcp-session-id"))
        body = request.content.decode()
        # The SDK sends the same request again after a login, so the entry hangs on it until its response is there.
        request.entry = Sent(request.method, str(request.url), body, token, session_id, time.monotonic())
        self.sent.append(request.entry)

    async def note_response(self, response):
        entry = response.request.entry
        entry.status = response.status_code
        self.session_id = response.headers.get("mcp-session-id", self.session_id)
        if entry.method == "GET":
            response.stream = Watched(response.stream, entry)

    async def call(self, tool, arguments):
        """Calls a tool and returns its text."""
        result = plain(await self.session.call_tool(tool, arguments))
        text = "\n".join(item["text"] for item in result["content"] if item["type"] == "text")
        assert not result.get("isError"), f"tool error: {text}"
        return text

    async def echo(self, text):
        echo = await self.call("public_echo", {"text": text})
        assert echo == text, f"got {echo!r}"

    async def tool_names(self):
        return [tool["name"] for tool in plain(await self.session.list_tools())["tools"]]

    def assert_one_session(self):
        """All of it happened in one session."""
        begun = [sent for sent in self.sent if sent.status == 200 and '"initialize"' in sent.body]
        assert len(begun) == 1, f"{len(begun)} sessions"
        for sent in self.sent:
            assert sent.session_id in (None, self.session_id), f"session id {sent.session_id}, not {self.session_id}"


class Watched(httpx.AsyncByteStream):
    """A body that notes when it has ended."""

    def __init__(self, stream, entry):
        self.stream = stream
        self.entry = entry

    async def __aiter__(self):
        try:
            async for part in self.stream:
                yield part
        finally:
            self.entry.ended = time.monotonic()

    async def aclose(self):
        await self.stream.aclose()


async def ping(url, client, session_id):
    """The answer to a ping of a client in a session that may not be its own."""
    headers = {
        "authorization": f"Bearer {client.tokens.access_token}",
        "accept": "application/json, text/event-stream",
        "mcp-session-id": session_id,
        "mcp-protocol-version": "2025-11-25",
    }
    async with httpx.AsyncClient() as http:
        response = await http.post(url, json={"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers=headers)
        return response.status_code, response.text


async def until(what, look, seconds):
    """Waits until something is there."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        await asyncio.sleep(0.05)
    return found


def plain(result):
    """The result as on the wire: the attribute names differ between SDK v1 and v2."""
    return result.model_dump(by_alias=True, mode="json")


def reason_of(error):
    # The transport runs in a task group, so its errors come wrapped, with the first as the cause.
    while getattr(error, "exceptions", None):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"not done after {CHECK_DEADLINE_SECONDS} s"
    return str(error).split("\n")[0] or type(error).__name__


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: python.py URL GRACE_SECONDS NODE")
    sys.exit(asyncio.run(main(*sys.argv[1:])))
