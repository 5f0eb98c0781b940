//! The secret half of a key: `tnr_`, 43 random letters and digits, and a checksum of six.
//!
//! The prefix lets scanners find keys in places where they should not be; the checksum lets us tell a key that was cut off
//! or mistyped from one that was revoked, without a look-up.

use std::fmt;

use ring::digest::{SHA256, digest};

const PREFIX: &str = "tnr_";
const RANDOM: usize = 43;
const CHECK: usize = 6;
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A key, shown once when it is made.
#[derive(Clone, PartialEq, Eq)]
pub struct KeySecret(String);

impl KeySecret {
    /// A new secret from the randomness of the operating system.
    pub(crate) fn random() -> Result<Self, getrandom::Error> {
        let mut text = String::from(PREFIX);
        while text.len() < PREFIX.len() + RANDOM {
            let mut bytes = [0_u8; 64];
            getrandom::fill(&mut bytes)?;
            // 248 is the largest multiple of 62 in a byte: the rest would make some digits more frequent.
            let digits = bytes.iter().filter(|&&byte| byte < 248).map(|&byte| digit(u32::from(byte)));
            text.extend(digits.take(PREFIX.len() + RANDOM - text.len()));
        }
        text.push_str(&checksum(&text));
        Ok(Self(text))
    }

    /// The secret, to be given to the one who uses it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for KeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tnr_…")
    }
}

/// Whether a text looks like a key.
pub(crate) fn is_key(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// The hash by which a key is kept. `None` if the text is no key.
pub(crate) fn hash(text: &str) -> Option<[u8; 32]> {
    let body = text.len().checked_sub(CHECK).and_then(|end| text.get(..end))?;
    if !is_key(text) || text.len() != PREFIX.len() + RANDOM + CHECK || checksum(body) != text[body.len()..] {
        return None;
    }
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    Some(hash)
}

/// CRC-32 in base 62. It guards against slips, and against nothing else.
fn checksum(text: &str) -> String {
    let mut crc = u32::MAX;
    for &byte in text.as_bytes() {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    let mut rest = !crc;
    let mut text = [' '; CHECK];
    for place in text.iter_mut().rev() {
        *place = digit(rest);
        rest /= 62;
    }
    text.iter().collect()
}

fn digit(number: u32) -> char {
    char::from(DIGITS[(number % 62) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_random_and_checks_itself() {
        let (one, other) = (KeySecret::random().unwrap(), KeySecret::random().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.expose().len(), 53);
        assert!(hash(one.expose()).is_some());
        assert!(!format!("{one:?}").contains(&one.expose()[4..]));
        let text = one.expose();
        let mut typo = text.to_owned().into_bytes();
        typo[10] = if typo[10] == b'a' { b'b' } else { b'a' };
        let typo = String::from_utf8(typo).unwrap();
        for bad in [&text[..52], &text[1..], &format!("{text}0"), &typo, "tnr_", "", "tnr_ä"] {
            assert_eq!(hash(bad), None, "{bad}");
        }
    }
}
