//! Reads Server-Sent Events from a body that arrives in pieces, comments included.
//!
//! Nothing is mended or dropped: the checker has to see what is on the wire.

use std::collections::VecDeque;

/// One thing on a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Item {
    /// A line that starts with a colon, without the colon.
    Comment(String),
    /// Lines up to an empty one.
    Event(Event),
}

/// An event, each field as it was sent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) retry: Option<String>,
    pub(crate) data: Option<String>,
}

/// What was read of a stream so far and makes no whole event yet.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    partial: Vec<u8>,
    event: Event,
    ready: VecDeque<Item>,
}

impl Parser {
    /// Takes the next piece of the body.
    pub(crate) fn feed(&mut self, mut piece: &[u8]) {
        while let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
            self.partial.extend_from_slice(&piece[..end]);
            let line = std::mem::take(&mut self.partial);
            self.line(&String::from_utf8_lossy(&line));
            piece = &piece[end + 1..];
        }
        self.partial.extend_from_slice(piece);
    }

    /// The next item that is complete.
    pub(crate) fn next(&mut self) -> Option<Item> {
        self.ready.pop_front()
    }

    fn line(&mut self, line: &str) {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            if event != Event::default() {
                self.ready.push_back(Item::Event(event));
            }
            return;
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
        match name {
            "" => self.ready.push_back(Item::Comment(value)),
            "id" => self.event.id = Some(value),
            "retry" => self.event.retry = Some(value),
            "data" => match &mut self.event.data {
                Some(data) => *data = format!("{data}\n{value}"),
                none => *none = Some(value),
            },
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, Item, Parser};

    #[test]
    fn items_are_found_however_the_body_is_split() {
        let text = ": stream\n\nid: 1-0-a\nretry: 10\ndata: \n\nid: 1-2-a\r\nevent: message\r\ndata: {\r\ndata: }\r\n\r\nretry: 5\n\ndata: cut";
        let event = |id: Option<&str>, retry: Option<&str>, data: Option<&str>| {
            let own = |text: Option<&str>| text.map(str::to_owned);
            Item::Event(Event { id: own(id), retry: own(retry), data: own(data) })
        };
        let expected = [
            Item::Comment("stream".to_owned()),
            event(Some("1-0-a"), Some("10"), Some("")),
            event(Some("1-2-a"), None, Some("{\n}")),
            event(None, Some("5"), None),
        ];
        for size in [1, 2, 3, 7, 1000] {
            let mut parser = Parser::default();
            text.as_bytes().chunks(size).for_each(|piece| parser.feed(piece));
            let items: Vec<_> = std::iter::from_fn(|| parser.next()).collect();
            assert_eq!(items, expected, "pieces of {size}");
        }
    }
}
