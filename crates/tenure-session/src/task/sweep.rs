//! Removes expired tasks, and counts the tasks that an earlier process left.

use std::sync::Arc;
use std::time::Duration;

use super::record::TaskRecord;
use super::tasks::{TasksInner, label};
use crate::cluster::Roster;
use crate::port::clock::Clock;
use crate::port::store::{Record, RecordKey, Space, Store, StoreError, Version};
use crate::read_back::remove;
use crate::supervise::Avoided;
use crate::sweep::{Swept, due_record, postpone};

impl Swept for TasksInner {
    const SPACE: Space = Space::Task;
    const LOOP: &'static str = "sweep of tasks";

    fn every(&self) -> Duration {
        (self.limits.max_ttl / 8).clamp(Duration::from_secs(1), Duration::from_secs(60))
    }

    fn parts(&self) -> (&dyn Store, &dyn Clock, &Avoided<RecordKey>) {
        (self.store.as_ref(), self.clock.as_ref(), &self.avoided)
    }

    fn roster(&self) -> Option<&Roster> {
        self.roster.get()
    }

    fn is_here(&self, key: &RecordKey) -> bool {
        self.live.lock().contains_key(&key.key)
    }

    async fn count(&self) -> Result<(), StoreError> {
        let owner_of =
            |record: &Record| TaskRecord::decode(&record.value).ok().map(|record| record.head.owner());
        self.counts.count(self.store.as_ref(), Space::Task, owner_of).await
    }

    async fn handle(self: &Arc<Self>, key: RecordKey, version: Version) -> Result<bool, StoreError> {
        // The task runs, and its end will be written.
        if self.live.lock().contains_key(&key.key) {
            return Ok(false);
        }
        let (store, now) = (self.store.as_ref(), self.clock.now());
        let Some(kept) = due_record(store, key, version, now).await? else { return Ok(false) };
        let head = match TaskRecord::decode(&kept.value) {
            Ok(record) => record.head,
            // A node that can read it knows what has to be done.
            Err(error) if error.is_newer() => {
                tracing::debug!(task = %label(key.key), %error, "a record that is due is left as it is");
                return Ok(false);
            }
            Err(error) => {
                tracing::error!(task = %label(key.key), %error, "a task that is due cannot be read; left as it is");
                return postpone(store, key, kept, now).await;
            }
        };
        let leaving = self.counts.leaving(key.key, head.owner());
        remove(store, key, version).await?;
        leaving.left();
        Ok(true)
    }
}
