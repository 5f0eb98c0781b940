//! Ends a session at the server when its guard is dropped.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use reqwest::Response;
use tokio_util::sync::CancellationToken;

use crate::remote::credentials::OnBehalf;
use crate::remote::http_client::{HttpClient, SessionHeaders, broken, session_in};
use crate::remote::outage::Fault;

/// How long the DELETE of a session may take.
pub(super) const FAREWELL: Duration = Duration::from_secs(2);
/// How long we wait for the session's id after the caller has given up, in order to end the session.
const LATE: Duration = Duration::from_secs(60);

/// Ends the session when dropped: a handshake may fail or be given up after the server has named a session.
pub(super) struct SessionGuard {
    http: Arc<HttpClient>,
    session: SessionHeaders,
}

impl SessionGuard {
    /// Posts `initialize`. Runs in a task of its own, so that a session is ended even if the caller gives up before the
    /// server has named it.
    pub(super) async fn begin(
        http: &Arc<HttpClient>,
        whom: OnBehalf,
        initialize: Bytes,
    ) -> Result<(Response, Self), Fault> {
        let (waited_for, http) = (CancellationToken::new(), Arc::clone(http));
        let given_up = waited_for.clone();
        let _waiting = waited_for.drop_guard();
        #[expect(clippy::disallowed_methods, reason = "it ends by itself soon after its owner")]
        let posting = tokio::spawn(async move {
            let late = async {
                given_up.cancelled().await;
                tokio::time::sleep(LATE).await;
            };
            let mut session = SessionHeaders::of(whom);
            let response = tokio::select! {
                biased;
                response = http.send(&session, initialize) => response?,
                () = late => return Err(Fault::Final(broken("The server did not answer initialize"))),
            };
            session.id = session_in(&response);
            Ok((response, Self { http, session }))
        });
        posting.await.unwrap_or_else(|_| Err(Fault::Final(broken("The server could not be asked"))))
    }

    /// Sets the revision that the server has answered with.
    pub(super) fn agreed(&mut self, version: Option<HeaderValue>) {
        self.session.version = version;
    }

    pub(super) fn session(&self) -> &SessionHeaders {
        &self.session
    }

    /// Ends the session, and waits for the answer.
    pub(super) async fn end(mut self) {
        if self.session.id.is_some() {
            drop(tokio::time::timeout(FAREWELL, self.http.delete(&self.session)).await);
        }
        // Clear the id only now: if this future is dropped earlier, `drop` tries again.
        self.session.id = None;
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        if self.session.id.is_some() {
            let (http, session) = (Arc::clone(&self.http), self.session.clone());
            spawn_last(async move { http.delete(&session).await });
        }
    }
}

/// Spawns a last message. No owner is left for the task, so it has a short timeout.
pub(super) fn spawn_last(message: impl Future<Output = ()> + Send + 'static) {
    // Without a runtime the process is ending.
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    runtime.spawn(async move { drop(tokio::time::timeout(FAREWELL, message).await) });
}
