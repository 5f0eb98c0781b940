//! Going dormant: a session that nobody uses lets go of its server and of its memory.
//!
//! The record is written first. Then, while nobody can look the session up, it is checked that nobody holds it
//! and nothing happens in it, and it is taken out of memory. Whoever comes later finds the record.

use std::sync::Arc;

use crate::port::store::{Expected, RecordKey, StoreError};
use crate::session::deadline::Due;
use crate::session::session::{Session, State};

/// Who holds a session that nobody uses: the list of live ones, and the task that puts it to sleep.
const HOLDERS: usize = 2;

impl Session {
    /// Tries to go dormant; if that is not possible now, the session stays as it is.
    pub(super) fn fall_asleep(self: &Arc<Self>) {
        if !self.state.lock().is_quiet() {
            return;
        }
        let session = Arc::clone(self);
        self.inner.tasks.spawn(async move {
            if let Err(error) = session.sleep().await {
                tracing::warn!(session = %session.label, %error, "could not put a session to sleep");
            }
        });
    }

    async fn sleep(self: &Arc<Self>) -> Result<(), StoreError> {
        let _alone = self.writing.acquire().await;
        let (value, seen, used) = {
            let state = self.state.lock();
            if state.end.is_some() || !state.is_quiet() {
                return Ok(());
            }
            let (value, _) = self.record(&state, &state.settings);
            (value, state.version, self.last_used())
        };
        // While it sleeps nobody uses it unseen, so here the deadline is exact.
        let deadline =
            crate::session::idle_ttl::after_use(used, self.idle_ttl(), self.created, &self.inner.limits);
        let key = RecordKey::session(self.key);
        let version = self.inner.store.put(key, value, Expected::Version(seen), deadline).await?;
        self.state.lock().version = version;
        let asleep = self.inner.live.remove_if(&self.id, |session| {
            let unused = Arc::strong_count(session) == HOLDERS && self.last_used() == used;
            let state = self.state.lock();
            let asleep = unused && state.end.is_none() && state.is_quiet();
            if asleep {
                // While nobody can wake it: afterwards they would be those of the woken session.
                for uri in &state.subscriptions {
                    self.inner.watchers.remove(uri, &self.id);
                }
            }
            asleep
        });
        match asleep {
            Some(_) => {
                tracing::debug!(session = %self.label, "session fell asleep");
                self.let_go();
            }
            None => {
                // Somebody came in between: the record has to allow for use that is not written down again.
                let mut state = self.state.lock();
                self.save(&mut state);
            }
        }
        Ok(())
    }

    /// Gives back what a session holds in memory; it goes on in the store.
    pub(super) fn let_go(&self) {
        let link = {
            let mut state = self.state.lock();
            if let Some(due) = state.due.take() {
                self.inner.deadlines.remove(due, Due::Session(self.id));
            }
            if let Some(seat) = state.seat.take() {
                seat.keep();
            }
            state.link.take()
        };
        if let Some(link) = link {
            self.inner.closing.spawn(async move { link.close().await });
        }
    }
}

impl State {
    /// Whether nothing happens and nothing is at hand that the store does not have.
    fn is_quiet(&self) -> bool {
        let resting = |stream: &crate::session::stream::Stream| {
            let is_logged = stream.unlogged.is_empty() && !stream.unfinished && !stream.is_missing;
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
