//! Removes records and makes sure that they are gone, because the count depends on it.
//!
//! A record is taken back if its caller was dropped before it learned of the record. The record stays counted until it
//! is gone. If the store does not remove it, it stays there until it expires, and counts until then like any other.

use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::counts::CountGuard;
use crate::port::clock::Time;
use crate::port::store::{Record, RecordKey, Store, StoreError, Version};

/// Retries with back-off: about twenty seconds in all.
const TRIES: usize = 10;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The outcome of a write that is to be undone.
#[derive(Debug)]
pub(crate) enum WriteOutcome {
    /// The write succeeded, and made this version.
    As(Version),
    /// It is unknown whether the write succeeded. This is its value.
    Perhaps(Bytes),
}

/// Removes a record that no client knows, and its count. True if it is gone; false if another writer came first, or
/// the store does not remove it.
pub(crate) async fn take_back(
    store: &dyn Store,
    key: RecordKey,
    written: WriteOutcome,
    count_guard: CountGuard,
    stop: &CancellationToken,
) -> bool {
    let mut pause = FIRST_PAUSE;
    for _ in 0..TRIES {
        match try_back(store, key, &written).await {
            Ok(()) => return true,
            // Another writer changed the record, which then stays, or ended it, and then also changed the count.
            Err(StoreError::Conflict { .. }) => {
                count_guard.keep();
                return false;
            }
            Err(error) => {
                tracing::debug!(record = %key.label(), %error, "could not take a record back; retrying")
            }
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
            () = stop.cancelled() => break,
        }
    }
    tracing::warn!(record = %key.label(), "a record that no client knows could not be removed; it stays until it expires");
    count_guard.keep();
    false
}

async fn try_back(store: &dyn Store, key: RecordKey, written: &WriteOutcome) -> Result<(), StoreError> {
    let version = match written {
        WriteOutcome::As(version) => *version,
        // The store has answered, so the write was done or never will be, and this read is final.
        WriteOutcome::Perhaps(value) => match store.get(key).await? {
            None => return Ok(()),
            Some(record) if record.value == *value => record.version,
            Some(record) => return Err(StoreError::Conflict { current: Some(record.version) }),
        },
    };
    remove(store, key, version).await
}

/// Removes a record. If the store's answer is unknown, this reads the record again: `Ok` means that the record is gone,
/// and a conflict means that another writer came first.
///
/// # Errors
/// As for [`Store::delete`].
pub(crate) async fn remove(store: &dyn Store, key: RecordKey, version: Version) -> Result<(), StoreError> {
    match store.delete(key, version).await {
        Err(StoreError::Unknown) => match store.get(key).await?.map(|record| record.version) {
            None => Ok(()),
            Some(same) if same == version => Err(StoreError::Unknown),
            current => Err(StoreError::Conflict { current }),
        },
        outcome => outcome,
    }
}

/// Whether a record's deadline has passed. A sweep checks this again for each record, because its list of due records
/// may be out of date.
pub(crate) fn is_due(record: &Record, now: Time) -> bool {
    record.deadline.is_some_and(|deadline| deadline <= now)
}
