//! Removes tasks whose time is up, and counts those that an earlier process left.

use std::sync::Weak;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::record::TaskRecord;
use super::tasks::{Inner, label};
use crate::port::store::{Expected, Record, RecordKey, Space, StoreError, Version};
use crate::take_back::{is_due, remove};

/// How many records are handled at a time.
const PAGE: usize = 64;

/// When a record that cannot be read is tried again.
const UNREADABLE_AGAIN: Duration = Duration::from_secs(60 * 60);

/// Runs until it is stopped, or nobody keeps tasks any more.
pub(super) async fn run(tasks: Weak<Inner>, stop: CancellationToken) {
    let work = async {
        while let Some(inner) = tasks.upgrade() {
            let every = (inner.limits.max_ttl / 8).clamp(Duration::from_secs(1), Duration::from_secs(60));
            if let Err(error) = count(&inner).await {
                tracing::warn!(%error, "could not count the tasks in the store; going on later");
            }
            if let Err(error) = sweep(&inner).await {
                tracing::warn!(%error, "could not remove tasks that are over; trying again later");
            }
            drop(inner);
            tokio::time::sleep(every).await;
        }
    };
    tokio::select! {
        () = work => {}
        () = stop.cancelled() => {}
    }
}

/// Counts the tasks that an earlier process left, once.
async fn count(inner: &Inner) -> Result<(), StoreError> {
    let owner_of = |record: &Record| TaskRecord::decode(&record.value).ok().map(|record| record.head.owner());
    inner.census.count(inner.store.as_ref(), Space::Task, owner_of).await
}

async fn sweep(inner: &Inner) -> Result<(), StoreError> {
    loop {
        let due = inner.store.expired(Space::Task, inner.clock.now(), PAGE).await?;
        let full = due.len() == PAGE;
        let (mut moved, mut failed) = (false, None);
        for (key, version) in due {
            let Some(_in_hand) = inner.avoided.take(key) else { continue };
            match handle(inner, key, version).await {
                Ok(gone) => moved |= gone,
                // It has just ended.
                Err(StoreError::Conflict { .. }) => {}
                // One that cannot be dealt with does not hold up the others.
                Err(error) => failed = Some(error),
            }
        }
        // Without progress the same page would come again and again.
        match failed {
            _ if full && moved => {}
            Some(error) => return Err(error),
            None => return Ok(()),
        }
    }
}

/// Deals with one record that is due; true if that took it off the list.
async fn handle(inner: &Inner, key: RecordKey, version: Version) -> Result<bool, StoreError> {
    // Its end is about to be written.
    if inner.live.lock().contains_key(&key.key) {
        return Ok(false);
    }
    let now = inner.clock.now();
    // The list may be older than the record. Everything below is done to this version, or not at all.
    let kept = inner.store.get(key).await?.filter(|kept| kept.version == version && is_due(kept, now));
    let Some(kept) = kept else { return Ok(false) };
    let head = match TaskRecord::decode(&kept.value) {
        Ok(record) => record.head,
        Err(error) => {
            tracing::error!(task = %label(key.key), %error, "a task that is due cannot be read; left as it is");
            let later = Some(now.after(UNREADABLE_AGAIN));
            inner.store.put(key, kept.value, Expected::Version(version), later).await?;
            return Ok(true);
        }
    };
    let leaving = inner.census.leaving(key.key, head.owner());
    remove(inner.store.as_ref(), key, version).await?;
    leaving.left();
    Ok(true)
}
