//! Makes an unused session dormant: closes its link and frees its memory.
//!
//! The record is written first. Then, under the registry lock, the session is removed from the registry if no other
//! task holds it and no work is under way. A later request finds the record and wakes the session.

use std::sync::Arc;

use crate::figures::TimelineEvent;
use crate::port::observer::Happened;
use crate::port::store::{Expected, RecordKey, StoreError};
use crate::session::deadline::Due;
use crate::session::live_session::{Session, SessionState};

/// References to an unused session: the registry's, and that of the task that makes it dormant.
const HOLDERS: usize = 2;

impl Session {
    /// Tries to make the session dormant; if it is in use, it stays as it is.
    pub(super) fn fall_asleep(self: &Arc<Self>) {
        if !self.state.lock().is_quiet() {
            return;
        }
        let session = Arc::clone(self);
        self.inner.tasks.spawn(async move {
            if let Err(error) = session.sleep().await {
                tracing::warn!(session = %session.label, %error, "could not make a session dormant");
            }
        });
    }

    /// Makes the session dormant if it is quiet. Returns whether it is.
    pub(super) async fn sleep(self: &Arc<Self>) -> Result<bool, StoreError> {
        let _alone = self.writing.acquire().await;
        let (value, seen, used) = {
            let state = self.state.lock();
            if state.end.is_some() || state.is_given_up || !state.is_quiet() {
                return Ok(false);
            }
            self.note(TimelineEvent::Slept);
            let (value, _) = self.record(&state, &state.settings);
            (value, state.version, self.last_used())
        };
        // A dormant session has no unsaved use, so this deadline is exact.
        let deadline = crate::settings::after_use(used, self.idle_ttl(), self.created, &self.inner.limits);
        let key = RecordKey::session(self.key);
        let version = match self.inner.store.put(key, value, Expected::Version(seen), deadline).await {
            Ok(version) => version,
            // In a cluster a later owner may have written it.
            Err(StoreError::Conflict { .. }) if self.inner.roster.is_some() => {
                self.take_note_back(TimelineEvent::Slept);
                self.reconcile().await?;
                return Ok(false);
            }
            Err(error) => {
                self.take_note_back(TimelineEvent::Slept);
                return Err(error);
            }
        };
        self.state.lock().version = version;
        let asleep = self.inner.live.remove_if(&self.id, |session| {
            let unused = Arc::strong_count(session) == HOLDERS && self.last_used() == used;
            let state = self.state.lock();
            let asleep = unused && state.end.is_none() && state.is_quiet();
            if asleep {
                // Under the registry lock: later this could remove the subscriptions of the woken session.
                for uri in &state.subscriptions {
                    self.inner.watchers.remove(uri, &self.id);
                }
            }
            asleep
        });
        if asleep.is_none() {
            self.take_note_back(TimelineEvent::Slept);
            // A request came meanwhile: the deadline in the record must again allow for unsaved use.
            let mut state = self.state.lock();
            self.save(&mut state);
            return Ok(false);
        }
        tracing::debug!(session = %self.label, "session is dormant");
        self.tell_observer(Happened::Slept);
        self.let_go();
        // Last: a node that wakes it then finds the record as it is now.
        self.release().await;
        Ok(true)
    }

    /// Releases the deadline entry and the link of a session that goes on in the store. It still counts as a session.
    pub(super) fn let_go(&self) {
        let link = {
            let mut state = self.state.lock();
            if let Some(due) = state.due.take() {
                self.inner.deadlines.remove(due, Due::Session(self.id));
            }
            if let Some(count_guard) = state.count_guard.take() {
                count_guard.keep();
            }
            state.link.take()
        };
        if let Some(link) = link {
            self.inner.closing.spawn(async move { link.close().await });
        }
    }
}

impl SessionState {
    /// Whether no work is under way and the store has everything.
    fn is_quiet(&self) -> bool {
        let resting = |stream: &crate::session::stream::EventStream| {
            let is_logged = stream.unlogged.is_empty() && !stream.end_not_logged && !stream.is_missing;
            stream.reader.is_none() && stream.queued == 0 && is_logged
        };
        self.running == 0
            && self.calls.is_empty()
            && self.asks.is_empty()
            && !self.saving
            && !self.trimming
            && !self.unsaved
            && self.outbox.is_empty()
            && self.streams.values().all(resting)
    }
}
