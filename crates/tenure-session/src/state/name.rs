//! The names of states: a data session's id, and a handle.
//!
//! Both encode the same 128 random bits, as `sess-<32 hex digits>` and `<kind>_<22 characters of base64url>`. The key
//! in the store is a hash of the bits and their owner, so that a name is useless to another principal.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::id::{Principal, SessionId, SessionKey};

/// The prefix of a data session's id.
const COOKIE: &str = "sess-";

/// The bytes of a key that identify the owner; the other bytes identify the state.
const OWNER_BYTES: usize = 6;

/// The kind of a state, such as `basket`. Handles begin with it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct StateKind(Box<str>);

impl StateKind {
    /// A kind with this name: up to 32 characters of `a-z`, `0-9` and `_`, the first one a letter.
    pub fn new(name: &str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
        (begins && name.len() <= 32 && name.bytes().all(plain)).then(|| Self(name.into()))
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The bits that name a state. They are a secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct StateId([u8; 16]);

impl StateId {
    /// Draws fresh bits from the operating system.
    pub fn random() -> Self {
        Self(SessionId::random().to_bytes())
    }

    /// Reads the id of a data session.
    pub fn from_cookie(text: &str) -> Option<Self> {
        let bits = SessionId::parse(text.strip_prefix(COOKIE)?.as_bytes())?;
        Some(Self(bits.to_bytes()))
    }

    /// Reads a handle of that kind.
    pub fn from_handle(kind: &StateKind, text: &str) -> Option<Self> {
        let bits = text.strip_prefix(kind.as_str())?.strip_prefix('_')?;
        Some(Self(URL_SAFE_NO_PAD.decode(bits).ok()?.try_into().ok()?))
    }

    /// The id of a data session. Only its owner may get it.
    pub fn cookie(&self) -> String {
        COOKIE.to_owned() + &SessionId::from_bytes(self.0).expose()
    }

    /// The handle. Only its owner may get it.
    pub fn handle(&self, kind: &StateKind) -> String {
        format!("{}_{}", kind.as_str(), URL_SAFE_NO_PAD.encode(self.0))
    }

    pub(super) const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// Its key in stores. Keys of one owner's states are adjacent.
    pub fn key(&self, owner: &Principal) -> SessionKey {
        let mut key = first_key(owner).to_bytes();
        let digest = Sha256::new()
            .chain_update(b"tenure state\0")
            .chain_update(self.0)
            .chain_update(owner.name().unwrap_or_default())
            .chain_update([u8::from(owner.name().is_some())])
            .finalize();
        key[OWNER_BYTES..].copy_from_slice(&digest[..16 - OWNER_BYTES]);
        SessionKey::from_bytes(key)
    }
}

/// A key that is lower than the keys of all states of an owner.
pub(super) fn first_key(owner: &Principal) -> SessionKey {
    let mut key = [0; 16];
    if let Some(name) = owner.name() {
        let digest = Sha256::new().chain_update(b"tenure owner\0").chain_update(name).finalize();
        key[..OWNER_BYTES].copy_from_slice(&digest[..OWNER_BYTES]);
    }
    SessionKey::from_bytes(key)
}

/// Whether a key may belong to a state of that owner.
pub(super) fn is_of(key: &SessionKey, owner: &Principal) -> bool {
    key.as_bytes()[..OWNER_BYTES] == first_key(owner).as_bytes()[..OWNER_BYTES]
}

impl fmt::Debug for StateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StateId(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_names_spell_the_same_state() {
        let (kind, id) = (StateKind::new("basket").unwrap(), StateId::random());
        assert_eq!(StateId::from_cookie(&id.cookie()), Some(id));
        assert_eq!(StateId::from_handle(&kind, &id.handle(&kind)), Some(id));
        assert_eq!(id.handle(&kind).len(), "basket_".len() + 22);
        assert_eq!(StateId::from_handle(&StateKind::new("bask").unwrap(), &id.handle(&kind)), None);
    }

    #[test]
    fn what_is_not_a_name_is_none() {
        let kind = StateKind::new("basket").unwrap();
        for text in ["", "sess-", "sess-f1792e8e1bda", "basket_", "basket_AAAA", "sess-ZZ"] {
            assert_eq!(StateId::from_cookie(text), None, "{text}");
            assert_eq!(StateId::from_handle(&kind, text), None, "{text}");
        }
        for name in ["", "Basket", "9lives", "a-b", "a b", &"a".repeat(33)] {
            assert_eq!(StateKind::new(name), None, "{name}");
        }
    }

    #[test]
    fn a_name_leads_elsewhere_for_another_owner() {
        let id = StateId::random();
        let owners =
            [Principal::ANONYMOUS, Principal::named(""), Principal::named("ann"), Principal::named("bob")];
        let keys: std::collections::HashSet<_> = owners.iter().map(|owner| id.key(owner)).collect();
        assert_eq!(keys.len(), owners.len());
        for owner in &owners {
            assert!(is_of(&id.key(owner), owner) && id.key(owner) > first_key(owner));
        }
        assert!(!is_of(&id.key(&owners[2]), &owners[3]));
    }

    #[test]
    fn names_are_not_shown() {
        let id = StateId::random();
        assert_eq!(format!("{id:?}"), "StateId(…)");
    }
}
