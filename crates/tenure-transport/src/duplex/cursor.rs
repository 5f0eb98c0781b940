//! How far a client has got on all streams of its session, so that it can resume after its connection broke.
//!
//! Streams are numbered as they begin. So the cursor needs only the positions of the unfinished streams and the highest
//! number so far: a stream up to that number that is not in the cursor was sent to its end, one beyond it is new.

use std::collections::BTreeMap;
use std::fmt;

use tenure_session::id::Position;
use tenure_session::{EventId, EventNames, StreamId};

use super::outgoing::Outgoing;

/// How far a client has got.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cursor {
    /// The highest number of a stream that has begun.
    highest: u32,
    /// The last event that was sent on each unfinished stream.
    streams: BTreeMap<StreamId, Position>,
}

impl Cursor {
    /// Advances the cursor past an entry of the output queue.
    pub(crate) fn pass(&mut self, outgoing: &Outgoing) {
        match outgoing {
            Outgoing::Message { event: Some(event), .. } => {
                self.streams.insert(event.stream, event.position);
            }
            Outgoing::Message { event: None, .. } => {}
            Outgoing::Begun(after) => {
                self.highest = self.highest.max(after.stream.number());
                self.streams.insert(after.stream, after.position);
            }
            Outgoing::Ended(stream) => {
                self.streams.remove(stream);
            }
        }
    }

    /// The highest number of a stream that has begun for the client.
    pub(crate) fn highest(&self) -> u32 {
        self.highest
    }

    /// Where to resume each unfinished stream of a request.
    pub(crate) fn unfinished(&self, names: EventNames) -> impl Iterator<Item = EventId> {
        let streams = self.streams.iter().filter(|(stream, _)| **stream != StreamId::STANDALONE);
        streams.map(move |(stream, position)| EventId::new(&names, *stream, *position))
    }

    /// The last event that was sent on the standalone stream, if the client read that stream.
    pub(crate) fn news(&self, names: EventNames) -> Option<EventId> {
        let position = self.streams.get(&StreamId::STANDALONE)?;
        Some(EventId::new(&names, StreamId::STANDALONE, *position))
    }

    /// Reads what [`Cursor`]'s `Display` writes.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let highest = hex(parts.next()?)?.try_into().ok()?;
        let mut streams = BTreeMap::new();
        for part in parts {
            let (stream, position) = part.split_once('-')?;
            let stream: u32 = hex(stream)?.try_into().ok()?;
            streams.insert(StreamId::new(stream), Position(hex(position)?));
        }
        Some(Self { highest, streams })
    }
}

/// Refuses a sign, which `from_str_radix` would allow.
fn hex(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits.then(|| u64::from_str_radix(text, 16).ok())?
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.highest)?;
        for (stream, position) in &self.streams {
            write!(f, ".{:x}-{:x}", stream.number(), position.0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use tenure_session::SessionKey;

    fn names() -> EventNames {
        EventNames::new(&SessionKey::from_bytes([1; 16]), None)
    }

    fn event(stream: u32, position: u64) -> EventId {
        EventId::new(&names(), StreamId::new(stream), Position(position))
    }

    fn sent(stream: u32, position: u64) -> Outgoing {
        Outgoing::Message { body: Bytes::new(), event: Some(event(stream, position)) }
    }

    #[test]
    fn a_cursor_skips_sent_events_and_names_the_unfinished_streams() {
        let mut cursor = Cursor::default();
        for outgoing in [
            Outgoing::Begun(event(0, 4)),
            Outgoing::Begun(event(1, 0)),
            Outgoing::Begun(event(2, 0)),
            sent(2, 7),
            sent(0, 8),
            Outgoing::Begun(event(3, 0)),
            sent(3, 9),
            Outgoing::Ended(StreamId::new(3)),
            Outgoing::plain(Bytes::new()),
        ] {
            cursor.pass(&outgoing);
        }
        assert_eq!(cursor.to_string(), "3.0-8.1-0.2-7");
        assert_eq!(Cursor::parse(&cursor.to_string()), Some(cursor.clone()));
        // Stream 3 was sent to its end.
        assert_eq!(cursor.unfinished(names()).collect::<Vec<_>>(), [event(1, 0), event(2, 7)]);
        assert_eq!(cursor.highest(), 3);
        assert_eq!(cursor.news(names()), Some(event(0, 8)));
    }

    #[test]
    fn malformed_cursors_are_refused() {
        for text in
            ["", "x", "-1", "+1", "1.", "1.2", "1.2-", "1.2-3-4", "1.2-3.", "100000000", "1.2-+3", " 1"]
        {
            assert_eq!(Cursor::parse(text), None, "{text:?}");
        }
        assert_eq!(Cursor::parse("0"), Some(Cursor::default()));
    }
}
