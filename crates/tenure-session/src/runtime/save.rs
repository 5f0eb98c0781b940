//! Keeps a session's record in the store up to date, and lets others change its metadata.
//!
//! Writes are compare-and-swap on the record's version, one at a time. Changes that come while a write is
//! under way are folded into the next one. Using a session is never a write of its own: that it was used is
//! written now and then, with whatever else has changed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;

use super::finish::finish;
use super::session::{Session, State};
use crate::error::{Error, Reason};
use crate::port::clock::Time;
use crate::port::store::{Expected, RecordKey, StoreError, Version};
use crate::record::{End, Kept, SessionRecord};

/// What users attach to a session.
pub type Metadata = serde_json::Map<String, serde_json::Value>;

impl Session {
    /// The session's metadata and the version it had then.
    pub fn metadata(&self) -> (Metadata, Version) {
        let state = self.state.lock();
        (state.metadata.clone(), state.version)
    }

    /// Replaces the metadata if the record still has the version that the caller saw.
    ///
    /// # Errors
    /// When it has changed meanwhile ([`Reason::InvalidRequest`] with `data.version`), or the store
    /// fails. Nothing is changed then.
    ///
    /// # Cancel safety
    /// The change is made or not made, in the store and in memory.
    pub async fn set_metadata(self: &Arc<Self>, seen: Version, metadata: Metadata) -> Result<Version, Error> {
        let session = Arc::clone(self);
        finish(&self.inner.tasks, async move { session.write_metadata(seen, metadata).await }).await
    }

    async fn write_metadata(self: &Arc<Self>, seen: Version, metadata: Metadata) -> Result<Version, Error> {
        let _alone = self.writing.acquire().await;
        let (value, deadline) = {
            let state = self.state.lock();
            self.check_alive(&state)?;
            if state.version != seen {
                return Err(changed(state.version));
            }
            self.record(&state, metadata.clone())
        };
        let key = RecordKey::session(self.key);
        match self.inner.store.put(key, value, Expected::Version(seen), deadline).await {
            Ok(version) => {
                let mut state = self.state.lock();
                state.metadata = metadata;
                state.version = version;
                Ok(version)
            }
            Err(StoreError::Conflict { .. }) => {
                self.reconcile().await.map_err(not_saved)?;
                let state = self.state.lock();
                self.check_alive(&state)?;
                Err(changed(state.version))
            }
            Err(error) => Err(not_saved(error)),
        }
    }

    /// Changes the metadata, again and again until nobody else changed it meanwhile.
    ///
    /// # Errors
    /// When the session is over or the store fails. Nothing is changed then.
    ///
    /// # Cancel safety
    /// As for [`Session::set_metadata`].
    pub async fn update_metadata(
        self: &Arc<Self>,
        mut change: impl FnMut(&mut Metadata) + Send,
    ) -> Result<Version, Error> {
        loop {
            let (mut metadata, seen) = self.metadata();
            change(&mut metadata);
            match self.set_metadata(seen, metadata).await {
                Err(error) if error.reason() == Reason::InvalidRequest => {}
                outcome => return outcome,
            }
        }
    }

    /// The record as it should be now, and when to look at it if nothing more is heard of the session.
    pub(super) fn record(&self, state: &State, metadata: Metadata) -> (Bytes, Option<Time>) {
        let last_used = self.use_to_save();
        let delivered = state.delivered();
        self.saved_delivery.store(delivered, Ordering::Relaxed);
        let raw = |json: &crate::message::RawJson| json.read().expect("the handshake was JSON");
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
            idle_ms: Some(super::due::idle_ms(&self.inner.limits)),
            metadata,
        };
        (record.encode(), self.due_in_store(last_used))
    }

    /// Use is not written when it happens, and the last one may be lost in a crash. It came within one idle
    /// time of what is written, so with twice that no session is thought dead too early.
    fn due_in_store(&self, last_used: Time) -> Option<Time> {
        let limits = &self.inner.limits;
        let idle = limits.idle_ttl.map(|ttl| last_used.after(ttl * 2));
        let old = limits.max_lifetime.map(|age| self.created.after(age));
        [idle, old].into_iter().flatten().min()
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
                (self.record(&state, state.metadata.clone()), state.version)
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
    async fn reconcile(self: &Arc<Self>) -> Result<(), StoreError> {
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

fn not_saved(error: StoreError) -> Error {
    Error::new(Reason::StoreUnavailable, "could not save the session").caused_by(error)
}

fn changed(current: Version) -> Error {
    Error::new(Reason::InvalidRequest, "the session has changed meanwhile").with("version", current.0)
}
