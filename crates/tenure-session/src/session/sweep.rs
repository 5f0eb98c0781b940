//! Ends expired sessions, and deletes the tombstones of ended ones. In a cluster also counts the sessions anew.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::Roster;
use crate::id::Principal;
use crate::port::clock::Clock;
use crate::port::store::{Expected, Record, RecordKey, Space, Store, StoreError, Version};
use crate::record::{EndCause, StoredSession, UnreadableRecord};
use crate::session::sessions::SessionRuntime;
use crate::session::wake::Dormant;
use crate::settings::{self, IdleTtl};
use crate::supervise::Avoided;
use crate::sweep::{Swept, due_record, postpone};

/// The pause between two walks that count the sessions of a cluster, and between two pages of a walk.
const RECOUNT_EVERY: Duration = Duration::from_secs(10 * 60);
const RECOUNT_PAUSE: Duration = Duration::from_secs(1);

fn owner_of(record: &Record) -> Option<Principal> {
    match StoredSession::decode(&record.value) {
        Ok(StoredSession::Session(session)) => Some(session.owner()),
        _ => None,
    }
}

impl SessionRuntime {
    /// Starts the loop that counts the sessions of a cluster anew.
    pub(super) fn watch_counts(self: &Arc<Self>) {
        let (stop, owner) = (self.stop.clone(), Arc::clone(self));
        let watch = move || {
            let (stop, owner) = (owner.stop.clone(), Arc::clone(&owner));
            async move {
                stop.run_until_cancelled(owner.recount()).await;
            }
        };
        self.tasks.spawn(self.loops.keep("counts of sessions", stop, watch));
    }

    async fn recount(self: Arc<Self>) {
        loop {
            tokio::time::sleep(RECOUNT_EVERY).await;
            loop {
                let walked = self.counts.recount_some(self.store.as_ref(), Space::Session, owner_of).await;
                match walked {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(error) => tracing::debug!(%error, "could not count sessions; will try again"),
                }
                tokio::time::sleep(RECOUNT_PAUSE).await;
            }
        }
    }
}

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

    fn roster(&self) -> Option<&Roster> {
        self.roster.as_ref()
    }

    fn is_here(&self, key: &RecordKey) -> bool {
        self.awake_by_key(&key.key).is_some()
    }

    async fn count(&self) -> Result<(), StoreError> {
        self.counts.count(self.store.as_ref(), Space::Session, owner_of).await
    }

    async fn handle(self: &Arc<Self>, key: RecordKey, version: Version) -> Result<bool, StoreError> {
        if let Some(session) = self.awake_by_key(&key.key) {
            // The deadline queue checks sessions in memory; only the record is old.
            session.save(&mut session.state.lock());
            return Ok(false);
        }
        if self.waking.contains(&key.key) || self.is_elsewhere(key.key).await? {
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
            // A node that can read it knows what has to be done.
            Err(error @ UnreadableRecord::Newer(_)) => {
                tracing::debug!(session = ?key.key, %error, "a record that is due is left as it is");
                Ok(false)
            }
            Err(error @ UnreadableRecord::Broken(_)) => {
                tracing::error!(session = ?key.key, %error, "a record that is due cannot be read; left as it is");
                postpone(store, key, record, now).await
            }
        }
    }
}
