//! Gives the sessions of a node that stops to the other nodes of its cluster, each as soon as nothing runs in it here.
//!
//! In: the sessions in memory, once this node drains. Out: sessions that are saved and released, so that the next request
//! wakes them at another node. Requests that come meanwhile are refused before they begin; the transport holds them and
//! sends them to the next owner. Readers are told to come back.
//!
//! Without another node to take them, sessions stay until the stop ends, as outside of a cluster.

use std::sync::Arc;
use std::time::Duration;

use crate::session::deadline::Due;
use crate::session::drain::DrainStage;
use crate::session::live_session::{Session, SessionState};
use crate::session::sessions::SessionRuntime;

/// Longest wait for the last writes of a session to the store.
const LAST_WRITES: Duration = Duration::from_secs(5);

/// Shortest time between two looks at all sessions, however often a request ends.
const LOOK_PAUSE: Duration = Duration::from_millis(5);

impl SessionRuntime {
    /// Whether another node takes new requests in place of this one, which stops.
    pub(super) fn leaves_to_others(&self) -> bool {
        self.stage() >= DrainStage::Draining
            && self.roster.as_ref().is_some_and(|roster| !roster.takers().is_empty())
    }

    /// Gives away each session as soon as nothing runs in it, until the stop has settled all.
    pub(super) fn give_away_quiet(self: &Arc<Self>) {
        let (inner, stop) = (Arc::clone(self), self.stop.clone());
        self.tasks.spawn(async move {
            stop.run_until_cancelled(inner.watch_for_quiet()).await;
        });
    }

    async fn watch_for_quiet(self: Arc<Self>) {
        while self.stage() < DrainStage::Left {
            let stirred = self.idle.notified();
            tokio::pin!(stirred);
            // Register before the look, so that no notification is missed.
            stirred.as_mut().enable();
            if self.leaves_to_others() {
                for session in self.live.all() {
                    if session.leaves_if_quiet() {
                        self.tasks.spawn(async move { session.give_away().await });
                    }
                }
            }
            stirred.await;
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    }

    /// Gives away all sessions that are left, at the end of a stop. Their requests have been left or answered.
    pub(super) async fn give_away_all(self: &Arc<Self>) {
        let each = self.live.all().into_iter().map(|session| async move { session.give_away().await });
        futures_util::future::join_all(each).await;
    }
}

impl Session {
    /// Leaves the session if nothing runs in it that has to end here.
    fn leaves_if_quiet(self: &Arc<Self>) -> bool {
        let is_late = self.inner.stage() >= DrainStage::Holding;
        self.leave_if(|session, state| !state.is_given_up && session.may_leave(state, is_late)).is_some()
    }

    fn may_leave(&self, state: &SessionState, is_late: bool) -> bool {
        // A connection that carries the whole session ends first, and a batch is taken in as a whole.
        let noted = state.calls.values().filter(|call| call.stream.is_some()).count();
        let open: usize =
            state.streams.values().filter(|stream| !stream.ended).map(|stream| stream.open).sum();
        if state.guards > 0 || open > noted {
            return false;
        }
        match is_late {
            false => state.running == 0 && state.calls.values().all(|call| call.is_held),
            true => state.calls.values().all(|call| call.stream.is_some() && self.is_left_open(state, call)),
        }
    }

    /// Writes what the next owner needs, forgets the session here, and releases it. Called after it was left.
    async fn give_away(self: Arc<Self>) {
        if self.inner.roster.is_none() {
            return;
        }
        let written = async {
            self.log_is_written().await;
            {
                let mut state = self.state.lock();
                self.save(&mut state);
            }
            self.saved().await;
        };
        let is_written = tokio::time::timeout(LAST_WRITES, written).await.is_ok();
        if !is_written {
            tracing::warn!(session = %self.label(), "a session is released before all of it was written");
        }
        {
            let mut state = self.state.lock();
            if state.end.is_some() || state.is_given_up {
                return;
            }
            // From here on the record and the log belong to the next owner. Readers still deliver what they have.
            (state.is_given_up, state.left) = (true, true);
            if !is_written {
                // Events that are not in the log are not shown, and their waiters would wait for ever.
                self.interrupt_all(&mut state);
            }
            for uri in &std::mem::take(&mut state.subscriptions) {
                self.inner.watchers.remove(uri, self.id());
            }
            if let Some(due) = state.due.take() {
                self.inner.deadlines.remove(due, Due::Session(*self.id()));
            }
        }
        self.inner.live.remove_if(self.id(), |session| Arc::ptr_eq(session, &self));
        self.let_go();
        // Last: a node that wakes it then finds the record as it is now.
        self.release().await;
        tracing::debug!(session = %self.label(), "session given to the other nodes");
    }
}
