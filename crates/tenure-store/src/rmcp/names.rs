//! The keys of rmcp's sessions, streams and events in a store.
//!
//! A store sees only hashes, because rmcp's ids are secrets. Every kind of name is hashed with its own prefix, so that
//! it cannot collide with a name of another kind or with the key of a session of ours.

use std::fmt;

use sha2::{Digest, Sha256};
use tenure_session::id::{Position, SessionKey};
use tenure_session::port::store::{RecordKey, Space};

/// The record of an rmcp session.
pub(super) fn session(id: &str) -> RecordKey {
    RecordKey { space: Space::Rmcp, key: hash(b"tenure rmcp session\0", &[id.as_bytes()]) }
}

/// The record of an rmcp stream.
pub(super) fn stream(id: &str) -> RecordKey {
    RecordKey { space: Space::Rmcp, key: hash(b"tenure rmcp stream\0", &[id.as_bytes()]) }
}

/// A new, unused key for the log of a stream.
///
/// A stream that expired and comes back under the same id gets a new key. Event ids contain the key, so they never
/// repeat, even if an engine counts positions from the start again, and they cannot be guessed.
pub(super) fn fresh_log(stream: RecordKey) -> SessionKey {
    let mut random = [0; 16];
    getrandom::fill(&mut random).expect("the operating system provides randomness");
    hash(b"tenure rmcp log\0", &[stream.key.as_bytes(), &random])
}

fn hash(prefix: &[u8], parts: &[&[u8]]) -> SessionKey {
    let digest = parts.iter().fold(Sha256::new_with_prefix(prefix), |hash, part| hash.chain_update(part));
    let mut key = [0; 16];
    key.copy_from_slice(&digest.finalize()[..16]);
    SessionKey::from_bytes(key)
}

/// Names an event by the log it is in and its position there: `<32 hex digits>-<hex position>`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct EventName {
    pub(super) log: SessionKey,
    pub(super) position: Position,
}

impl EventName {
    /// Reads exactly what `Display` writes; any other text is not an id of this store.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (log, position) = text.split_once('-')?;
        let log = u128::from_str_radix(log, 16).ok()?.to_be_bytes();
        let position = Position(u64::from_str_radix(position, 16).ok()?);
        let name = Self { log: SessionKey::from_bytes(log), position };
        // No event is at position 0. Signs, capitals and other lengths would parse as numbers too.
        (position > Position::START && name.to_string() == text).then_some(name)
    }
}

impl fmt::Display for EventName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}-{:x}", u128::from_be_bytes(*self.log.as_bytes()), self.position.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_session::id::SessionId;

    #[test]
    fn kinds_of_names_never_meet() {
        let id = SessionId::random();
        let text = id.expose();
        let keys = [id.key(), session(&text).key, stream(&text).key, fresh_log(stream(&text))];
        for (index, key) in keys.iter().enumerate() {
            assert!(!keys[..index].contains(key), "{keys:?}");
        }
        assert_eq!(stream(&text), stream(&text));
        assert_ne!(fresh_log(stream(&text)), fresh_log(stream(&text)));
    }

    #[test]
    fn an_event_id_is_read_back_and_nothing_else_is() {
        let name = EventName { log: SessionKey::from_bytes([0x0a; 16]), position: Position(0x1f) };
        let text = name.to_string();
        assert_eq!(text, "0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a-1f");
        assert_eq!(EventName::parse(&text), Some(name));
        let last = EventName { position: Position(u64::MAX), ..name };
        assert_eq!(EventName::parse(&last.to_string()), Some(last));
        let log = &text[..32];
        for bad in [
            String::new(),
            "0".to_owned(),
            "-".to_owned(),
            log.to_owned(),
            format!("{log}-"),
            format!("{log}-0"),
            format!("{log}-01f"),
            format!("{log}-+1f"),
            format!("{log}-1F"),
            format!("{log}-1f-"),
            format!("{log}-1f "),
            format!("{log}-1ffffffffffffffff"),
            format!("0{log}-1f"),
            format!("{}-1f", &log[1..]),
            format!("+{}-1f", &log[1..]),
            format!("{}-1f", log.to_uppercase()),
        ] {
            assert_eq!(EventName::parse(&bad), None, "{bad}");
        }
    }
}
