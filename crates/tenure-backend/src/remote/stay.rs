//! A session at the server, which is ended there when nobody holds it any more.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;

use super::door::{Door, Visit};

/// How long the end of a session there may take.
pub(super) const FAREWELL: Duration = Duration::from_secs(2);

/// Ends the session when dropped: a handshake may fail or be given up after the server has named one.
pub(super) struct Stay {
    door: Arc<Door>,
    visit: Visit,
}

impl Stay {
    pub(super) fn new(door: Arc<Door>, session: Option<HeaderValue>) -> Self {
        Self { door, visit: Visit { session, version: None } }
    }

    /// The server has said which revision it speaks.
    pub(super) fn agreed(&mut self, version: Option<HeaderValue>) {
        self.visit.version = version;
    }

    pub(super) fn visit(&self) -> &Visit {
        &self.visit
    }

    /// Ends it, and waits for that.
    pub(super) async fn end(mut self) {
        if self.visit.session.is_some() {
            drop(tokio::time::timeout(FAREWELL, self.door.delete(&self.visit)).await);
        }
        // Only now: should this be given up halfway, it is tried once more.
        self.visit.session = None;
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        if self.visit.session.is_some() {
            let (door, visit) = (Arc::clone(&self.door), self.visit.clone());
            part(async move { door.delete(&visit).await });
        }
    }
}

/// Says something last. Nobody is left to hold the task, so its time is short.
pub(super) fn part(say: impl Future<Output = ()> + Send + 'static) {
    // Without a runtime the process is ending.
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    runtime.spawn(async move { drop(tokio::time::timeout(FAREWELL, say).await) });
}
