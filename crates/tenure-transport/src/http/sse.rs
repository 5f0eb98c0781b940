//! Writes Server-Sent Events; pure functions from items to bytes.
//!
//! A message is usually one line of JSON, so one `data:` line is enough. If a backend sends a line break inside its
//! JSON, the message is split over several `data:` lines, as the format requires.

use std::io::Write;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tenure_session::session::Item;
use tenure_session::{EventId, SessionId, StreamId};

/// The first bytes of every stream: a comment, so that proxies pass the headers on at once.
pub(super) const OPENING: &[u8] = b": stream\n\n";

/// Sent while there is no message to send.
pub(super) const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// The last event of an answer at POST `/sse`.
pub(super) const DONE: &[u8] = b"event: done\ndata: {}\n\n";

/// Writes a message without an event id.
pub(super) fn write_message(body: &Bytes, out: &mut BytesMut) {
    out.reserve(body.len() + 64);
    out.put_slice(b"event: message\n");
    write_data(body, out);
}

/// The messages in events that were written, or the one message of a body without events. Of a message with line breaks
/// only the first line.
pub(super) fn messages_of(written: &[u8]) -> impl Iterator<Item = &[u8]> {
    let whole = written.starts_with(b"{").then_some(written);
    let lines = written.split(move |byte| whole.is_none() && *byte == b'\n');
    lines.filter_map(move |line| whole.or_else(|| line.strip_prefix(b"data: ")))
}

/// Whether what was written is an event with an id and without a message.
pub(super) fn is_prime(written: &[u8]) -> bool {
    written.starts_with(b"id: ") && written.ends_with(b"\ndata: \n\n")
}

/// Whether what was written only says when the client shall come back.
pub(super) fn is_close(written: &[u8]) -> bool {
    written.starts_with(b"retry: ") && messages_of(written).next().is_none()
}

/// The details of a stream's format; the default is as MCP defines it, the rest is for clients of earlier designs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wording {
    /// The ids of its events.
    pub(super) ids: Ids,
    /// Whether the server sends an event `close` when it closes the stream.
    pub(super) close_event: bool,
}

/// The ids of the events of a stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Ids {
    /// Stream, position, and a tag of the session.
    #[default]
    Whole,
    /// On the standalone stream, the position alone.
    Plain,
    /// On the standalone stream, the session and the position.
    Named(SessionId),
}

/// Writes one item.
pub(super) fn write(item: &Item, retry: Duration, out: &mut BytesMut) {
    write_worded(item, retry, Wording::default(), out);
}

/// Writes one item of a stream with this wording.
pub(super) fn write_worded(item: &Item, retry: Duration, wording: Wording, out: &mut BytesMut) {
    match item {
        Item::Prime(id) => {
            write_id(id, wording.ids, out);
            write_rest_of_prime(retry, out);
        }
        Item::Event { id, body } => {
            out.reserve(body.len() + 64);
            if let Some(id) = id {
                write_id(id, wording.ids, out);
            }
            out.put_slice(b"event: message\n");
            write_data(body, out);
        }
        Item::Gap => out.put_slice(b": gap: events were missed here, they were no longer kept\n\n"),
        Item::Close(retry) => {
            if wording.close_event {
                out.put_slice(b"event: close\ndata: {\"status\":\"closed\"}\n");
            }
            write_close(*retry, out);
        }
    }
}

/// Writes an event without a message, so that the client has an id to resume with.
pub(super) fn write_prime(id: &str, retry: Duration, out: &mut BytesMut) {
    writeln!(out.writer(), "id: {id}").expect("writing to memory does not fail");
    write_rest_of_prime(retry, out);
}

fn write_rest_of_prime(retry: Duration, out: &mut BytesMut) {
    write_retry(retry, out);
    out.put_slice(b"data: \n\n");
}

/// Tells a client when to resume a stream that closes now.
pub(super) fn write_close(retry: Duration, out: &mut BytesMut) {
    write_retry(retry, out);
    out.put_slice(b"\n");
}

fn write_id(id: &EventId, ids: Ids, out: &mut BytesMut) {
    let position = id.position.0;
    let written = match ids {
        Ids::Plain if id.stream == StreamId::STANDALONE => writeln!(out.writer(), "id: {position}"),
        Ids::Named(session) if id.stream == StreamId::STANDALONE => {
            writeln!(out.writer(), "id: {}_{position}", session.expose())
        }
        Ids::Whole | Ids::Plain | Ids::Named(_) => writeln!(out.writer(), "id: {id}"),
    };
    written.expect("writing to memory does not fail");
}

fn write_retry(retry: Duration, out: &mut BytesMut) {
    writeln!(out.writer(), "retry: {}", retry.as_millis()).expect("writing to memory does not fail");
}

pub(super) fn write_data(body: &Bytes, out: &mut BytesMut) {
    for line in body.split(|byte| matches!(byte, b'\n' | b'\r')) {
        out.put_slice(b"data: ");
        out.put_slice(line);
        out.put_u8(b'\n');
    }
    out.put_u8(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_session::EventNames;
    use tenure_session::id::{Position, SessionKey};

    fn written(item: &Item) -> String {
        let mut out = BytesMut::new();
        write(item, Duration::from_millis(1500), &mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn items_on_the_wire() {
        let names = EventNames::new(&SessionKey::from_bytes([1; 16]), None);
        let id = EventId::new(&names, StreamId::new(2), Position(10));
        assert_eq!(written(&Item::Prime(id)), "id: 2-a-01010101\nretry: 1500\ndata: \n\n");
        let event = Item::Event { id: Some(id), body: Bytes::from_static(b"{}") };
        assert_eq!(written(&event), "id: 2-a-01010101\nevent: message\ndata: {}\n\n");
        let unlogged = Item::Event { id: None, body: Bytes::from_static(b"{\n}") };
        assert_eq!(written(&unlogged), "event: message\ndata: {\ndata: }\n\n");
        assert_eq!(written(&Item::Close(Duration::from_secs(5))), "retry: 5000\n\n");
        let kinds = [Item::Prime(id), Item::Close(Duration::ZERO), event, unlogged, Item::Gap].map(|item| {
            let written = written(&item);
            (is_prime(written.as_bytes()), is_close(written.as_bytes()))
        });
        assert_eq!(kinds, [(true, false), (false, true), (false, false), (false, false), (false, false)]);
        assert!(written(&Item::Gap).starts_with(": gap"));
    }
}
