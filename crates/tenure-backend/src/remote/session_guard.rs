//! A session at the server, which is ended there when nobody holds it any more.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use reqwest::Response;
use tokio_util::sync::CancellationToken;

use crate::remote::http_client::{Door, Visit, broken, session_in};
use crate::remote::outage::Fault;

/// How long the end of a session there may take.
pub(super) const FAREWELL: Duration = Duration::from_secs(2);
/// How long a server may take to name a session after nobody wants it any more.
const LATE: Duration = Duration::from_secs(60);

/// Ends the session when dropped: a handshake may fail or be given up after the server has named one.
pub(super) struct Stay {
    door: Arc<Door>,
    visit: Visit,
}

impl Stay {
    /// Posts `initialize`. Whatever session the server names is ended, also if nobody waits for its name any more.
    pub(super) async fn begin(door: &Arc<Door>, initialize: Bytes) -> Result<(Response, Self), Fault> {
        let (waited_for, door) = (CancellationToken::new(), Arc::clone(door));
        let given_up = waited_for.clone();
        let _waiting = waited_for.drop_guard();
        #[expect(clippy::disallowed_methods, reason = "it ends by itself soon after its owner")]
        let posting = tokio::spawn(async move {
            let late = async {
                given_up.cancelled().await;
                tokio::time::sleep(LATE).await;
            };
            let mut visit = Visit::default();
            let response = tokio::select! {
                biased;
                response = door.send(&visit, initialize) => response?,
                () = late => return Err(Fault::Final(broken("The server did not answer initialize"))),
            };
            visit.session = session_in(&response);
            Ok((response, Self { door, visit }))
        });
        posting.await.unwrap_or_else(|_| Err(Fault::Final(broken("The server could not be asked"))))
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
