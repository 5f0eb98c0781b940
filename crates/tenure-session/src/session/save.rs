//! Keeps a session's record in the store up to date.
//!
//! Writes are compare-and-swap on the record's version, one at a time. Changes that come while a write is
//! under way are folded into the next one. Using a session is never a write of its own: that it was used is
//! written now and then, with whatever else has changed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;

use crate::port::clock::Time;
use crate::port::store::{Expected, RecordKey, StoreError};
use crate::record::{End, Kept, SessionRecord};
use crate::session::handshake_ttl;
use crate::session::session::{Session, State};
use crate::session::settings::Settings;

impl Session {
    /// The record as it should be now, and when to look at it if nothing more is heard of the session.
    pub(super) fn record(&self, state: &State, settings: &Settings) -> (Bytes, Option<Time>) {
        let last_used = self.use_to_save();
        let limits = &self.inner.limits;
        let delivered = state.delivered();
        self.saved_delivery.store(delivered, Ordering::Relaxed);
        let raw = |json: &tenure_protocol::RawJson| json.read().expect("the handshake was JSON");
        let is_unheard = self.is_unheard();
        let (ttl_ms, idle_ms) = if is_unheard { handshake_ttl::NOTED } else { settings.ttl.noted(limits) };
        let record = SessionRecord {
            owner: self.owner.name().map(str::to_owned),
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
        };
        // Use is not written when it happens, and the last one may be lost in a crash. It came within one idle
        // time of what is written, so with twice that no session is thought dead too early.
        let idle = match is_unheard {
            false => settings.ttl.in_force(limits).map(|ttl| ttl.saturating_mul(2)),
            // The first use is written down as it happens.
            true => self.idle_ttl(),
        };
        (record.encode(), crate::session::idle_ttl::after_use(last_used, idle, self.created, limits))
    }

    /// Notes that the record has to be written, and writes it unless somebody already does.
    pub(super) fn save(self: &Arc<Self>, state: &mut State) {
        state.unsaved = true;
        if state.saving || state.end.is_some() {
            return;
        }
        state.saving = true;
        let session = Arc::clone(self);
        self.inner.tasks.spawn(async move { session.save_all().await });
    }

    /// Waits until what the session is now is in its record. If the store fails that is logged, and tried again
    /// in the background; the session goes on.
    ///
    /// # Cancel safety
    /// The record is written all the same.
    pub async fn saved(self: &Arc<Self>) {
        let pending = {
            let state = self.state.lock();
            state.unsaved || state.saving
        };
        if pending {
            let session = Arc::clone(self);
            // In a task, because the one who waits may leave. Only an aborted runtime makes it fail.
            drop(self.inner.tasks.spawn(async move { session.write_record().await }).await);
        }
    }

    async fn save_all(self: Arc<Self>) {
        let mut again = SAVE_FIRST;
        while let Err(error) = self.write_record().await {
            if error == StoreError::TooLarge {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(again) => again = (again * 2).min(SAVE_LAST),
                () = self.inner.stop.cancelled() => return,
            }
        }
    }

    /// Writes the record until nothing is unsaved, or once fails.
    async fn write_record(self: &Arc<Self>) -> Result<(), StoreError> {
        let _alone = self.writing.acquire().await;
        loop {
            let (record, seen) = {
                let mut state = self.state.lock();
                if !std::mem::take(&mut state.unsaved) || state.end.is_some() {
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
                    // A change that came meanwhile may have made it smaller.
                    if !state.unsaved {
                        // It stays unsaved, so the next change tries again, and the session does not sleep until then.
                        (state.unsaved, state.saving) = (true, false);
                        tracing::error!(session = %self.label, "the session is too large for the store; its record stays old");
                        return Err(StoreError::TooLarge);
                    }
                }
                Err(error) => {
                    self.state.lock().unsaved = true;
                    tracing::warn!(session = %self.label, %error, "could not save the session; trying on");
                    return Err(error);
                }
            }
        }
    }

    /// The record is not what we wrote last: a write of ours was thought lost and was not, or the session was
    /// ended in the store. A tombstone is never written over.
    pub(super) async fn reconcile(self: &Arc<Self>) -> Result<(), StoreError> {
        let record = self.inner.store.get(RecordKey::session(self.key)).await?;
        let kept = record.as_ref().map(|record| (record.version, Kept::decode(&record.value)));
        let end = match kept {
            Some((version, Ok(Kept::Session(_)))) => {
                self.state.lock().version = version;
                return Ok(());
            }
            Some((_, Ok(Kept::Tombstone(tombstone)))) => tombstone.end,
            Some((_, Err(_))) | None => End::Revoked,
        };
        tracing::warn!(session = %self.label, how = ?end, "the session was ended in the store");
        drop(self.inner.end(self, end));
        Ok(())
    }
}

/// How long after a failure the record is written again, at first, and at last.
const SAVE_FIRST: Duration = Duration::from_secs(2);
const SAVE_LAST: Duration = Duration::from_secs(30);
