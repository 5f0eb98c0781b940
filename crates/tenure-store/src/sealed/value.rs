//! One sealed value: its bytes, and the data it is bound to.
//!
//! A format byte, the id of the key (4 bytes), a random nonce (24), the ciphertext and its tag (16). Every value gets a
//! new random nonce; with 192 bits, two values under one key never have the same. The place of a value is authenticated
//! with it, so a value that is moved to another record, session or stream does not open there. Sealing adds the same
//! [`OVERHEAD`] to every value, also to an empty one, so byte bounds can be converted exactly.

use bytes::{Buf, Bytes, BytesMut};
use chacha20poly1305::{AeadInOut, Tag, XNonce};
use tenure_session::id::{SessionKey, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{EntryPlace, RecordKey, Space, StoreError};

use super::keys::{KeyId, SealKeys};

const FORMAT: u8 = 1;
const ID: usize = 4;
const NONCE: usize = 24;
const TAG: usize = 16;
const HEAD: usize = 1 + ID + NONCE;

/// Bytes that sealing adds to a value.
pub(super) const OVERHEAD: usize = HEAD + TAG;

/// The place of a value, which is bound to it. It has everything that is known before sealing and stored beside the
/// value. It cannot have versions and positions, which the engine gives out afterwards.
#[derive(Clone, Copy, Debug)]
pub(super) enum ValueBinding {
    Record { key: RecordKey, deadline: Option<Time> },
    Event { session: SessionKey, stream: StreamId, place: EntryPlace, at: Time },
    Note { session: SessionKey, stream: StreamId },
}

/// Why a value does not open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unopened {
    /// None of the keys has this id.
    MissingKey(KeyId),
    /// The key is there, but the value or its place was changed.
    Changed(KeyId),
    /// It does not have the form of a sealed value.
    NotSealed,
}

impl ValueBinding {
    /// The associated data: a word, then fields of fixed length, so that no two places have the same bytes.
    fn bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64);
        match self {
            Self::Record { key, deadline } => {
                bytes.extend_from_slice(b"tenure record\0");
                bytes.push(space_number(key.space));
                bytes.extend_from_slice(key.key.as_bytes());
                bytes.push(u8::from(deadline.is_some()));
                bytes.extend_from_slice(&deadline.unwrap_or_default().0.to_be_bytes());
            }
            Self::Event { session, stream, place, at } => {
                bytes.extend_from_slice(b"tenure event\0");
                bytes.extend_from_slice(session.as_bytes());
                bytes.extend_from_slice(&stream.number().to_be_bytes());
                bytes.push(match place {
                    EntryPlace::Middle => 0,
                    EntryPlace::End => 1,
                    EntryPlace::Note => 2,
                });
                bytes.extend_from_slice(&at.0.to_be_bytes());
            }
            Self::Note { session, stream } => {
                bytes.extend_from_slice(b"tenure note\0");
                bytes.extend_from_slice(session.as_bytes());
                bytes.extend_from_slice(&stream.number().to_be_bytes());
            }
        }
        bytes
    }
}

impl std::fmt::Display for ValueBinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Record { key, .. } => write!(f, "the record {}", key.key.label()),
            Self::Event { session, stream, .. } => {
                write!(f, "an event of {}, stream {}", session.label(), stream.number())
            }
            Self::Note { session, stream } => {
                write!(f, "the note of {}, stream {}", session.label(), stream.number())
            }
        }
    }
}

/// Part of sealed values, so these numbers must never change.
fn space_number(space: Space) -> u8 {
    match space {
        Space::Session => 1,
        Space::Store => 2,
        Space::State => 3,
        Space::Rmcp => 16,
        Space::Task => 17,
        Space::Call => 18,
        Space::Principal => 19,
        Space::Quota => 20,
        // The port may add spaces; a test checks that every space has its own number here.
        _ => 0,
    }
}

/// Seals a value with the first key.
pub(super) fn seal(keys: &SealKeys, binding: ValueBinding, plain: &[u8]) -> Result<Bytes, StoreError> {
    let mut nonce = [0; NONCE];
    getrandom::fill(&mut nonce).map_err(|error| {
        StoreError::Unavailable(format!("the operating system gives no randomness: {error}"))
    })?;
    let key = keys.newest();
    let mut sealed = Vec::with_capacity(OVERHEAD + plain.len());
    sealed.push(FORMAT);
    sealed.extend_from_slice(&key.id().0);
    sealed.extend_from_slice(&nonce);
    sealed.extend_from_slice(plain);
    let tag = key
        .cipher()
        .encrypt_inout_detached(&XNonce::from(nonce), &binding.bytes(), (&mut sealed[HEAD..]).into())
        .map_err(|_| StoreError::TooLarge)?;
    sealed.extend_from_slice(&tag);
    Ok(sealed.into())
}

