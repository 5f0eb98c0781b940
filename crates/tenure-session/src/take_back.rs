//! Removes records, and finds out whether they are gone, because the count depends on it.
//!
//! A record is taken back if its caller left before it heard of it. The record keeps its seat until it is gone. If the
//! store does not remove it, it is left to expire, and counts until then like any other.

use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::counts::Seat;
use crate::port::clock::Time;
use crate::port::store::{Record, RecordKey, Store, StoreError, Version};

/// How often it is tried, with pauses that double: about twenty seconds in all.
const TRIES: usize = 10;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The outcome of a write that is to be undone.
#[derive(Debug)]
pub(crate) enum Written {
    /// It was done, and made this version.
    As(Version),
    /// It is unknown whether it was done. This is the value that it wrote.
    Perhaps(Bytes),
}

/// Removes a record that no client knows of, and gives its seat back. True if it is gone; false if another writer
/// came first, or the store does not give it up.
pub(crate) async fn take_back(
    store: &dyn Store,
    key: RecordKey,
    written: Written,
    seat: Seat,
    stop: &CancellationToken,
) -> bool {
    let mut pause = FIRST_PAUSE;
    for _ in 0..TRIES {
        match try_back(store, key, &written).await {
            Ok(()) => return true,
            // A writer that changed it keeps it, and one that ended it has counted it out.
            Err(StoreError::Conflict { .. }) => {
                seat.keep();
                return false;
            }
            Err(error) => tracing::debug!(record = %key.label(), %error, "could not take a record back yet"),
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
            () = stop.cancelled() => break,
        }
    }
    tracing::warn!(record = %key.label(), "a record that no client knows of could not be removed; it is left to expire");
    seat.keep();
    false
}

async fn try_back(store: &dyn Store, key: RecordKey, written: &Written) -> Result<(), StoreError> {
    let version = match written {
        Written::As(version) => *version,
        // The store has answered, so the write is done or will never be, and this read is final.
        Written::Perhaps(value) => match store.get(key).await? {
            None => return Ok(()),
            Some(record) if record.value == *value => record.version,
            Some(record) => return Err(StoreError::Conflict { current: Some(record.version) }),
        },
    };
    remove(store, key, version).await
}

/// Removes a record. An answer that was lost is looked for, so `Ok` means that it is gone, and a conflict that another
/// writer came first.
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

/// Whether the time of a record has come. A sweep checks this again for each record, because a list of due records is
/// old as soon as it is made.
pub(crate) fn is_due(record: &Record, now: Time) -> bool {
    record.deadline.is_some_and(|deadline| deadline <= now)
}
