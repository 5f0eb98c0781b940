//! Whether a store and the keys belong together, decided once when it is opened.
//!
//! A sealed store keeps a constant under a fixed name, sealed like everything else. Whoever opens the store opens
//! that first: with no fitting key nothing is read and nothing is written. A store that was not sealed from its
//! beginning never becomes so in place, because plain and sealed values side by side could be passed off as one
//! another.

use bytes::Bytes;
use tenure_session::id::SessionKey;
use tenure_session::port::store::{Expected, Record, RecordKey, Space, Store, StoreError};

use super::keys::{KeyId, Keys};
use super::value::{self, Belongs, Unopened};

/// Where the check record is.
const KEY: RecordKey =
    RecordKey { space: Space::Store, key: SessionKey::from_bytes(*b"sealed\0\0\0\0\0\0\0\0\0\0") };

const BELONGS: Belongs = Belongs::Record { key: KEY, deadline: None };

/// What is in it.
const CONSTANT: &[u8] = b"tenure sealed store";

/// How often the check is written at most, should somebody else write it at the same time.
const TRIES: usize = 16;

/// Why a store does not open with these keys, or without any.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// There are keys, but the store has plain values.
    #[error("the store is not encrypted; copy it with `tenure store copy` into a new one")]
    NotSealed,
    /// There are no keys, but the store is sealed.
    #[error("the store is encrypted; give its key with `--store-key-file`")]
    Sealed,
    /// There are keys, but not the one that the store was last opened with.
    #[error("the store is encrypted with key {needs}, which is not in the key file")]
    WrongKey {
        /// The key that fits.
        needs: KeyId,
    },
    /// The right key is there and still does not open it.
    #[error("the store's check of its key was changed, or is of another version")]
    Changed,
    /// The store does not answer.
    #[error("the store cannot be used")]
    Store(#[from] StoreError),
}

/// Checks that a store may be used without keys.
///
/// # Errors
/// When it is sealed, or does not answer.
pub async fn check_plain(store: &dyn Store) -> Result<(), SealError> {
    match store.get(KEY).await? {
        Some(_) => Err(SealError::Sealed),
        None => Ok(()),
    }
}

/// Checks that the keys fit, and leaves the check sealed with the newest of them.
pub(super) async fn check(store: &dyn Store, keys: &Keys) -> Result<(), SealError> {
    let mut tries = 1;
    loop {
        let (value, expected) = match store.get(KEY).await? {
            Some(record) => {
                if is_sealed_with_newest(keys, &record)? {
                    return Ok(());
                }
                (seal(keys)?, Expected::Version(record.version))
            }
            None if has_records(store).await? => {
                // Another node may have sealed it, and used it, since we looked.
                if tries == TRIES || store.get(KEY).await?.is_none() {
                    return Err(SealError::NotSealed);
                }
                tries += 1;
                continue;
            }
            None => (seal(keys)?, Expected::Absent),
        };
        match store.put(KEY, value, expected, None).await {
            Ok(_) => return Ok(()),
            // Another node wrote it meanwhile, or perhaps we did: what is there now decides.
            Err(StoreError::Conflict { .. } | StoreError::Unknown) if tries < TRIES => tries += 1,
            Err(error) => return Err(error.into()),
        }
    }
}

fn seal(keys: &Keys) -> Result<Bytes, StoreError> {
    value::seal(keys, BELONGS, CONSTANT)
}

fn is_sealed_with_newest(keys: &Keys, record: &Record) -> Result<bool, SealError> {
    match value::open(keys, BELONGS, record.value.clone()) {
        Ok(plain) if plain == CONSTANT => Ok(value::key_id(&record.value) == Ok(keys.id())),
        Err(Unopened::MissingKey(needs)) => Err(SealError::WrongKey { needs }),
        Ok(_) | Err(Unopened::Changed(_) | Unopened::NotSealed) => Err(SealError::Changed),
    }
}

async fn has_records(store: &dyn Store) -> Result<bool, StoreError> {
    for space in Space::ALL {
        if !store.list(space, None, 1).await?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}
