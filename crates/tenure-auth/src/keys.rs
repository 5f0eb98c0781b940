//! Static keys: a secret of 256 bits, of which a file keeps the hash.
//!
//! A key needs no slow hash, since 256 random bits cannot be guessed. The file is TOML, so that people can read it; it is written
//! as a whole and put in place by a rename.

mod file;
mod secret;
mod uses;

pub use file::{ApiKeyFile, ApiKeyFileError, KeyInfo, NewKey};
pub(crate) use file::{FileStamp, is_writable_by_others};
pub use secret::KeySecret;
pub(crate) use secret::is_key;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::identity::{CredentialKind, Identity};
use crate::refusal::TokenFault;
use crate::time::UnixSeconds;

impl Key {
    /// Notes that it was used.
    pub(crate) fn used(&self, now: UnixSeconds) {
        self.last_used.store(now.0, Ordering::Relaxed);
    }
}

/// All keys of a file, by their hashes.
#[derive(Debug, Default)]
pub(crate) struct Keys(HashMap<[u8; 32], Arc<Key>>);

#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) info: KeyInfo,
    last_used: AtomicU64,
}

impl Keys {
    /// Keys of a file. Those that were there before keep the time of their last use.
    pub(crate) fn new(infos: Vec<KeyInfo>, before: &Self) -> Self {
        let key = |info: KeyInfo| {
            let used = before.0.get(&info.sha256).map_or(0, |key| key.last_used.load(Ordering::Relaxed));
            (info.sha256, Arc::new(Key { info, last_used: AtomicU64::new(used) }))
        };
        Self(infos.into_iter().map(key).collect())
    }

    /// The identity of the bearer of this secret. Whether it is a key is looked up by its hash, so that the time it takes
    /// tells nothing about any key.
    pub(crate) fn identity(
        &self,
        secret: &str,
        now: UnixSeconds,
    ) -> Result<(Identity, Arc<Key>), TokenFault> {
        let hash = secret::hash(secret).ok_or(TokenFault::Unknown)?;
        let key = self.0.get(&hash).ok_or(TokenFault::Unknown)?;
        if key.info.expires <= now {
            return Err(TokenFault::Expired);
        }
        let identity = Identity {
            scopes: key.info.scopes.clone(),
            expires: key.info.expires,
            issued: Some(key.info.created),
            key: Some(hash),
            ..Identity::new("key", &key.info.name, CredentialKind::Key)
        };
        Ok((identity, Arc::clone(key)))
    }

    /// Whether there is a key with this hash.
    pub(crate) fn has(&self, hash: &[u8; 32]) -> bool {
        self.0.contains_key(hash)
    }

    /// The names of the keys that others lack.
    pub(crate) fn names_without<'a>(&'a self, others: &'a Self) -> impl Iterator<Item = &'a str> {
        let lacked = self.0.iter().filter(|(hash, _)| !others.has(hash));
        lacked.map(|(_, key)| key.info.name.as_str())
    }

    /// The last time that any of them was used.
    pub(crate) fn newest_use(&self) -> UnixSeconds {
        let uses = self.0.values().map(|key| key.last_used.load(Ordering::Relaxed));
        UnixSeconds(uses.max().unwrap_or_default())
    }

    /// When each key was last used, by its name and the beginning of its hash.
    pub(crate) fn last_uses(&self) -> Vec<(KeyInfo, Option<UnixSeconds>)> {
        let use_of = |key: &Arc<Key>| {
            let used = key.last_used.load(Ordering::Relaxed);
            (key.info.clone(), (used > 0).then_some(UnixSeconds(used)))
        };
        self.0.values().map(use_of).collect()
    }
}
