//! Takes back a record whose caller was dropped before it learned of the record.
//!
//! The record stays counted until it is gone. If the store does not remove it, it stays there until it expires, and counts until then like any other.

use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::counts::CountGuard;
use crate::port::store::{RecordKey, Store, StoreError, Version};
use crate::read_back::remove;

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
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
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
        if !backoff.wait(stop).await {
            break;
        }
    }
    tracing::warn!(record = %key.label(), "a record that no client knows could not be removed; it stays until it expires");
    count_guard.keep();
    false
}

async fn try_back(store: &dyn Store, key: RecordKey, written: &WriteOutcome) -> Result<(), StoreError> {
    let version = match written {
        WriteOutcome::As(version) => *version,
        // If the write still happens after this read, its record stays until it expires.
        WriteOutcome::Perhaps(value) => match store.get(key).await? {
            None => return Ok(()),
            Some(record) if record.value == *value => record.version,
            Some(record) => return Err(StoreError::Conflict { current: Some(record.version) }),
        },
    };
    remove(store, key, version).await
}
