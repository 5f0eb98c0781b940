//! Keeps the idle time of a session from running while something other than a request or a reader uses it.
//!
//! A new session is used until its client has the answer to `initialize`, and a session of a connection (stdio, `/sse`,
//! `/ws`) until the connection ends, also between two readers of its stream.

use std::sync::Arc;

use crate::session::live_session::Session;

/// The session does not expire by its idle time before this is dropped; the idle time starts anew then.
#[derive(Debug)]
pub struct UseGuard(Arc<Session>);

impl Session {
    /// Counts as use of the session until the guard is dropped.
    #[must_use]
    pub fn in_use(self: &Arc<Self>) -> UseGuard {
        self.state.lock().guards += 1;
        UseGuard(Arc::clone(self))
    }
}

impl Drop for UseGuard {
    fn drop(&mut self) {
        self.0.used_now();
        self.0.state.lock().guards -= 1;
        // A stop may wait for the end of its use.
        self.0.inner.stir();
    }
}
