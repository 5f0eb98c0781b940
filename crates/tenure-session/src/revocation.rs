//! Principals whose credentials were taken back: credentials issued to them until a moment are refused from then on.
//!
//! One record for each principal, which stays until an operator removes it: it is not known how long the longest of their
//! credentials would be good. In: names and times. Out: records of [`Space::Principal`]. Whether credentials are older than
//! a record is for those who verify them.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::framed::Frame;
use crate::id::SessionKey;
use crate::port::clock::Time;
use crate::port::store::{Expected, RecordKey, Space, Store, StoreError};

const FRAME: Frame = Frame { of: "revoked principal", format: 1 };

/// Records that are read at once.
const PAGE: usize = 256;

/// How often a write is tried again that another one came before.
const TRIES: usize = 8;

/// A principal, and the moment until which its credentials are refused.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Revocation {
    /// The principal.
    pub principal: String,
    /// Credentials issued to it up to this moment, in milliseconds since 1970, are refused.
    pub not_before: u64,
}

impl Revocation {
    fn record_key(principal: &str) -> RecordKey {
        let digest =
            Sha256::new().chain_update(b"tenure principal\0").chain_update(principal.as_bytes()).finalize();
        let mut key = [0; 16];
        key.copy_from_slice(&digest[..16]);
        RecordKey { space: Space::Principal, key: SessionKey::from_bytes(key) }
    }

    fn decode(value: &Bytes) -> Option<Self> {
        FRAME.decode(value).ok().map(|(head, _)| head)
    }
}

/// Refuses credentials that were issued to a principal until now. The time in the record only moves forward.
///
/// # Errors
/// When the store fails; then it may or may not be written, and can be repeated.
///
/// # Cancel safety
/// A write that has begun may happen.
pub async fn revoke(store: &dyn Store, principal: &str, now: Time) -> Result<Revocation, StoreError> {
    let key = Revocation::record_key(principal);
    for _ in 0..TRIES {
        let kept = store.get(key).await?;
        let before = kept.as_ref().and_then(|kept| Revocation::decode(&kept.value));
        let not_before = before.map_or(now.0, |before| before.not_before.max(now.0));
        let revocation = Revocation { principal: principal.to_owned(), not_before };
        let expected = kept.map_or(Expected::Absent, |kept| Expected::Version(kept.version));
        match store.put(key, FRAME.encode(&revocation, &[]), expected, None).await {
            Ok(_) => return Ok(revocation),
            // Another writer came first, or the write happened and only its answer was lost.
            Err(StoreError::Conflict { .. } | StoreError::Unknown) => {}
            Err(error) => return Err(error),
        }
    }
    Err(StoreError::Unknown)
}

/// Removes the record of a principal, so that its credentials are good again. Returns whether there was one.
///
/// # Errors
/// When the store fails.
///
/// # Cancel safety
/// As for [`revoke`].
pub async fn reinstate(store: &dyn Store, principal: &str) -> Result<bool, StoreError> {
    let key = Revocation::record_key(principal);
    let mut was_there = false;
    for _ in 0..TRIES {
        let Some(kept) = store.get(key).await? else { return Ok(was_there) };
        was_there = true;
        match store.delete(key, kept.version).await {
            // Read again: a write that was lost may have happened, or another one came first.
            Ok(_) | Err(StoreError::Conflict { .. } | StoreError::Unknown) => {}
            Err(error) => return Err(error),
        }
    }
    Err(StoreError::Unknown)
}

/// The record of one principal.
///
/// # Errors
/// When the store fails.
pub async fn of(store: &dyn Store, principal: &str) -> Result<Option<Revocation>, StoreError> {
    let kept = store.get(Revocation::record_key(principal)).await?;
    Ok(kept.and_then(|kept| Revocation::decode(&kept.value)))
}

/// All of them, and how many records cannot be read.
///
/// # Errors
/// When the store fails.
pub async fn all(store: &dyn Store) -> Result<(Vec<Revocation>, usize), StoreError> {
    let (mut found, mut unreadable, mut after) = (Vec::new(), 0, None);
    loop {
        let page = store.list(Space::Principal, after, PAGE).await?;
        let Some((last, _)) = page.last() else { return Ok((found, unreadable)) };
        after = Some(*last);
        for (_, record) in &page {
            match Revocation::decode(&record.value) {
                Some(revocation) => found.push(revocation),
                None => unreadable += 1,
            }
        }
    }
}
