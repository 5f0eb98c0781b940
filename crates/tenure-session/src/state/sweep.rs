//! Removes states that were not used for long. An expired state can be recovered until its record is due here.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::record::{About, StateRecord};
use super::states::{StatesInner, label};
use crate::port::clock::Clock;
use crate::port::store::{Expected, Record, RecordKey, Space, Store, StoreError, Version};
use crate::read_back::remove;
use crate::record::EndCause;
use crate::supervise::Avoided;
use crate::sweep::{Swept, due_record, postpone};

impl Swept for StatesInner {
    const SPACE: Space = Space::State;
    const LOOP: &'static str = "sweep of data sessions";

    fn every(&self) -> Duration {
        (self.limits.tombstone_ttl / 8).clamp(Duration::from_secs(1), Duration::from_secs(60))
    }

    fn parts(&self) -> (&dyn Store, &dyn Clock, &Avoided<RecordKey>) {
        (self.store.as_ref(), self.clock.as_ref(), &self.avoided)
    }

    async fn count(&self) -> Result<(), StoreError> {
        let entry_of = |record: &Record| Some(StateRecord::decode(&record.value).ok()?.entry());
        self.counts.count(self.store.as_ref(), Space::State, entry_of).await
    }

    async fn handle(self: &Arc<Self>, key: RecordKey, version: Version) -> Result<bool, StoreError> {
        let (store, now) = (self.store.as_ref(), self.clock.now());
        let Some(kept) = due_record(store, key, version, now).await? else { return Ok(false) };
        let mut record = match StateRecord::decode(&kept.value) {
            Ok(record) => record,
            // A node that can read it knows what has to be done.
            Err(error) if error.is_newer() => {
                tracing::debug!(state = %label(&key.key), %error, "a record that is due is left as it is");
                return Ok(false);
            }
            Err(error) => {
                tracing::error!(state = %label(&key.key), %error, "a state that is due cannot be read; left as it is");
                return postpone(store, key, kept, now).await;
            }
        };
        let leaving = self.counts.leaving(key.key, record.entry());
        if record.head.end.is_none() && record.head.is_too_old(now) {
            // It cannot be recovered, so a tombstone replaces its data.
            record.head_mut().end = Some(EndCause::Expired);
            record.head_mut().used = now.0;
            record.head_mut().about = About::default();
            record.head_mut().id = None;
            record.data = Bytes::new();
            self.write(key.key, &mut record, Expected::Version(version)).await?;
            leaving.left_with(record.weight().bytes);
        } else {
            remove(store, key, version).await?;
            leaving.left();
        }
        Ok(true)
    }
}
