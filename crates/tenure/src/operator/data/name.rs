//! How people name a data session: by the name that logs show, its key, or one of its secret names.
//!
//! The name in logs is `d-` and the last eight digits of the key; the first digits belong to the owner.

use tenure_session::SessionKey;
use tenure_session::state::{StateId, StateKind};

use crate::operator::key::{key_text, parse_key};

/// Digits of a name in logs.
const DIGITS: usize = 8;

/// Letters of a handle after its kind: an underscore and 128 bits in base64.
const HANDLE_END: usize = 23;

/// A name of a data session, as a person types it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum DataName {
    /// Its key.
    Key(SessionKey),
    /// The beginning of its name in logs.
    Label(String),
}

impl DataName {
    /// Reads a key, or a name in logs or the beginning of one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if let Some(key) = parse_key(text) {
            return Some(Self::Key(key));
        }
        let digits = text.strip_prefix("d-").unwrap_or(text);
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let is_label = is_hex && (1..=DIGITS).contains(&digits.len());
        is_label.then(|| Self::Label(format!("d-{}", digits.to_ascii_lowercase())))
    }

    /// The name as text, which [`parse`](Self::parse) reads again.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Key(key) => key_text(key),
            Self::Label(label) => label.clone(),
        }
    }
}

/// Reads the id or the handle of a data session. Both are secrets: pass them on only where they are needed.
pub(crate) fn parse_secret(text: &str) -> Option<StateId> {
    let handle = || {
        let (kind, _) = text.split_at_checked(text.len().checked_sub(HANDLE_END)?)?;
        StateId::from_handle(&StateKind::new(kind)?, text)
    };
    StateId::from_cookie(text).or_else(handle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_session_is_named_by_its_label_its_key_its_id_or_its_handle() {
        let key = "0000000000004f3a9c010203aabbccdd";
        assert_eq!(DataName::parse(key), parse_key(key).map(DataName::Key));
        for (text, label) in [("d-aabbccdd", "d-aabbccdd"), ("AABB", "d-aabb"), ("d-a", "d-a")] {
            assert_eq!(DataName::parse(text), Some(DataName::Label(label.to_owned())), "{text}");
            assert_eq!(DataName::Label(label.to_owned()).text(), label);
        }
        let (id, kind) = (StateId::random(), StateKind::new("to_do").expect("a kind"));
        for secret in [id.cookie(), id.handle(&kind)] {
            assert_eq!((parse_secret(&secret), DataName::parse(&secret)), (Some(id), None), "{secret}");
        }
        for bad in ["", "d-", "s-aabbccdd", "aabbccdde", "d-aabbccdde", "basket_AAAA", "żółw", "sess-12"] {
            assert_eq!((DataName::parse(bad), parse_secret(bad)), (None, None), "{bad}");
        }
    }
}
