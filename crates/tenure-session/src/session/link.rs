//! Opens a link to a server for a new or a woken session, and sends the server notifications and our own requests,
//! among them the settings that the client made at the last server.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use tenure_protocol::{Error, Method, Notification, RawJson, Reason, Reply, Request, Revision, RpcError};
use tokio_util::task::AbortOnDropHandle;

use crate::backend::{Call, Greeting, Link, Open};
use crate::call::CallContext;
use crate::port::observer::Happened;
use crate::session::live_session::{Session, Settled};
use crate::session::phase::Phase;
use crate::session::relink;
use crate::session::sessions::{SessionRuntime, Versioned};

impl SessionRuntime {
    /// Opens a link and gives it to the session. Returns the server's `initialize` result and its revision.
    pub(super) async fn open_link(
        &self,
        session: &Arc<Session>,
        open: Open,
    ) -> Result<(RawJson, Revision), RpcError> {
        let began = self.hub.observer.stopwatch();
        let opened = self.open_untold(session, open).await;
        if let Some(took) = began.map(|began| began.elapsed()) {
            session.tell_observer(match opened {
                Ok(_) => Happened::LinkOpened { took },
                Err(_) => Happened::LinkFailed { took },
            });
        }
        opened
    }

    async fn open_untold(&self, session: &Arc<Session>, open: Open) -> Result<(RawJson, Revision), RpcError> {
        // In its own task: a handler that panics in its handshake must not end the client's connection.
        let backend = Arc::clone(&self.backend);
        let opening = AbortOnDropHandle::new(self.tasks.spawn(async move { backend.open(open).await }));
        let opened = match tokio::time::timeout(self.limits.initialize_timeout, opening).await {
            Ok(Ok(opened)) => opened?,
            Ok(Err(_)) => {
                return Err(RpcError::of(Reason::Internal, "The server failed while starting the session"));
            }
            Err(_) => {
                return Err(RpcError::of(Reason::TimedOut, "The server did not answer initialize in time"));
            }
        };
        let answered = opened.result.read::<Versioned>().ok();
        let revision = answered.and_then(|answered| Revision::parse(&answered.protocol_version));
        let Some(revision) = revision else {
            return Err(RpcError::of(
                Reason::BackendUnavailable,
                "The server answered initialize with a version we do not know",
            ));
        };
        let link: Arc<dyn Link> = Arc::from(opened.link);
        // Before other tasks can send something over the link.
        let is_told = session.tell_initialized(&link, Phase::Initializing);
        match session.take_link(&link) {
            Ok(()) => {
                session.tell_initialized(&link, is_told);
                self.servers.heard(&session.route, &opened.result);
                Ok((opened.result, revision))
            }
            Err(error) => {
                // In another task, because closing may be slow.
                self.closing.spawn(async move { link.close().await });
                Err(error)
            }
        }
    }
}

/// The error for a session whose server could not be started.
pub(super) fn not_started(error: RpcError) -> Error {
    // A reached limit is not a fault of the server, and the client may try again.
    let refused = if error.is(Reason::TooManyProcesses) {
        Error::new(Reason::TooManyProcesses, "As many servers run as may; try again later")
    } else if error.is(Reason::BackendUnauthorized) {
        Error::new(Reason::BackendUnauthorized, "The server behind the session does not accept this gateway")
    } else {
        Error::new(Reason::BackendUnavailable, "The server behind the session could not be started again")
    };
    refused.caused_by(error)
}

impl Session {
    /// Makes this the session's link, unless it is already lost or the session has ended.
    fn take_link(&self, link: &Arc<dyn Link>) -> Result<(), RpcError> {
        let mut state = self.state.lock();
        // The session has ended or the process stops, and the links known at that time are already closed.
        if let Some(Settled { error: over, .. }) = &state.settled {
            return Err(over.clone());
        }
        if state.link_lost == state.link_number {
            return Err(relink::ended_at_once());
        }
        state.link = Some(Arc::clone(link));
        Ok(())
    }

    /// Sends `notifications/initialized` to a new server if the client has sent it since phase `before`. Returns the
    /// phase.
    fn tell_initialized(&self, link: &Arc<dyn Link>, before: Phase) -> Phase {
        let phase = self.state.lock().phase;
        if phase == Phase::Initialized && before != Phase::Initialized {
            self.tell(link.as_ref(), Notification { method: Method::Initialized, params: None });
        }
        phase
    }

    /// Passes a notification to the server, and catches a panic of the handler.
    pub(super) fn tell(&self, link: &dyn Link, notification: Notification) {
        let method = notification.method.clone();
        if std::panic::catch_unwind(AssertUnwindSafe(|| link.notify(notification))).is_err() {
            tracing::error!(session = %self.label, %method, "a handler panicked while handling a notification");
        }
    }

    /// Sends a new server the client's log level and subscriptions.
    pub(super) async fn greet(self: &Arc<Self>) {
        let (link, greeting) = {
            let state = self.state.lock();
            let uris = state.subscriptions.iter().map(|uri| &**uri);
            (state.link.clone(), Greeting::new(state.log_level, uris))
        };
        let Some(link) = link else { return };
        let within = self.inner.limits.initialize_timeout;
        let replies = greeting.send(within, |request| self.inquire(&link, request)).await;
        let mut refused = replies.iter().filter_map(|reply| reply.as_ref().err());
        if let Some(error) = refused.next() {
            let more = refused.count();
            tracing::warn!(session = %self.label, %error, more, "the new server refused a log level or a subscription");
        }
    }

    /// Sends our own request to the server; the client does not see the answer.
    pub(super) async fn inquire(self: &Arc<Self>, link: &Arc<dyn Link>, request: Request) -> Reply {
        let context = CallContext::our_own(Arc::clone(self) as _, &request);
        let (link, call) = (Arc::clone(link), Call { request, context });
        let running = AbortOnDropHandle::new(self.inner.tasks.spawn(async move { link.call(call).await }));
        match tokio::time::timeout(self.inner.limits.initialize_timeout, running).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(_)) => Err(RpcError::of(Reason::Internal, "The server failed while handling the request")),
            Err(_) => Err(RpcError::of(Reason::TimedOut, "The server did not answer in time")),
        }
    }
}
