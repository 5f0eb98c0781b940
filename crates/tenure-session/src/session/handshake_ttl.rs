//! A shorter idle time for sessions whose clients send nothing after `initialize`.
//!
//! Until the client sends a message or opens a stream, its session lives only for
//! [`Limits::handshake_ttl`](crate::Limits::handshake_ttl). The first use is saved at once, so that the deadline in the
//! record is exact, and a used session survives a kill like any other.
//!
//! A session with its own idle time uses only that.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::session::live_session::{Session, SessionState};
use crate::settings::IdleTtl;

/// The record of such a session has no idle times, so that all readers, including earlier versions, use its deadline.
pub(super) const NOTED: (Option<u64>, Option<u64>) = (None, None);

impl Session {
    /// Starts the shorter idle time of a new session.
    pub(super) fn wait_for_client(&self) {
        let Some(ttl) = self.inner.limits.handshake_ttl else { return };
        let state = self.state.lock();
        if state.settings.ttl != IdleTtl::Default || self.idle_ttl().is_some_and(|idle| idle <= ttl) {
            return;
        }
        self.is_unheard.store(true, Ordering::Relaxed);
        self.idle_ms.store(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Whether the client has sent nothing since `initialize`.
    pub(super) fn is_unheard(&self) -> bool {
        self.is_unheard.load(Ordering::Relaxed)
    }

    /// Records a use by the client. The first use saves the record.
    pub(super) fn hear_of_client(self: &Arc<Self>, state: &mut SessionState) {
        if self.stop_waiting(state) {
            self.save(state);
        }
    }

    /// Ends the shorter idle time. Returns true if it was in force.
    pub(super) fn stop_waiting(&self, state: &SessionState) -> bool {
        let is_new = self.is_unheard.swap(false, Ordering::Relaxed);
        if is_new {
            self.set_idle_ttl(state.settings.ttl);
        }
        is_new
    }
}
