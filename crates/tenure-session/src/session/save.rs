//! Keeps a session's record in the store up to date.
//!
//! Writes are compare-and-swap on the record's version, one at a time. Changes during a write are combined into the
//! next write. Most uses of a session write nothing: the time of the last use is saved from time to time, and with
//! other changes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;

use crate::backoff::Backoff;
use crate::port::clock::Time;
use crate::port::store::{Expected, RecordKey, StoreError};
use crate::record::{EndCause, SessionRecord, StoredSession, UnreadableRecord};
use crate::session::handshake_ttl;
use crate::session::live_session::{Session, SessionState};
use crate::settings::Settings;

impl Session {
    /// The current record, and its deadline if the session is not used again.
    pub(super) fn record(&self, state: &SessionState, settings: &Settings) -> (Bytes, Option<Time>) {
        let last_used = self.use_to_save();
        let limits = &self.inner.limits;
        let delivered = state.delivered();
        self.saved_delivery.store(delivered, Ordering::Relaxed);
        let raw = |json: &tenure_protocol::RawJson| json.read().expect("the handshake was JSON");
        let is_unheard = self.is_unheard();
        let (ttl_ms, idle_ms) = if is_unheard { handshake_ttl::NOTED } else { settings.ttl.noted(limits) };
        let record = SessionRecord {
            owner: self.owner.name().map(str::to_owned),
            client: self.owner.client().map(str::to_owned),
            revision: state.revision.as_str().to_owned(),
            phase: state.phase.as_str().to_owned(),
            created: self.created.0,
            last_used: last_used.0,
            initialize: raw(&state.initialize),
            initialize_result: raw(&state.initialize_result),
            log_level: state.log_level.map(|level| level.as_str().to_owned()),
            subscriptions: state.subscriptions.iter().map(|uri| uri.to_string()).collect(),
            delivered,
            next_stream: u64::from(state.next_stream),
            route: self.route.name().map(str::to_owned),
            server: self.inner.servers.at(&self.route).cloned(),
            idle_ms,
            ttl_ms,
            metadata: settings.metadata.clone(),
            event_secret: self.names.secret().map(|secret| secret.hex()),
            // Of no use to a single process, whose records stay as they were.
            epoch: self.inner.roster.as_ref().map(|_| self.fence().0),
            heard_at: state.heard_at.map(|node| node.hex()),
            figures: self.figures.lock().clone(),
        };
        // A crash may lose the last use, because it is not saved at once. It came within one idle time after the saved
        // use, so with twice the idle time no session expires too early.
        let idle = match is_unheard {
            false => settings.ttl.in_force(limits).map(|ttl| ttl.saturating_mul(2)),
            // The first use is saved at once, so this deadline is exact.
            true => self.idle_ttl(),
        };
        (record.encode(), crate::settings::after_use(last_used, idle, self.created, limits))
    }

    /// Marks the record as unsaved, and starts a task that writes it unless one is running.
    pub(super) fn save(self: &Arc<Self>, state: &mut SessionState) {
        state.unsaved = true;
        if state.saving || state.end.is_some() || state.is_given_up {
            return;
        }
        state.saving = true;
        let session = Arc::clone(self);
        self.inner.tasks.spawn(async move { session.save_all().await });
    }

    /// Waits until the record has the current state. A failure of the store is logged, and the write is tried again in
    /// the background; the session goes on.
    ///
    /// # Cancel safety
    /// The record is written even if the future is dropped.
    pub async fn saved(self: &Arc<Self>) {
        let pending = {
            let state = self.state.lock();
            state.unsaved || state.saving
        };
        if pending {
            let session = Arc::clone(self);
            // In a task, because this future may be dropped. The join fails only if the runtime is aborted.
            drop(self.inner.tasks.spawn(async move { session.write_record().await }).await);
        }
    }

    async fn save_all(self: Arc<Self>) {
        let mut backoff = Backoff::new(SAVE_FIRST, SAVE_LAST);
        while let Err(error) = self.write_record().await {
            if error == StoreError::TooLarge || !backoff.wait(&self.inner.stop).await {
                return;
            }
        }
    }

    /// Writes the record until nothing is unsaved, or a write fails.
    async fn write_record(self: &Arc<Self>) -> Result<(), StoreError> {
        let _alone = self.writing.acquire().await;
        loop {
            let (record, seen) = {
                let mut state = self.state.lock();
                if !std::mem::take(&mut state.unsaved) || state.end.is_some() || state.is_given_up {
                    state.saving = false;
                    return Ok(());
                }
                (self.record(&state, &state.settings), state.version)
            };
            let (value, deadline) = record;
            let key = RecordKey::session(self.key);
            match self.inner.store.put(key, value, Expected::Version(seen), deadline).await {
                Ok(version) => self.state.lock().version = version,
                Err(StoreError::Conflict { .. }) => {
                    self.state.lock().unsaved = true;
                    self.reconcile().await?;
                }
                Err(StoreError::TooLarge) => {
                    let mut state = self.state.lock();
                    // A change during the write may have made it smaller.
                    if !state.unsaved {
                        // It stays unsaved: the next change tries again, and until then the session cannot go dormant.
                        (state.unsaved, state.saving) = (true, false);
                        tracing::error!(session = %self.label, "the session is too large for the store; its record stays old");
                        return Err(StoreError::TooLarge);
                    }
                }
                Err(error) => {
                    self.state.lock().unsaved = true;
                    tracing::warn!(session = %self.label, %error, "could not save the session; will try again");
                    return Err(error);
                }
            }
        }
    }

    /// Reads the record after a conflict: either an own write that seemed to fail has worked, or the session was ended
    /// in the store. Never overwrites a tombstone, nor what a newer version wrote.
    pub(super) async fn reconcile(self: &Arc<Self>) -> Result<(), StoreError> {
        let record = self.inner.store.get(RecordKey::session(self.key)).await?;
        let kept = record.as_ref().map(|record| (record.version, StoredSession::decode(&record.value)));
        let end = match kept {
            // Written by a later owner. This node's state is old, and must not replace it.
            Some((_, Ok(StoredSession::Session(record))))
                if record.epoch.is_some_and(|at| at > self.fence().0) =>
            {
                self.give_up();
                return Ok(());
            }
            Some((version, Ok(StoredSession::Session(_)))) => {
                self.state.lock().version = version;
                return Ok(());
            }
            Some((_, Ok(StoredSession::Tombstone(tombstone)))) => tombstone.end,
            // A node of a newer version has it, and knows what it wrote.
            Some((_, Err(UnreadableRecord::Newer(_)))) => {
                self.give_up();
                return Ok(());
            }
            Some((_, Err(UnreadableRecord::Broken(_)))) | None => EndCause::Revoked,
        };
        tracing::warn!(session = %self.label, how = ?end, "the session was ended in the store");
        drop(self.inner.end(self, end));
        Ok(())
    }
}

/// First and longest back-off after a failed write.
const SAVE_FIRST: Duration = Duration::from_secs(2);
const SAVE_LAST: Duration = Duration::from_secs(30);
