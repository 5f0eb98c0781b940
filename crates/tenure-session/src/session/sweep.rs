//! Ends expired sessions, and deletes the tombstones of ended ones.

use std::sync::Arc;
use std::time::Duration;

use crate::port::clock::Clock;
use crate::port::store::{Expected, Record, RecordKey, Space, Store, StoreError, Version};
use crate::record::{EndCause, StoredSession};
use crate::session::sessions::SessionRuntime;
use crate::session::wake::Dormant;
use crate::settings::{self, IdleTtl};
use crate::supervise::Avoided;
use crate::sweep::{Swept, due_record, postpone};

impl Swept for SessionRuntime {
    const SPACE: Space = Space::Session;
    const LOOP: &'static str = "sweep of sessions";

    fn every(&self) -> Duration {
        let shortest =
            self.limits.idle_ttl.unwrap_or(self.limits.tombstone_ttl).min(self.limits.tombstone_ttl);
        (shortest / 8).clamp(Duration::from_secs(1), Duration::from_secs(5 * 60))
    }

    fn parts(&self) -> (&dyn Store, &dyn Clock, &Avoided<RecordKey>) {
        (self.store.as_ref(), self.clock.as_ref(), &self.avoided)
    }

    async fn count(&self) -> Result<(), StoreError> {
        let owner_of = |record: &Record| match StoredSession::decode(&record.value) {
            Ok(StoredSession::Session(session)) => Some(session.owner()),
            _ => None,
        };
        self.counts.count(self.store.as_ref(), Space::Session, owner_of).await
    }

    async fn handle(self: &Arc<Self>, key: RecordKey, version: Version) -> Result<bool, StoreError> {
        if let Some(session) = self.live.by_key(&key.key) {
            // The deadline queue checks sessions in memory; only the record is old.
            session.save(&mut session.state.lock());
            return Ok(false);
        }
        if self.waking.contains(&key.key) {
            return Ok(false);
        }
        let (store, now) = (self.store.as_ref(), self.clock.now());
        let Some(record) = due_record(store, key, version, now).await? else { return Ok(false) };
        match StoredSession::decode(&record.value) {
            Ok(StoredSession::Session(mut session)) => {
                let due = settings::due(&session, record.deadline, &self.limits);
                if due.is_none_or(|due| self.clock.now() < due) {
                    // The record was written with a shorter idle time than the one in force now.
                    (session.ttl_ms, session.idle_ms) = IdleTtl::Default.noted(&self.limits);
                    store.put(key, session.encode(), Expected::Version(version), due).await?;
                    return Ok(true);
                }
                let dormant = Dormant { key: key.key, version, record: session };
                self.end_dormant(&dormant, EndCause::Expired).await
            }
            Ok(StoredSession::Tombstone(_)) => {
                // The events were dropped at the end of the session, unless the process crashed at that moment.
                store.drop_session(key.key).await?;
                store.delete(key, version).await?;
                Ok(true)
            }
            Err(error) => {
                tracing::error!(session = ?key.key, %error, "a record that is due cannot be read; left as it is");
                postpone(store, key, record, now).await
            }
        }
    }
}
