//! The keys that a store is sealed with, and the file they come from.
//!
//! A key file has one key per line, as 64 hex digits or as base64 of 32 bytes; empty lines and text after a `#` are
//! ignored. The first key seals, all keys open. To change keys, put the new one first and keep the old one below it
//! until no value is left that it sealed. Keys are wiped from memory when they are dropped. Logs and errors never show
//! a key, only its short id, which is made from a hash.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};
use sha2::{Digest, Sha256};
use zeroize::{Zeroize, Zeroizing};

/// Bytes of a key.
const LENGTH: usize = 32;

/// The name of a key: the start of its hash, so it may be shown.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(pub(super) [u8; 4]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", u32::from_be_bytes(self.0))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}

/// One key; wiped when dropped, by the cipher that holds it.
pub(super) struct SealKey {
    id: KeyId,
    cipher: XChaCha20Poly1305,
}

impl SealKey {
    fn new(bytes: &[u8; LENGTH]) -> Self {
        let digest = Sha256::new().chain_update(b"tenure store key\0").chain_update(bytes).finalize();
        let id = KeyId([digest[0], digest[1], digest[2], digest[3]]);
        Self { id, cipher: XChaCha20Poly1305::new(bytes.into()) }
    }

    pub(super) fn id(&self) -> KeyId {
        self.id
    }

    pub(super) fn cipher(&self) -> &XChaCha20Poly1305 {
        &self.cipher
    }
}

/// The keys of a store: the first seals, all open. Cheap to clone.
#[derive(Clone)]
pub struct SealKeys {
    // Each key has an allocation of its own, because a growing list leaves unwiped copies behind.
    newest: Arc<SealKey>,
    older: Arc<[Arc<SealKey>]>,
}

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFileError {
    /// The file cannot be read.
    #[error("the key file `{}` cannot be read", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// Its content is not a list of keys.
    #[error("the key file `{}` is of no use", path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        cause: KeyError,
    },
}

/// What is wrong with the text of a key file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// A line is not a key.
    #[error("line {line} is not a key: it takes 64 hex digits, or 32 bytes in base64")]
    NotAKey {
        /// Counted from 1.
        line: usize,
    },
    /// No line is a key.
    #[error("there is no key in it")]
    Empty,
}

impl SealKeys {
    /// Reads a key file. Warns if other users may read it.
    ///
    /// # Errors
    /// When it cannot be read, has no key, or has a line that is not a key.
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        let io = |cause| KeyFileError::Io { path: path.to_owned(), cause };
        let bytes = Zeroizing::new(std::fs::read(path).map_err(io)?);
        warn_if_open_to_others(path);
        // Bytes that are not UTF-8 are replaced, so the error names the line that is not a key.
        let text = Zeroizing::new(String::from_utf8_lossy(&bytes).into_owned());
        Self::parse(&text).map_err(|cause| KeyFileError::Content { path: path.to_owned(), cause })
    }

    /// Reads the text of a key file.
    ///
    /// # Errors
    /// When it has no key, or a line that is not a key.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let mut keys = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let key = read_key(line).ok_or(KeyError::NotAKey { line: index + 1 })?;
            keys.push(Arc::new(SealKey::new(&key)));
        }
        let mut keys = keys.into_iter();
        let newest = keys.next().ok_or(KeyError::Empty)?;
        Ok(Self { newest, older: keys.collect() })
    }

    /// The id of the key that seals.
    pub fn id(&self) -> KeyId {
        self.newest.id
    }

    /// The ids of all keys, the one that seals first.
    pub fn ids(&self) -> impl Iterator<Item = KeyId> {
        self.all().map(SealKey::id)
    }

    pub(super) fn newest(&self) -> &SealKey {
        &self.newest
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &SealKey> {
        std::iter::once(&self.newest).chain(self.older.iter()).map(|key| &**key)
    }
}

impl fmt::Debug for SealKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.ids()).finish()
    }
}

/// A fresh key, as a line for a key file.
///
/// # Panics
/// When the operating system provides no randomness; no key is safe without it.
pub fn generate() -> Zeroizing<String> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut key = Zeroizing::new([0; LENGTH]);
    getrandom::fill(key.as_mut_slice()).expect("the operating system provides randomness");
    // Allocated in its final size, because growing would leave copies behind.
    let mut line = Zeroizing::new(String::with_capacity(2 * LENGTH));
    for byte in key.iter() {
        line.push(char::from(DIGITS[usize::from(byte >> 4)]));
        line.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    line
}