/// Opens a value with the key that sealed it.
pub(super) fn open(keys: &SealKeys, binding: ValueBinding, sealed: Bytes) -> Result<Bytes, Unopened> {
    let id = key_id(&sealed)?;
    let (nonce, tag) = (&sealed[1 + ID..HEAD], &sealed[sealed.len() - TAG..]);
    let (Ok(nonce), Ok(tag)) = (XNonce::try_from(nonce), Tag::try_from(tag)) else {
        return Err(Unopened::NotSealed);
    };
    let bound = binding.bytes();
    // Decrypts in place if the bytes have no other owner, as with values fresh from a disk; otherwise copies.
    let mut value = BytesMut::from(sealed);
    value.advance(HEAD);
    value.truncate(value.len() - TAG);
    let mut outcome = Unopened::MissingKey(id);
    // Two keys may share a short id. The tag is checked first, so a wrong key does not change the bytes.
    for key in keys.all().filter(|key| key.id() == id) {
        match key.cipher().decrypt_inout_detached(&nonce, &bound, value.as_mut().into(), &tag) {
            Ok(()) => return Ok(value.freeze()),
            Err(_) => outcome = Unopened::Changed(id),
        }
    }
    Err(outcome)
}

/// The id of the key that a value was sealed with.
pub(super) fn key_id(sealed: &[u8]) -> Result<KeyId, Unopened> {
    match sealed {
        [FORMAT, a, b, c, d, ..] if sealed.len() >= OVERHEAD => Ok(KeyId([*a, *b, *c, *d])),
        _ => Err(Unopened::NotSealed),
    }
}

impl Unopened {
    /// Converts to an error for callers of the store, which names the value.
    pub(super) fn of(self, binding: ValueBinding) -> StoreError {
        StoreError::Unavailable(match self {
            Self::MissingKey(id) => format!("{binding} is sealed with key {id}, which is not among the keys"),
            Self::Changed(id) => format!("{binding} was changed after it was sealed with key {id}"),
            Self::NotSealed => format!("{binding} is not sealed, or by another version"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> SealKeys {
        SealKeys::parse(&super::super::keys::generate()).unwrap()
    }

    fn session(number: u8) -> SessionKey {
        SessionKey::from_bytes([number; 16])
    }

    /// Every kind of place; no two are the same.
    fn kinds() -> Vec<ValueBinding> {
        let mut kinds = Vec::new();
        for (number, stream) in [(1, 0), (1, 1), (2, 0)] {
            let (session, stream) = (session(number), StreamId::new(stream));
            kinds.push(ValueBinding::Note { session, stream });
            for place in [EntryPlace::Note, EntryPlace::Middle, EntryPlace::End] {
                for at in [Time(0), Time(1)] {
                    kinds.push(ValueBinding::Event { session, stream, place, at });
                }
            }
        }
        for space in Space::ALL {
            for number in [1, 2] {
                let key = RecordKey { space, key: session(number) };
                for deadline in [None, Some(Time(0)), Some(Time(1))] {
                    kinds.push(ValueBinding::Record { key, deadline });
                }
            }
        }
        kinds
    }

    #[test]
    fn a_value_opens_as_what_it_was_sealed_as_and_as_nothing_else() {
        let keys = keys();
        for (index, binding) in kinds().into_iter().enumerate() {
            let sealed = seal(&keys, binding, b"plain").unwrap();
            for (other, claimed) in kinds().into_iter().enumerate() {
                let opened = open(&keys, claimed, sealed.clone());
                let expected = match index == other {
                    true => Ok(Bytes::from_static(b"plain")),
                    false => Err(Unopened::Changed(keys.id())),
                };
                assert_eq!(opened, expected, "{binding:?} as {claimed:?}");
            }
        }
    }

    #[test]
    fn no_byte_of_a_value_can_be_changed_or_left_out() {
        let keys = keys();
        let binding = ValueBinding::Note { session: session(1), stream: StreamId::new(0) };
        for plain in [&b""[..], b"some plain text"] {
            let sealed = seal(&keys, binding, plain).unwrap();
            assert_eq!(sealed.len(), plain.len() + OVERHEAD);
            for index in 0..sealed.len() {
                let mut changed = sealed.to_vec();
                changed[index] ^= 1;
                assert!(open(&keys, binding, changed.into()).is_err(), "byte {index}");
                assert!(open(&keys, binding, sealed.slice(..index)).is_err(), "the first {index} bytes");
            }
        }
    }

    #[test]
    fn the_same_value_is_never_sealed_the_same_way() {
        let keys = keys();
        let binding = ValueBinding::Note { session: session(1), stream: StreamId::new(0) };
        let (one, two) = (seal(&keys, binding, b"same").unwrap(), seal(&keys, binding, b"same").unwrap());
        assert_ne!(one[1 + ID..HEAD], two[1 + ID..HEAD]);
        assert_ne!(one[HEAD..], two[HEAD..]);
    }

    #[test]
    fn opening_a_value_leaves_other_holders_of_its_bytes_alone() {
        // A memory store returns the same bytes that it keeps, so they must not be decrypted in place.
        let keys = keys();
        let binding = ValueBinding::Note { session: session(1), stream: StreamId::new(0) };
        let kept = seal(&keys, binding, b"plain").unwrap();
        for _ in 0..2 {
            assert_eq!(open(&keys, binding, kept.clone()), Ok(Bytes::from_static(b"plain")));
        }
    }
}
