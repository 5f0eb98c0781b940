"""HTTP/2 for attackers: many requests on one connection, and windows that are opened or kept shut.

Owns one connection. In: requests. Out: how each of them ended, told to a function as soon as it is known.
"""

import asyncio

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, DataReceived, ResponseReceived, StreamEnded, StreamReset
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

from wire import raw_socket


class Http2:
    """One connection; `on_end(stream, outcome)` hears of the end of every stream, of which only the status is kept."""

    def __init__(self, reader, writer, on_end):
        self.reader, self.writer, self.on_end = reader, writer, on_end
        self.state = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.statuses, self.open = {}, set()
        self.taken = 0
        self.is_over = asyncio.Event()
        self.changed = asyncio.Event()
        self.reading = None

    @classmethod
    async def connect(cls, port, source, on_end=lambda stream, outcome: None, window=None):
        """`window`: the room for each answer that the server is told of; 0 takes nothing."""
        raw = raw_socket(source)
        await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", port))
        http2 = cls(*await asyncio.open_connection(sock=raw), on_end)
        if window is not None:
            # Among the first settings: before they are acknowledged, answers may be sent by the old ones.
            http2.state.local_settings = Settings(client=True, initial_values={SettingCodes.INITIAL_WINDOW_SIZE: window})
        http2.state.initiate_connection()
        http2.flush()
        http2.reading = asyncio.create_task(http2.read())
        return http2

    def flush(self):
        if data := self.state.data_to_send():
            self.writer.write(data)

    def room(self):
        """How many more requests the server takes on this connection."""
        return self.state.remote_settings.max_concurrent_streams - len(self.open)

    def request(self, headers, body, end=True):
        """Begins a request; the number of its stream. With `end` false, the body may go on."""
        stream = self.state.get_next_available_stream_id()
        names = [
            (":method", "POST"), (":scheme", "http"), (":path", "/mcp"), (":authority", "127.0.0.1"),
            ("content-type", "application/json"), ("accept", "application/json, text/event-stream"), *headers,
        ]
        self.state.send_headers(stream, names)
        self.open.add(stream)
        if body:
            self.piece(stream, body)
        if end:
            self.state.end_stream(stream)
        self.flush()
        return stream

    def piece(self, stream, body):
        """As much of a body as there is room for; how much that was."""
        room = min(self.state.local_flow_control_window(stream), len(body))
        size = self.state.max_outbound_frame_size
        for start in range(0, room, size):
            self.state.send_data(stream, body[start : min(room, start + size)])
        self.flush()
        return room

    async def read(self):
        try:
            while data := await self.reader.read(1 << 16):
                for event in self.state.receive_data(data):
                    self.hear(event)
                self.flush()
                self.changed.set()
        except (ConnectionError, ProtocolError):
            pass
        for stream in sorted(self.open):
            self.end(stream, "closed")
        self.is_over.set()
        self.changed.set()

    def hear(self, event):
        if isinstance(event, ResponseReceived):
            self.statuses[event.stream_id] = dict(event.headers)[":status"]
        elif isinstance(event, DataReceived):
            self.taken += len(event.data)
            self.state.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, StreamEnded):
            self.end(event.stream_id, self.statuses.get(event.stream_id, "no status"))
        elif isinstance(event, StreamReset):
            self.end(event.stream_id, "reset")
        elif isinstance(event, ConnectionTerminated):
            self.is_over.set()

    def end(self, stream, outcome):
        if stream in self.open:
            self.open.discard(stream)
            self.on_end(stream, "served" if outcome == "200" else outcome)

    async def wait(self, seconds):
        """Until something has changed, or the time is over."""
        self.changed.clear()
        try:
            await asyncio.wait_for(self.changed.wait(), seconds)
        except asyncio.TimeoutError:
            pass
