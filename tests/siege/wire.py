"""HTTP/1.1 as the clients of a siege speak it: small, fast, and as rude as it has to be. Owns no clock and no counts.

In: messages. Out: the bytes of requests, and answers with their status, headers and the end of their body.
"""

import asyncio
import json
import socket

REVISION, MODERN = "2025-11-25", "2026-07-28"
# Of a body that is longer, the rest is read and only its end is kept.
KEPT_BYTES = 64 << 10
MODERN_META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Closed(Exception):
    """The server ended the connection, or never answered on it."""


class Answer:
    """A status, headers in lower case, the end of the body, and how long the body was."""

    def __init__(self, status, headers, body, length):
        self.status, self.headers, self.body, self.length = status, headers, body, length

    def message(self):
        """The JSON-RPC message; the last one of a stream."""
        text = self.body
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            data = [line[5:] for line in text.splitlines() if line.startswith(b"data:") and line[5:].strip()]
            text = data[-1] if data else b"{}"
        try:
            return json.loads(text)
        except ValueError:
            return {}

    def fault(self):
        """Why it is no result: a word such as `429 too_much_held`; nothing if it is one."""
        message = self.message()
        error = message.get("error")
        if error is None and self.status in (200, 202, 204):
            return None
        reason = ((error or {}).get("data") or {}).get("reason") or (error or {}).get("message", "")
        return f"{self.status} {reason}".strip()


def message(method, params=None, id=1):
    """A request; a notification if there is no id."""
    told = {"jsonrpc": "2.0", "method": method}
    if id is not None:
        told["id"] = id
    if params is not None:
        told["params"] = params
    return json.dumps(told).encode()


def call(tool, arguments, id=1, token=None):
    params = {"name": tool, "arguments": arguments}
    if token is not None:
        params["_meta"] = {"progressToken": token}
    return message("tools/call", params, id)


def initialize(padding=0):
    params = {
        "protocolVersion": REVISION,
        "capabilities": {},
        "clientInfo": {"name": "siege", "version": "1"},
    }
    if padding:
        params["capabilities"] = {"experimental": {"padding": {"text": "p" * padding}}}
    return message("initialize", params)


def head(body_bytes, session=None, method="POST", extra=()):
    """What stands before a body."""
    lines = [
        f"{method} /mcp HTTP/1.1",
        "host: 127.0.0.1",
        "content-type: application/json",
        "accept: application/json, text/event-stream",
        f"content-length: {body_bytes}",
    ]
    if session is not None:
        lines += [f"mcp-session-id: {session}", f"mcp-protocol-version: {REVISION}"]
    lines += [f"{name}: {value}" for name, value in extra]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def post(body, session=None, extra=()):
    return head(len(body), session, extra=extra) + body


def modern(method, params, id=1):
    """Headers and body of a request without a session."""
    body = message(method, {**params, "_meta": {**params.get("_meta", {}), **MODERN_META}}, id)
    extra = [("mcp-protocol-version", MODERN), ("mcp-method", method)]
    if "name" in params:
        extra.append(("mcp-name", params["name"]))
    return extra, body


def post_modern(method, params, id=1):
    extra, body = modern(method, params, id)
    return post(body, extra=extra)


def raw_socket(source):
    """A socket that will come from this address of the machine."""
    raw = socket.socket()
    raw.setblocking(False)
    raw.bind((source, 0))
    return raw


class Connection:
    """One connection, one request at a time."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        # Hears how many bytes of a stream have come, as they come.
        self.on_taken = lambda size: None

    @classmethod
    async def open(cls, port, source="127.0.0.1"):
        raw = raw_socket(source)
        try:
            await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", port))
            return cls(*await asyncio.open_connection(sock=raw, limit=1 << 20))
        except BaseException:
            raw.close()
            raise

    async def ask(self, request):
        """Sends a request and reads the whole answer."""
        try:
            self.writer.write(request)
            await self.writer.drain()
        except ConnectionError:
            pass  # An early refusal may be there to be read.
        return await self.answer()

    async def answer(self):
        try:
            status, headers = await self.head()
            if "chunked" in headers.get("transfer-encoding", ""):
                body, length = await self.chunks()
            else:
                length = int(headers.get("content-length", 0))
                body = await self.reader.readexactly(length)
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            raise Closed(f"the connection ended: {error!r}") from error
        return Answer(status, headers, body, length)

    async def head(self):
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        return int(lines[0].split(" ")[1]), headers

    async def chunks(self):
        kept, length = b"", 0
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            piece = await self.reader.readexactly(size + 2)
            length += size
            self.on_taken(size)
            kept = (kept + piece[:-2])[-KEPT_BYTES:]
        await self.reader.readexactly(2)
        return kept, length

    def close(self):
        self.writer.close()


async def begin(connection, padding=0):
    """A session on this connection, ready for calls: its id."""
    answer = await connection.ask(post(initialize(padding)))
    if fault := answer.fault():
        raise Closed(f"no session: {fault}")
    session = answer.headers["mcp-session-id"]
    await connection.ask(post(message("notifications/initialized", id=None), session))
    return session


async def get(port, path, source="127.0.0.1"):
    """The status and body of a GET on a connection of its own."""
    connection = await Connection.open(port, source)
    try:
        answer = await connection.ask(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n".encode())
        return answer.status, answer.body.decode(errors="replace")
    finally:
        connection.close()
