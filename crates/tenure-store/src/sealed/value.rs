//! One sealed value: what it looks like, and what it is bound to.
//!
//! A format byte, the id of the key (4 bytes), a random nonce (24), the ciphertext and its tag (16). The nonce is
//! drawn at random for every value; with 192 bits of it no two will ever be the same under one key. What the
//! value belongs to is authenticated with it, so a value that is moved to another record, session or stream
//! does not open there. Every value grows by the same [`OVERHEAD`], the empty one too: that is what lets byte
//! bounds be translated exactly.

use bytes::{Buf, Bytes, BytesMut};
use chacha20poly1305::{AeadInOut, Tag, XNonce};
use tenure_session::id::{SessionKey, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{Place, RecordKey, Space, StoreError};

use super::keys::{KeyId, Keys};

const FORMAT: u8 = 1;
const ID: usize = 4;
const NONCE: usize = 24;
const TAG: usize = 16;
const HEAD: usize = 1 + ID + NONCE;

/// How much longer a value is when it is sealed.
pub(super) const OVERHEAD: usize = HEAD + TAG;

/// What a value belongs to. Everything that was known when it was sealed and is told beside it is bound to it;
/// versions and positions are given by the engine afterwards and are not.
#[derive(Clone, Copy, Debug)]
pub(super) enum Belongs {
    Record { key: RecordKey, deadline: Option<Time> },
    Event { session: SessionKey, stream: StreamId, place: Place, at: Time },
    Note { session: SessionKey, stream: StreamId },
}

/// Why a value does not open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unopened {
    /// None of the keys has this id.
    MissingKey(KeyId),
    /// Its key is there: the value or what it belongs to is not what was sealed.
    Changed(KeyId),
    /// It does not look like a sealed value.
    NotSealed,
}

impl Belongs {
    /// The associated data: a word, then fields of fixed length, so that no two things read the same.
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
                    Place::Middle => 0,
                    Place::End => 1,
                    Place::Note => 2,
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

impl std::fmt::Display for Belongs {
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

/// Written into sealed values, so none of these may ever change.
fn space_number(space: Space) -> u8 {
    match space {
        Space::Session => 1,
        Space::Store => 2,
        Space::State => 3,
        Space::Rmcp => 16,
        Space::Task => 17,
        Space::Call => 18,
        // The port may grow; a test sees to it that every space has a number of its own here.
        _ => 0,
    }
}

/// Seals a value with the first key.
pub(super) fn seal(keys: &Keys, belongs: Belongs, plain: &[u8]) -> Result<Bytes, StoreError> {
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
        .encrypt_inout_detached(&XNonce::from(nonce), &belongs.bytes(), (&mut sealed[HEAD..]).into())
        .map_err(|_| StoreError::TooLarge)?;
    sealed.extend_from_slice(&tag);
    Ok(sealed.into())
}

/// Opens a value with whichever key it was sealed with.
pub(super) fn open(keys: &Keys, belongs: Belongs, sealed: Bytes) -> Result<Bytes, Unopened> {
    let id = key_id(&sealed)?;
    let (nonce, tag) = (&sealed[1 + ID..HEAD], &sealed[sealed.len() - TAG..]);
    let (Ok(nonce), Ok(tag)) = (XNonce::try_from(nonce), Tag::try_from(tag)) else {
        return Err(Unopened::NotSealed);
    };
    let bound = belongs.bytes();
    // In place if nobody else holds the bytes, as with values fresh from a disk; otherwise in a copy.
    let mut value = BytesMut::from(sealed);
    value.advance(HEAD);
    value.truncate(value.len() - TAG);
    let mut outcome = Unopened::MissingKey(id);
    // Ids are short: two keys may share one. The tag is checked first, so a key that is wrong changes nothing.
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
    /// The same for callers of the store, who have to know which value it is.
    pub(super) fn of(self, belongs: Belongs) -> StoreError {
        StoreError::Unavailable(match self {
            Self::MissingKey(id) => format!("{belongs} is sealed with key {id}, which is not among the keys"),
            Self::Changed(id) => format!("{belongs} was changed after it was sealed with key {id}"),
            Self::NotSealed => format!("{belongs} is not sealed, or by another version"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keys {
        Keys::parse(&super::super::keys::generate()).unwrap()
    }

    fn session(number: u8) -> SessionKey {
        SessionKey::from_bytes([number; 16])
    }

    /// Values of every kind, of which no two belong to the same.
    fn kinds() -> Vec<Belongs> {
        let mut kinds = Vec::new();
        for (number, stream) in [(1, 0), (1, 1), (2, 0)] {
            let (session, stream) = (session(number), StreamId::new(stream));
            kinds.push(Belongs::Note { session, stream });
            for place in [Place::Note, Place::Middle, Place::End] {
                for at in [Time(0), Time(1)] {
                    kinds.push(Belongs::Event { session, stream, place, at });
                }
            }
        }
        for space in Space::ALL {
            for number in [1, 2] {
                let key = RecordKey { space, key: session(number) };
                for deadline in [None, Some(Time(0)), Some(Time(1))] {
                    kinds.push(Belongs::Record { key, deadline });
                }
            }
        }
        kinds
    }

    #[test]
    fn a_value_opens_as_what_it_was_sealed_as_and_as_nothing_else() {
        let keys = keys();
        for (index, belongs) in kinds().into_iter().enumerate() {
            let sealed = seal(&keys, belongs, b"plain").unwrap();
            for (other, claimed) in kinds().into_iter().enumerate() {
                let opened = open(&keys, claimed, sealed.clone());
                let expected = match index == other {
                    true => Ok(Bytes::from_static(b"plain")),
                    false => Err(Unopened::Changed(keys.id())),
                };
                assert_eq!(opened, expected, "{belongs:?} as {claimed:?}");
            }
        }
    }

    #[test]
    fn no_byte_of_a_value_can_be_changed_or_left_out() {
        let keys = keys();
        let belongs = Belongs::Note { session: session(1), stream: StreamId::new(0) };
        for plain in [&b""[..], b"some plain text"] {
            let sealed = seal(&keys, belongs, plain).unwrap();
            assert_eq!(sealed.len(), plain.len() + OVERHEAD);
            for index in 0..sealed.len() {
                let mut changed = sealed.to_vec();
                changed[index] ^= 1;
                assert!(open(&keys, belongs, changed.into()).is_err(), "byte {index}");
                assert!(open(&keys, belongs, sealed.slice(..index)).is_err(), "the first {index} bytes");
            }
        }
    }

    #[test]
    fn the_same_value_is_never_sealed_the_same_way() {
        let keys = keys();
        let belongs = Belongs::Note { session: session(1), stream: StreamId::new(0) };
        let (one, two) = (seal(&keys, belongs, b"same").unwrap(), seal(&keys, belongs, b"same").unwrap());
        assert_ne!(one[1 + ID..HEAD], two[1 + ID..HEAD]);
        assert_ne!(one[HEAD..], two[HEAD..]);
    }

    #[test]
    fn whoever_holds_the_sealed_bytes_keeps_them_sealed() {
        // A store in memory gives out the very bytes it keeps: they must not be opened in place.
        let keys = keys();
        let belongs = Belongs::Note { session: session(1), stream: StreamId::new(0) };
        let kept = seal(&keys, belongs, b"plain").unwrap();
        for _ in 0..2 {
            assert_eq!(open(&keys, belongs, kept.clone()), Ok(Bytes::from_static(b"plain")));
        }
    }
}
