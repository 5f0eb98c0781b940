//! Removes states that were not used for long. An expired state can be recovered until its record is due here.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::record::{About, StateRecord};
use super::states::{StatesInner, label};
use crate::port::store::{Expected, Record, RecordKey, Space, StoreError, Version};
use crate::record::EndCause;
use crate::take_back::{is_due, remove};

/// How many records are handled at a time.
const PAGE: usize = 64;

/// When a record that cannot be read is handled again.
const UNREADABLE_AGAIN: Duration = Duration::from_secs(60 * 60);

/// Runs until it is stopped.
pub(super) async fn run(inner: Arc<StatesInner>) {
    let work = async {
        let every = (inner.limits.tombstone_ttl / 8).clamp(Duration::from_secs(1), Duration::from_secs(60));
        loop {
            if let Err(error) = count(&inner).await {
                tracing::warn!(%error, "could not count the states in the store; retrying later");
            }
            if let Err(error) = sweep(&inner).await {
                tracing::warn!(%error, "could not remove expired states; retrying later");
            }
            tokio::time::sleep(every).await;
        }
    };
    tokio::select! {
        () = work => {}
        () = inner.stop.cancelled() => {}
    }
}

/// Counts the states that an earlier process left, once.
async fn count(inner: &StatesInner) -> Result<(), StoreError> {
    let entry_of = |record: &Record| Some(StateRecord::decode(&record.value).ok()?.entry());
    inner.counts.count(inner.store.as_ref(), Space::State, entry_of).await
}

async fn sweep(inner: &StatesInner) -> Result<(), StoreError> {
    loop {
        let due = inner.store.expired(Space::State, inner.clock.now(), PAGE).await?;
        let full = due.len() == PAGE;
        let (mut moved, mut failed) = (false, None);
        for (key, version) in due {
            let Some(_in_hand) = inner.avoided.take(key) else { continue };
            match handle(inner, key, version).await {
                Ok(gone) => moved |= gone,
                // The state was used in the meantime.
                Err(StoreError::Conflict { .. }) => {}
                // A record that fails does not stop the others.
                Err(error) => failed = Some(error),
            }
        }
        // Without progress the next page would be the same one.
        match failed {
            _ if full && moved => {}
            Some(error) => return Err(error),
            None => return Ok(()),
        }
    }
}

/// Handles one due record. True if the record is no longer due.
async fn handle(inner: &StatesInner, key: RecordKey, version: Version) -> Result<bool, StoreError> {
    let now = inner.clock.now();
    // The record may be newer than the list. Everything below changes this version, or nothing.
    let kept = inner.store.get(key).await?.filter(|kept| kept.version == version && is_due(kept, now));
    let Some(kept) = kept else { return Ok(false) };
    let mut record = match StateRecord::decode(&kept.value) {
        Ok(record) => record,
        Err(error) => {
            tracing::error!(state = %label(&key.key), %error, "a state that is due cannot be read; left as it is");
            let later = now.after(UNREADABLE_AGAIN);
            inner.store.put(key, kept.value, Expected::Version(version), Some(later)).await?;
            return Ok(true);
        }
    };
    let leaving = inner.counts.leaving(key.key, record.entry());
    if record.head.end.is_some() {
        remove(inner.store.as_ref(), key, version).await?;
        leaving.left();
    } else if record.head.is_too_old(now) {
        // It cannot be recovered, so a tombstone replaces its data.
        record.head_mut().end = Some(EndCause::Expired);
        record.head_mut().used = now.0;
        record.head_mut().about = About::default();
        record.head_mut().id = None;
        record.data = Bytes::new();
        inner.write(key.key, &mut record, Expected::Version(version)).await?;
        leaving.left_with(record.weight().bytes);
    } else {
        remove(inner.store.as_ref(), key, version).await?;
        leaving.left();
    }
    Ok(true)
}
