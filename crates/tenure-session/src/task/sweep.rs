//! Removes expired tasks, and counts the tasks that an earlier process left.

use std::sync::Weak;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::record::TaskRecord;
use super::tasks::{TasksInner, label};
use crate::port::store::{Expected, Record, RecordKey, Space, StoreError, Version};
use crate::take_back::{is_due, remove};

/// How many records are handled at a time.
const PAGE: usize = 64;

/// When a record that cannot be read is handled again.
const UNREADABLE_AGAIN: Duration = Duration::from_secs(60 * 60);

/// Runs until it is stopped, or all `Tasks` handles are dropped.
pub(super) async fn run(tasks: Weak<TasksInner>, stop: CancellationToken) {
    let work = async {
        while let Some(inner) = tasks.upgrade() {
            let every = (inner.limits.max_ttl / 8).clamp(Duration::from_secs(1), Duration::from_secs(60));
            if let Err(error) = count(&inner).await {
                tracing::warn!(%error, "could not count the tasks in the store; retrying later");
            }
            if let Err(error) = sweep(&inner).await {
                tracing::warn!(%error, "could not remove expired tasks; retrying later");
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
async fn count(inner: &TasksInner) -> Result<(), StoreError> {
    let owner_of = |record: &Record| TaskRecord::decode(&record.value).ok().map(|record| record.head.owner());
    inner.counts.count(inner.store.as_ref(), Space::Task, owner_of).await
}

async fn sweep(inner: &TasksInner) -> Result<(), StoreError> {
    loop {
        let due = inner.store.expired(Space::Task, inner.clock.now(), PAGE).await?;
        let full = due.len() == PAGE;
        let (mut moved, mut failed) = (false, None);
        for (key, version) in due {
            let Some(_in_hand) = inner.avoided.take(key) else { continue };
            match handle(inner, key, version).await {
                Ok(gone) => moved |= gone,
                // The end of the task was written just now.
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
async fn handle(inner: &TasksInner, key: RecordKey, version: Version) -> Result<bool, StoreError> {
    // The task runs, and its end will be written.
    if inner.live.lock().contains_key(&key.key) {
        return Ok(false);
    }
    let now = inner.clock.now();
    // The record may be newer than the list. Everything below changes this version, or nothing.
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
    let leaving = inner.counts.leaving(key.key, head.owner());
    remove(inner.store.as_ref(), key, version).await?;
    leaving.left();
    Ok(true)
}
