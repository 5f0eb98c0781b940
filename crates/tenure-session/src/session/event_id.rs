//! Event ids, with which clients resume.
//!
//! A store counts positions for all sessions together, so a plain position would tell a client how much the others
//! write. On the wire it is therefore encrypted with a secret of the session: the same position always has the same id,
//! and the id reveals nothing else, not even which of two ids is newer.

use std::fmt;
use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::id::{Position, SessionKey, StreamId, hex, hex_number};

/// The secret that encrypts the positions of a session's events.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventSecret([u8; 16]);

impl EventSecret {
    /// Draws a new secret from the operating system.
    ///
    /// # Panics
    /// When the operating system provides no randomness.
    pub fn random() -> Self {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the operating system provides randomness");
        Self(bytes)
    }

    /// Reads what [`EventSecret::hex`] writes.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        SessionKey::parse(text).map(|bits| Self(bits.to_bytes()))
    }

    /// The text for the record.
    pub(crate) fn hex(&self) -> String {
        hex(&self.0)
    }

    /// The round function: a keyed hash of one half, which is mixed into the other half.
    fn mix(&self, round: u8, half: u32) -> u32 {
        let mut hash = SipHasher24::new_with_key(&self.0);
        hash.write_u64(u64::from(round) << 32 | u64::from(half));
        // Both halves of the hash are equally good.
        (hash.finish() >> 32) as u32
    }

    /// A Feistel network of four rounds, the fewest that give a strong pseudorandom permutation.
    fn encipher(&self, number: u64) -> u64 {
        let (mut left, mut right) = halves(number);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ self.mix(round, right));
        }
        whole(left, right)
    }

    fn decipher(&self, number: u64) -> u64 {
        let (mut left, mut right) = halves(number);
        for round in (0..ROUNDS).rev() {
            (left, right) = (right ^ self.mix(round, left), left);
        }
        whole(left, right)
    }
}

impl fmt::Debug for EventSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventSecret")
    }
}

const ROUNDS: u8 = 4;

fn halves(number: u64) -> (u32, u32) {
    ((number >> 32) as u32, number as u32)
}

fn whole(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

/// The event-id scheme of one session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EventNames {
    /// Part of each id, so that an id of another session is recognised without a lookup.
    tag: u32,
    secret: Option<EventSecret>,
}

impl EventNames {
    /// The scheme of the session `key`. Without a secret, as in sessions of earlier versions, ids contain plain
    /// positions.
    pub fn new(key: &SessionKey, secret: Option<EventSecret>) -> Self {
        Self { tag: key.event_tag(), secret }
    }

    /// The secret, for the session's record.
    pub(crate) fn secret(&self) -> Option<EventSecret> {
        self.secret
    }
}

/// Names an event by its stream, its position and the tag of its session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EventId {
    /// The stream the event is on.
    pub stream: StreamId,
    /// Its position on the stream.
    pub position: Position,
    names: EventNames,
}

impl EventId {
    /// The id of the event at `position` of `stream`.
    pub fn new(names: &EventNames, stream: StreamId, position: Position) -> Self {
        Self { stream, position, names: *names }
    }

    /// Reads `<stream>-<position>-<tag>`, all lower-case hex, and checks that the tag is that of `names`.
    pub fn parse(text: &[u8], names: &EventNames) -> Option<Self> {
        let mut parts = text.split(|byte| *byte == b'-');
        let stream = hex_number(parts.next()?)?.try_into().ok()?;
        let position = hex_number(parts.next()?)?;
        let tag: u32 = hex_number(parts.next()?)?.try_into().ok()?;
        if parts.next().is_some() || tag != names.tag {
            return None;
        }
        let position = names.secret.map_or(position, |secret| secret.decipher(position));
        Some(Self::new(names, StreamId::new(stream), Position(position)))
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stream, position, tag) = (self.stream.number(), self.position.0, self.names.tag);
        match self.names.secret {
            Some(secret) => write!(f, "{stream:x}-{:016x}-{tag:08x}", secret.encipher(position)),
            None => write!(f, "{stream:x}-{position:x}-{tag:08x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::SessionId;
    use proptest::prelude::*;

    fn names() -> EventNames {
        EventNames::new(&SessionId::random().key(), Some(EventSecret::random()))
    }

    fn event(names: &EventNames, position: u64) -> EventId {
        EventId::new(names, StreamId::new(3), Position(position))
    }

    #[test]
    fn an_event_id_of_another_session_does_not_parse() {
        let (mine, other) = (names(), names());
        let id = event(&mine, 0x1f);
        assert_eq!(EventId::parse(id.to_string().as_bytes(), &mine), Some(id));
        assert_eq!(EventId::parse(id.to_string().as_bytes(), &other), None);
    }

    #[test]
    fn ids_from_before_there_were_secrets_stay_good() {
        let names = EventNames::new(&SessionKey::from_bytes([1; 16]), None);
        assert_eq!(event(&names, 0x1f).to_string(), "3-1f-01010101");
        assert_eq!(EventId::parse(b"3-1f-01010101", &names), Some(event(&names, 0x1f)));
    }

    /// With positions that follow each other, each of the 64 bits differs between neighbours about half of the time.
    #[test]
    fn ids_of_positions_in_a_row_have_nothing_in_common() {
        let secret = EventSecret([7; 16]);
        let mut differs = [0; 64];
        for position in 0..1000 {
            let changed = secret.encipher(position) ^ secret.encipher(position + 1);
            for (bit, count) in differs.iter_mut().enumerate() {
                *count += (changed >> bit) & 1;
            }
        }
        // Ten standard deviations of 16 either way.
        assert!(differs.iter().all(|count| (340..660).contains(count)), "{differs:?}");
    }

    #[test]
    fn the_secret_is_not_in_logs_and_survives_its_record() {
        let names = names();
        let secret = names.secret.unwrap();
        assert_eq!(EventSecret::parse(&secret.hex()), Some(secret));
        assert!(!format!("{:?}", event(&names, 1)).contains(&secret.hex()[..8]));
    }

    proptest! {
        #[test]
        fn every_position_is_found_again(position in any::<u64>(), bytes in any::<[u8; 16]>()) {
            let secret = EventSecret(bytes);
            prop_assert_eq!(secret.decipher(secret.encipher(position)), position);
        }

        #[test]
        fn parsing_an_event_id_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let names = names();
            if let Some(id) = EventId::parse(&bytes, &names) {
                prop_assert_eq!(EventId::parse(id.to_string().as_bytes(), &names), Some(id));
            }
        }
    }
}
