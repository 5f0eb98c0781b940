//! Handshakes that their clients do not go on with: such a session has less time than others.
//!
//! A session is begun by `initialize`. Until anything else is heard of its client (a message, or a stream that it opens), it
//! keeps its place for [`Limits::handshake_ttl`](crate::Limits::handshake_ttl) alone. The first thing heard is written down as
//! it happens, so that the time in the record is exact, and a session that was used outlives a kill as any other.
//!
//! A session with an idle time of its own follows nothing else, and so not this.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::session::idle_ttl::IdleTtl;
use crate::session::session::{Session, State};

/// What a record of such a session says of idle times: nothing, so that readers go by its deadline, also those that do not know
/// of handshakes.
pub(super) const NOTED: (Option<u64>, Option<u64>) = (None, None);

impl Session {
    /// The client is told of the session, and has to be heard of in time.
    pub(super) fn wait_for_client(&self) {
        let Some(ttl) = self.inner.limits.handshake_ttl else { return };
        let state = self.state.lock();
        if state.settings.ttl != IdleTtl::Default || self.idle_ttl().is_some_and(|idle| idle <= ttl) {
            return;
        }
        self.is_unheard.store(true, Ordering::Relaxed);
        self.idle_ms.store(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Whether nothing was heard of the client since `initialize`.
    pub(super) fn is_unheard(&self) -> bool {
        self.is_unheard.load(Ordering::Relaxed)
    }

    /// The client was heard of. The first time, that is written down.
    pub(super) fn hear_of_client(self: &Arc<Self>, state: &mut State) {
        if self.stop_waiting(state) {
            self.save(state);
        }
    }

    /// From now on the session lives as long as any other. True if that is new.
    pub(super) fn stop_waiting(&self, state: &State) -> bool {
        let is_new = self.is_unheard.swap(false, Ordering::Relaxed);
        if is_new {
            self.set_idle_ttl(state.settings.ttl);
        }
        is_new
    }
}