fn read_key(text: &str) -> Option<Zeroizing<[u8; LENGTH]>> {
    match text.len() {
        64 => read_hex(text.as_bytes()),
        // With the padding and without.
        43 | 44 => read_base64(text),
        _ => None,
    }
}

fn read_hex(text: &[u8]) -> Option<Zeroizing<[u8; LENGTH]>> {
    let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut key = Zeroizing::new([0; LENGTH]);
    for (byte, pair) in key.iter_mut().zip(text.chunks_exact(2)) {
        *byte = (digit(pair[0])? << 4) | digit(pair[1])?;
    }
    Some(key)
}

fn read_base64(text: &str) -> Option<Zeroizing<[u8; LENGTH]>> {
    const LENIENT: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let engine = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
    // The decoder needs a buffer that is a little larger than a key.
    let mut room = [0; LENGTH + 4];
    let length = engine.decode_slice(text, &mut room).ok();
    let mut key = Zeroizing::new([0; LENGTH]);
    key.copy_from_slice(&room[..LENGTH]);
    room.zeroize();
    (length == Some(LENGTH)).then_some(key)
}

#[cfg(unix)]
fn warn_if_open_to_others(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(path).map(|metadata| metadata.permissions().mode());
    if let Ok(mode) = mode
        && mode & 0o077 != 0
    {
        let mode = format!("{:03o}", mode & 0o777);
        tracing::warn!(
            file = %path.display(),
            %mode,
            "the key file is open to others than its owner; `chmod 600` closes it"
        );
    }
}

#[cfg(not(unix))]
fn warn_if_open_to_others(_: &Path) {}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    const BASE64: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    #[test]
    fn a_key_is_the_same_in_hex_and_in_base64() {
        let id = SealKeys::parse(HEX).unwrap().id();
        // Made from a hash, so it is the same on every machine and in every version.
        assert_eq!(id.to_string(), "32eeb910");
        for text in
            [BASE64, BASE64.trim_end_matches('='), &HEX.to_uppercase(), &format!("  {HEX} # mine\r\n")]
        {
            assert_eq!(SealKeys::parse(text).unwrap().id(), id, "{text}");
        }
    }

    #[test]
    fn the_first_key_seals_and_the_order_stays() {
        let (one, two) = (generate(), generate());
        let text = format!("# keys of the store\n\n{}\n   \n{}\n{HEX} # the oldest\n", *one, *two);
        let id = |line: &str| SealKeys::parse(line).unwrap().id();
        let keys = SealKeys::parse(&text).unwrap();
        assert_eq!(keys.ids().collect::<Vec<_>>(), [id(&one), id(&two), id(HEX)]);
        assert_eq!(keys.id(), id(&one));
    }

    #[test]
    fn a_line_that_is_no_key_is_named() {
        let long = format!("{HEX}0");
        let not_hex = HEX.replace('f', "g");
        let not_ascii = "é".repeat(32);
        let not_base64 = BASE64.replace('A', "!");
        // 33 bytes in base64 have the length of 32 with padding.
        let one_more = "A".repeat(44);
        for bad in ["x", &HEX[..62], &long, &not_hex, &not_ascii, &not_base64, &one_more, &BASE64[..40]] {
            let text = format!("# one\n{HEX}\n{bad}\n");
            assert_eq!(SealKeys::parse(&text).err(), Some(KeyError::NotAKey { line: 3 }), "{bad}");
        }
        for empty in ["", "\n\n", "# nothing\n   # here\n"] {
            assert_eq!(SealKeys::parse(empty).err(), Some(KeyError::Empty));
        }
    }

    #[test]
    fn fresh_keys_differ_and_no_key_is_ever_shown() {
        let (one, two) = (generate(), generate());
        assert_ne!(*one, *two);
        let keys = SealKeys::parse(&one).unwrap();
        assert_eq!(format!("{keys:?}"), format!("[KeyId({})]", keys.id()));
        assert!(!one.contains(&keys.id().to_string()));
    }
}
