//! How far a client has got on all streams of its session, for the time when it comes back.
//!
//! Streams are numbered as they begin. So the positions of those that are not over, and the highest number there was,
//! say everything: a stream up to that number that is not named was said to its end, one beyond it is new.

use std::collections::BTreeMap;
use std::fmt;

use tenure_session::id::Position;
use tenure_session::{EventId, SessionKey, StreamId};

use super::outgoing::Outgoing;

/// How far a client has got.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cursor {
    /// The highest number of a stream that began.
    highest: u32,
    /// The last event that was sent of each stream that is not over.
    streams: BTreeMap<StreamId, Position>,
}

impl Cursor {
    /// Notes what is sent.
    pub(crate) fn pass(&mut self, outgoing: &Outgoing) {
        match outgoing {
            Outgoing::Message { event: Some(event), .. } => {
                self.streams.insert(event.stream, event.position);
            }
            Outgoing::Message { event: None, .. } => {}
            Outgoing::Begun(stream) => {
                self.highest = self.highest.max(stream.number());
                self.streams.entry(*stream).or_default();
            }
            Outgoing::Ended(stream) => {
                self.streams.remove(stream);
            }
        }
    }

    /// Where to go on with each stream, given those that nobody reads at the moment. Streams that the client has
    /// heard to their end are not among them.
    pub(crate) fn resume(&self, unread: Vec<EventId>, key: &SessionKey) -> Vec<EventId> {
        let named = self.streams.iter().filter(|(stream, _)| **stream != StreamId::STANDALONE);
        let named = named.map(|(stream, position)| EventId::new(key, *stream, *position));
        // What a reader was given of those may not have reached the client.
        let fresh = unread.into_iter().filter(|event| event.stream.number() > self.highest);
        named.chain(fresh.map(|event| EventId::new(key, event.stream, Position::START))).collect()
    }

    /// The last event of the stream that belongs to no request, if there was one.
    pub(crate) fn news(&self, key: &SessionKey) -> Option<EventId> {
        let position = self.streams.get(&StreamId::STANDALONE)?;
        Some(EventId::new(key, StreamId::STANDALONE, *position))
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

/// Without a sign, which `from_str_radix` would allow.
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

    const KEY: SessionKey = SessionKey::from_bytes([1; 16]);

    fn event(stream: u32, position: u64) -> EventId {
        EventId::new(&KEY, StreamId::new(stream), Position(position))
    }

    fn said(stream: u32, position: u64) -> Outgoing {
        Outgoing::Message { body: Bytes::new(), event: Some(event(stream, position)) }
    }

    #[test]
    fn what_was_said_is_not_said_again_and_the_rest_is() {
        let mut cursor = Cursor::default();
        for outgoing in [
            Outgoing::Begun(StreamId::new(1)),
            Outgoing::Begun(StreamId::new(2)),
            said(2, 7),
            said(0, 8),
            Outgoing::Begun(StreamId::new(3)),
            said(3, 9),
            Outgoing::Ended(StreamId::new(3)),
            Outgoing::plain(Bytes::new()),
        ] {
            cursor.pass(&outgoing);
        }
        assert_eq!(cursor.to_string(), "3.0-8.1-0.2-7");
        assert_eq!(Cursor::parse(&cursor.to_string()), Some(cursor.clone()));
        // Stream 3 was heard to its end; 4 began after the client left, and a reader was given something of it.
        let resumed = cursor.resume(vec![event(1, 0), event(3, 9), event(4, 12)], &KEY);
        assert_eq!(resumed, [event(1, 0), event(2, 7), event(4, 0)]);
        assert_eq!(cursor.news(&KEY), Some(event(0, 8)));
    }

    #[test]
    fn what_is_no_cursor_is_none() {
        for text in
            ["", "x", "-1", "+1", "1.", "1.2", "1.2-", "1.2-3-4", "1.2-3.", "100000000", "1.2-+3", " 1"]
        {
            assert_eq!(Cursor::parse(text), None, "{text:?}");
        }
        assert_eq!(Cursor::parse("0"), Some(Cursor::default()));
    }
}
