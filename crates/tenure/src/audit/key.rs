//! The key of the audit log: it signs heads, and hides arguments behind a digest.
//!
//! The file holds 64 hex digits. Both keys are derived from them. If there is no file yet and no log either, one is made that
//! only its owner can read; a log proves little without its key, so a log whose key is gone is an error.

use std::fmt;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair};

use super::record::{hex, unhex};
use crate::failure::Failure;

/// Signs heads and digests arguments.
pub(super) struct AuditKey {
    pair: Ed25519KeyPair,
    digests: hmac::Key,
    public: Box<str>,
}

impl fmt::Debug for AuditKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditKey").field("public", &self.public).finish_non_exhaustive()
    }
}

/// The default place of the key of a log.
pub(crate) fn default_place(log: &Path) -> PathBuf {
    let mut name = log.as_os_str().to_owned();
    name.push(".key");
    name.into()
}

impl AuditKey {
    /// Reads the key, or makes it for a log that does not exist yet.
    pub(super) fn open(place: &Path, log_exists: bool) -> Result<Self, Failure> {
        let what = || Failure::new(format!("cannot use the key of the audit log, `{}`", place.display()));
        match std::fs::read_to_string(place) {
            Ok(text) => {
                let mode =
                    std::fs::metadata(place).map_err(|error| what().caused_by(error))?.permissions().mode();
                if mode & 0o077 != 0 {
                    return Err(what().because("other users may read or write it").hint(format!(
                        "who has it can write an audit log of their own: `chmod 600 {}`",
                        place.display()
                    )));
                }
                let secret = unhex(text.trim()).filter(|bytes| bytes.len() == 32);
                let secret = secret.ok_or_else(|| what().because("it is not 64 hex digits"))?;
                Self::new(&secret).ok_or_else(|| what().because("it is of no use"))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !log_exists => {
                let mut secret = [0; 32];
                SystemRandom::new()
                    .fill(&mut secret)
                    .map_err(|_| what().because("there is no randomness"))?;
                let mut options = std::fs::OpenOptions::new();
                let file = options.write(true).create_new(true).mode(0o600).open(place);
                file.and_then(|mut file| {
                    file.write_all(format!("{}\n", hex(&secret)).as_bytes())?;
                    file.sync_all()
                })
                .map_err(|error| what().caused_by(error))?;
                tracing::info!(file = %place.display(), "made the key of the audit log");
                Self::new(&secret).ok_or_else(|| what().because("it is of no use"))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(what()
                .caused_by(error)
                .hint("the log was begun with it: bring it back, or move the log away to begin another one")),
            Err(error) => Err(what().caused_by(error)),
        }
    }

    pub(super) fn new(secret: &[u8]) -> Option<Self> {
        let derive = |purpose: &[u8]| {
            let root = hmac::Key::new(hmac::HMAC_SHA256, secret);
            hmac::sign(&root, purpose)
        };
        let pair = Ed25519KeyPair::from_seed_unchecked(derive(b"tenure audit heads").as_ref()).ok()?;
        let digests = hmac::Key::new(hmac::HMAC_SHA256, derive(b"tenure audit arguments").as_ref());
        let public = hex(pair.public_key().as_ref());
        Some(Self { pair, digests, public })
    }

    /// The public key, in hex.
    pub(super) fn public(&self) -> &str {
        &self.public
    }

    pub(super) fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.pair.sign(message).as_ref().to_vec()
    }

    /// The digest of arguments. They cannot be guessed from it without the key.
    pub(super) fn digest(&self, arguments: &[u8]) -> Box<str> {
        hex(hmac::sign(&self.digests, arguments).as_ref())
    }
}
