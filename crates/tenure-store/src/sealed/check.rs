//! Checks once, when a store is opened, that the store and the keys fit.
//!
//! A sealed store keeps a constant under a fixed name, sealed like every value. Opening the store opens this check
//! record first: if no key fits, nothing is read and nothing is written. A plain store is never sealed in place,
//! because an attacker could pass off plain values as sealed ones in a store that holds both.

use bytes::Bytes;
use tenure_session::id::SessionKey;
use tenure_session::port::store::{Expected, Record, RecordKey, Space, Store, StoreError};

use super::keys::{KeyId, SealKeys};
use super::value::{self, Unopened, ValueBinding};

/// The key of the check record.
const KEY: RecordKey =
    RecordKey { space: Space::Store, key: SessionKey::from_bytes(*b"sealed\0\0\0\0\0\0\0\0\0\0") };

const BINDING: ValueBinding = ValueBinding::Record { key: KEY, deadline: None };

/// The plain value of the check record.
const CONSTANT: &[u8] = b"tenure sealed store";

/// How often to try the check if another node writes it at the same time.
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
    /// The right key is there, but it does not open the check record.
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

/// Checks that the keys fit, and seals the check record with the newest key.
pub(super) async fn check(store: &dyn Store, keys: &SealKeys) -> Result<(), SealError> {
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
                // Another node may have sealed and used the store since the read above.
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
            // Another node wrote it meanwhile, or perhaps this put succeeded: read it again.
            Err(StoreError::Conflict { .. } | StoreError::Unknown) if tries < TRIES => tries += 1,
            Err(error) => return Err(error.into()),
        }
    }
}

fn seal(keys: &SealKeys) -> Result<Bytes, StoreError> {
    value::seal(keys, BINDING, CONSTANT)
}

fn is_sealed_with_newest(keys: &SealKeys, record: &Record) -> Result<bool, SealError> {
    match value::open(keys, BINDING, record.value.clone()) {
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
