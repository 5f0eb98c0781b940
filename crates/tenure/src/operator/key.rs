//! How people name a session: by its key, the first digits of it, or the label that logs show.
//!
//! A key is a hash of the session's secret id, so it may be shown and typed. The label is `s-` and the key's
//! first eight digits.

use tenure_session::SessionKey;

/// Digits of a whole key.
const DIGITS: usize = 32;

/// The whole key in hex.
pub(crate) fn key_text(key: &SessionKey) -> String {
    format!("{:032x}", u128::from_be_bytes(*key.as_bytes()))
}

/// Reads a whole key.
pub(crate) fn parse_key(text: &str) -> Option<SessionKey> {
    Prefix::parse(text).filter(|prefix| prefix.0.len() == DIGITS).map(|prefix| prefix.lowest())
}

/// The first digits of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Prefix(String);

impl Prefix {
    /// Reads digits, or a label or the first letters of one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("s-").unwrap_or(text);
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        (is_hex && (1..=DIGITS).contains(&digits.len())).then(|| Self(digits.to_ascii_lowercase()))
    }

    /// All digits of a key.
    pub(crate) fn of(key: &SessionKey) -> Self {
        Self(key_text(key))
    }

    /// The digits.
    pub(crate) fn digits(&self) -> &str {
        &self.0
    }

    /// The key just below the first key with this prefix, for a list that begins after a key.
    pub(crate) fn before(&self) -> Option<SessionKey> {
        let lowest = u128::from_be_bytes(*self.lowest().as_bytes());
        lowest.checked_sub(1).map(|before| SessionKey::from_bytes(before.to_be_bytes()))
    }

    fn lowest(&self) -> SessionKey {
        let padded = format!("{:0<DIGITS$}", self.0);
        let number = u128::from_str_radix(&padded, 16).expect("32 hex digits are a number");
        SessionKey::from_bytes(number.to_be_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_named_by_its_key_its_label_or_the_first_digits() {
        let key = SessionKey::from_bytes(*b"\x4f\x3a\x9c\x01 any other .");
        let text = key_text(&key);
        assert!(text.starts_with("4f3a9c01") && text.len() == 32);
        assert_eq!(parse_key(&text), Some(key));
        for name in [&text, "4", "4f3", &key.label(), "s-4f3a", "4F3A9C01"] {
            let prefix = Prefix::parse(name).unwrap();
            assert!(text.starts_with(prefix.digits()), "{name}");
            assert!(prefix.before().is_some_and(|before| before < key), "{name}");
        }
        assert_eq!(Prefix::of(&key).digits(), text);
        for bad in ["", "s-", "4g", "s-s-4f", &format!("{text}0")] {
            assert_eq!(Prefix::parse(bad), None, "{bad}");
        }
        assert_eq!(parse_key("4f3a9c01"), None, "a key is whole");
    }

    #[test]
    fn nothing_comes_before_the_first_key() {
        assert_eq!(Prefix::parse("0").unwrap().before(), None);
        let lowest = SessionKey::from_bytes([0; 16]);
        let second = Prefix::parse(&format!("{:032x}", 1)).unwrap();
        assert_eq!(second.before(), Some(lowest));
    }
}
