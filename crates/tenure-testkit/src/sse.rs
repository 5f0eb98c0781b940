//! Reads Server-Sent Events from a body that arrives in pieces, comments included.
//!
//! It repairs and drops nothing, because a test has to see the exact bytes on the wire.

use std::collections::VecDeque;

/// One comment or event of a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SseItem {
    /// A line that starts with a colon, without the colon.
    Comment(String),
    /// Lines up to an empty one.
    Event(SseEvent),
}

/// A line that must not be on a stream: an unknown field, or one that cannot be parsed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Odd(pub String);

/// An event, each field as it was sent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SseEvent {
    /// The id that a client sends to resume after this event.
    pub id: Option<String>,
    /// The kind of event.
    pub event: Option<String>,
    /// How long a client must wait before it reconnects, in milliseconds.
    pub retry: Option<u64>,
    /// The message; empty if the event carries nothing but its id.
    pub data: Option<String>,
}

/// Parses a stream. As an iterator, it ends when no further item is complete, and goes on after the next `feed`.
#[derive(Debug, Default)]
pub struct Parser {
    partial: Vec<u8>,
    event: SseEvent,
    ready: VecDeque<Result<SseItem, Odd>>,
}

impl Parser {
    /// Takes the next piece of the body.
    pub fn feed(&mut self, mut piece: &[u8]) {
        while let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
            self.partial.extend_from_slice(&piece[..end]);
            let line = std::mem::take(&mut self.partial);
            match std::str::from_utf8(&line) {
                Ok(line) => self.line(line.strip_suffix('\r').unwrap_or(line)),
                Err(_) => self.ready.push_back(Err(Odd(String::from_utf8_lossy(&line).into_owned()))),
            }
            piece = &piece[end + 1..];
        }
        self.partial.extend_from_slice(piece);
    }

    fn line(&mut self, line: &str) {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            if event != SseEvent::default() {
                self.ready.push_back(Ok(SseItem::Event(event)));
            }
            return;
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
        match (name, value.parse()) {
            ("", _) => self.ready.push_back(Ok(SseItem::Comment(value))),
            ("id", _) => self.event.id = Some(value),
            ("event", _) => self.event.event = Some(value),
            ("retry", Ok(milliseconds)) => self.event.retry = Some(milliseconds),
            ("data", _) => match &mut self.event.data {
                Some(data) => *data = format!("{data}\n{value}"),
                none => *none = Some(value),
            },
            _ => self.ready.push_back(Err(Odd(line.to_owned()))),
        }
    }
}

impl Iterator for Parser {
    type Item = Result<SseItem, Odd>;

    fn next(&mut self) -> Option<Result<SseItem, Odd>> {
        self.ready.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::{Odd, Parser, SseEvent, SseItem};

    #[test]
    fn items_are_found_however_the_body_is_split() {
        let text = ": stream\n\nid: 1-0-a\nretry: 10\ndata: \n\nid: 1-2-a\r\nevent: message\r\ndata: {\r\ndata: }\r\n\r\nretry: 5\n\ndata: cut";
        let own = |text: &str| Some(text.to_owned());
        let expected = [
            SseItem::Comment("stream".to_owned()),
            SseItem::Event(SseEvent { id: own("1-0-a"), event: None, retry: Some(10), data: own("") }),
            SseItem::Event(SseEvent {
                id: own("1-2-a"),
                event: own("message"),
                retry: None,
                data: own("{\n}"),
            }),
            SseItem::Event(SseEvent { retry: Some(5), ..SseEvent::default() }),
        ];
        for size in [1, 2, 3, 7, 1000] {
            let mut parser = Parser::default();
            text.as_bytes().chunks(size).for_each(|piece| parser.feed(piece));
            assert_eq!(
                parser.collect::<Result<Vec<_>, _>>().as_deref(),
                Ok(&expected[..]),
                "pieces of {size}"
            );
        }
    }

    #[test]
    fn what_belongs_on_no_stream_is_shown() {
        let mut parser = Parser::default();
        parser.feed(b"retry: soon\nname: x\ndata: \xff\n\n");
        let odd = ["retry: soon", "name: x", "data: \u{fffd}"].map(|line| Err(Odd(line.to_owned())));
        assert_eq!(parser.collect::<Vec<_>>(), odd);
    }
}
