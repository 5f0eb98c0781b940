//! The names of things: sessions, streams, events, nodes and principals.
//!
//! Every id is a newtype that parses strictly. A session id is a secret, so its `Debug` and the label
//! used in logs are made from its hash; stores see only that hash ([`SessionKey`]).

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use sha2::{Digest, Sha256};

/// The secret name of a session: 128 random bits, 32 lower-case hex digits on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId([u8; 16]);

impl SessionId {
    /// Draws a fresh id from the operating system.
    ///
    /// # Panics
    /// When the operating system has no randomness to give; nothing safe can be done without it.
    pub fn random() -> Self {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the operating system provides randomness");
        Self(bytes)
    }

    /// Reads the 32 hex digits of the wire form. `None` for any other text.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text: &[u8; 32] = text.try_into().ok()?;
        let mut bytes = [0; 16];
        for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            *byte = (hex_digit(pair[0])? << 4) | hex_digit(pair[1])?;
        }
        Some(Self(bytes))
    }

    /// The wire form. Only the owner of the session may get it.
    pub fn expose(&self) -> String {
        hex(&self.0)
    }

    /// An id from its bits.
    pub(crate) const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bits.
    pub(crate) const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// The session's key in stores.
    pub fn key(&self) -> SessionKey {
        let digest = Sha256::new().chain_update(b"tenure session\0").chain_update(self.0).finalize();
        let mut key = [0; 16];
        key.copy_from_slice(&digest[..16]);
        SessionKey(key)
    }

    /// The key in stores of a record of this owner at this endpoint. The same secret gives another key for another
    /// owner or another endpoint. `kind` separates the keys of different kinds of records.
    pub(crate) fn key_of_owner(&self, kind: &[u8], owner: &Principal, route: &Route) -> SessionKey {
        let mut hash = Sha256::new().chain_update(kind).chain_update(self.0);
        // Each text is prefixed with its presence and length, so that different pairs never hash the same bytes.
        for text in [owner.name(), route.name()] {
            hash.update([u8::from(text.is_some())]);
            let text = text.unwrap_or_default();
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text);
        }
        let mut key = [0; 16];
        key.copy_from_slice(&hash.finalize()[..16]);
        SessionKey(key)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({})", self.key().label())
    }
}

/// The hash of a session id: safe to store, to log and to show to operators.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey([u8; 16]);

impl SessionKey {
    /// A key from its bytes, as read back from a store.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The key's bytes, as written to a store.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// A copy of the key's bytes.
    pub(crate) const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// Reads 32 hex digits.
    pub fn parse(text: &str) -> Option<Self> {
        SessionId::parse(text.as_bytes()).map(|bits| Self(bits.0))
    }

    /// The key as 32 hex digits.
    pub fn hex(&self) -> String {
        hex(&self.0)
    }

    /// A short name for logs, such as `s-4f3a9c01`.
    pub fn label(&self) -> String {
        format!("s-{}", hex(&self.0[..4]))
    }

    /// The part of every event id that ties it to this session.
    pub(crate) fn event_tag(&self) -> u32 {
        u32::from_be_bytes([self.0[12], self.0[13], self.0[14], self.0[15]])
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label())
    }
}

/// A stream's number within its session. The standalone stream is number 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct StreamId(u32);

impl StreamId {
    /// The stream that GET opens.
    pub const STANDALONE: Self = Self(0);

    /// A stream by its number.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The stream's number.
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// A position in a session's event log. Positions grow and have gaps; 0 is before the first event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Position(pub u64);

impl Position {
    /// Before the first event of any stream.
    pub const START: Self = Self(0);
}

/// The identity of a caller, from verified credentials: a user, and the client that acts for it.
///
/// Two principals are equal if they are the same user, because data sessions, tasks and quotas belong to users. A transport
/// session belongs to user and client: [`Principal::is_same_client`] compares both.
#[derive(Clone)]
pub struct Principal {
    name: Option<Arc<str>>,
    client: Option<Arc<str>>,
}

impl Principal {
    /// The caller when no authentication is configured.
    pub const ANONYMOUS: Self = Self { name: None, client: None };

    /// A user with this name, through no client in particular.
    pub fn named(name: &str) -> Self {
        Self { name: Some(name.into()), client: None }
    }

    /// The user and the client that verified credentials name.
    pub fn verified(name: Arc<str>, client: Option<Arc<str>>) -> Self {
        Self { name: Some(name), client }
    }

    /// The principal that a record names.
    pub(crate) fn recorded(name: Option<&str>, client: Option<&str>) -> Self {
        Self { name: name.map(Arc::from), client: client.map(Arc::from) }
    }

    /// The name, if the caller has one.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The client that acts for the user, if the credentials name one.
    pub fn client(&self) -> Option<&str> {
        self.client.as_deref()
    }

    /// Whether it is the same user through the same client.
    pub fn is_same_client(&self, other: &Self) -> bool {
        self == other && self.client == other.client
    }
}

impl PartialEq for Principal {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Principal {}

impl Hash for Principal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name().unwrap_or("anonymous"))
    }
}

/// The endpoint of a process that a session belongs to. It decides which server the session uses.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Route(Option<Arc<str>>);

impl Route {
    /// The endpoint that needs no name.
    pub const MAIN: Self = Self(None);

    /// An endpoint with a name.
    pub fn named(name: &str) -> Self {
        Self(Some(name.into()))
    }

    /// The name, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl From<Option<&str>> for Route {
    fn from(name: Option<&str>) -> Self {
        Self(name.map(Into::into))
    }
}

/// A running Tenure process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId([u8; 8]);

impl NodeId {
    /// Draws a fresh name for this process.
    ///
    /// # Panics
    /// When the operating system has no randomness to give.
    pub fn random() -> Self {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).expect("the operating system provides randomness");
        Self(bytes)
    }

    /// A node's name as read back from a store.
    pub const fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(bytes)
    }

    /// A node's name as written to a store.
    pub const fn as_bytes(&self) -> &[u8; 8] {
        &self.0
    }

    /// Reads 16 hex digits.
    pub fn parse(text: &str) -> Option<Self> {
        let is_name = text.len() == 16;
        hex_number(text.as_bytes()).filter(|_| is_name).map(|number| Self(number.to_be_bytes()))
    }

    /// The name as 16 hex digits.
    pub fn hex(&self) -> String {
        hex(&self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n-{}", hex(&self.0))
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

pub(crate) fn hex_number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 16 {
        return None;
    }
    text.iter().try_fold(0u64, |number, digit| Some((number << 4) | u64::from(hex_digit(*digit)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_id_survives_its_wire_form_and_hides_in_debug() {
        let id = SessionId::random();
        let text = id.expose();
        assert_eq!(text.len(), 32);
        assert_eq!(SessionId::parse(text.as_bytes()), Some(id));
        assert!(!format!("{id:?}").contains(&text[..6]));
        for bad in
            ["", "abc", &text[..31], &text.to_uppercase().replace(char::is_numeric, "A"), &format!("{text}0")]
        {
            assert_eq!(SessionId::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
