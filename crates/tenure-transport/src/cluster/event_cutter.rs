//! Cuts the bytes of an event stream into whole events.
//!
//! In: pieces as they come from a peer. Out: events as they were written, each with its id. An event goes to a client as a
//! whole or not at all, so that the id of the last one says where the stream goes on at another node.

use bytes::{Buf, Bytes, BytesMut};

/// The pieces of which no event is complete yet.
#[derive(Debug)]
pub(crate) struct EventCutter {
    pieces: BytesMut,
    /// Bytes at the start that have been searched for the end of an event.
    searched: usize,
    /// The longest event.
    longest: usize,
}

/// An event is longer than it may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TooLong;

/// A whole event, or a comment.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct CutEvent(Bytes);

impl EventCutter {
    pub(crate) fn new(longest: usize) -> Self {
        Self { pieces: BytesMut::new(), searched: 0, longest }
    }

    /// Takes the next piece.
    pub(crate) fn feed(&mut self, piece: Bytes) -> Result<(), TooLong> {
        if self.pieces.is_empty() {
            // Most pieces hold whole events; such a piece is used without a copy if no other part holds it.
            self.pieces = BytesMut::from(piece);
            self.searched = 0;
        } else {
            self.pieces.extend_from_slice(&piece);
        }
        if self.pieces.len() > self.longest { Err(TooLong) } else { Ok(()) }
    }

    /// The next whole event.
    pub(crate) fn next(&mut self) -> Option<CutEvent> {
        let from = self.searched.saturating_sub(1);
        let Some(end) = self.pieces[from..].windows(2).position(|pair| pair == b"\n\n") else {
            self.searched = self.pieces.len();
            return None;
        };
        self.searched = 0;
        let event = self.pieces.split_to(from + end + 2).freeze();
        if !self.pieces.has_remaining() {
            // A quiet stream holds no memory for pieces.
            self.pieces = BytesMut::new();
        }
        Some(CutEvent(event))
    }

    /// Drops what has come of an event that is not complete.
    pub(crate) fn forget(&mut self) {
        self.pieces = BytesMut::new();
        self.searched = 0;
    }
}

impl CutEvent {
    /// As it was written, with the empty line at its end.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Its id, if it has one. An id stands in front of the message.
    pub(crate) fn id(&self) -> Option<&[u8]> {
        let heads = self.0.split(|byte| *byte == b'\n').take_while(|line| !line.starts_with(b"data:"));
        heads.filter_map(|line| line.strip_prefix(b"id: ")).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str =
        ": stream\n\nid: 1-a\nretry: 5\ndata: \n\nevent: message\ndata: id: 9\ndata: {}\n\nretry: 5\n\n";

    fn cut(pieces: impl Iterator<Item = &'static [u8]>) -> Vec<(String, Option<String>)> {
        let mut cutter = EventCutter::new(1000);
        let mut events = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        for piece in pieces {
            cutter.feed(Bytes::from_static(piece)).unwrap();
            while let Some(event) = cutter.next() {
                events.push((text(event.bytes()), event.id().map(text)));
            }
        }
        assert!(cutter.pieces.is_empty() && cutter.pieces.capacity() == 0);
        events
    }

    #[test]
    fn events_are_the_same_however_they_come() {
        let whole = cut(std::iter::once(STREAM.as_bytes()));
        assert_eq!(whole.iter().map(|(event, _)| event.as_str()).collect::<String>(), STREAM);
        let ids: Vec<_> = whole.iter().map(|(_, id)| id.as_deref()).collect();
        assert_eq!(ids, [None, Some("1-a"), None, None], "what a message says is not an id");
        for size in 1..STREAM.len() {
            assert_eq!(cut(STREAM.as_bytes().chunks(size)), whole, "{size}");
        }
    }

    #[test]
    fn an_event_without_end_is_not_collected() {
        let mut cutter = EventCutter::new(10);
        assert_eq!(cutter.feed(Bytes::from_static(b"data: 1234")), Ok(()));
        assert_eq!(cutter.next(), None);
        assert_eq!(cutter.feed(Bytes::from_static(b"5")), Err(TooLong));
    }
}
