//! The link of one session to a server that it shares with others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tenure_protocol::{Method, Notification, Reason, Reply, RpcError, params};
use tenure_session::backend::{Call, Link};
use tenure_session::call::CallContext;
use tenure_session::port::BoxFuture;
use tokio::sync::oneshot;

use super::member::MemberSession;
use super::server::SharedServer;
use crate::child::shared::members::spawn;
use crate::pending::{gone, unless_cancelled};

pub(super) struct SharedLink {
    pub(super) server: Arc<SharedServer>,
    pub(super) member: Arc<MemberSession>,
    pub(super) has_left: AtomicBool,
}

impl SharedLink {
    fn subscribe(&self, uri: String, context: CallContext) -> BoxFuture<Reply> {
        let (members, member) = (Arc::clone(&self.server.members), Arc::clone(&self.member));
        finish_in_task(context, async move |tell: oneshot::Sender<Reply>| {
            members.topics.subscribe(&member, &uri, tell).await;
        })
    }

    fn unsubscribe(&self, uri: String, context: CallContext) -> BoxFuture<Reply> {
        let (members, member) = (Arc::clone(&self.server.members), Arc::clone(&self.member));
        finish_in_task(context, async move |tell: oneshot::Sender<Reply>| {
            // The receiver may have been dropped.
            drop(tell.send(members.topics.unsubscribe(&member, &uri).await));
        })
    }

    fn set_level(&self, level: params::LogLevel, context: CallContext) -> BoxFuture<Reply> {
        let (members, member) = (Arc::clone(&self.server.members), self.member.number);
        finish_in_task(context, async move |tell: oneshot::Sender<Reply>| {
            drop(tell.send(members.levels.set(member, level).await));
        })
    }

    /// Leaves the server. Returns the end of the server, if this was its last session.
    fn leave(&self) -> Option<BoxFuture<()>> {
        if self.has_left.swap(true, Ordering::Relaxed) {
            return None;
        }
        self.server.members.leave(&self.member).then(|| self.server.end())
    }
}

impl Link for SharedLink {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        let Call { request, context } = call;
        let params = request.params.as_ref();
        match request.method {
            Method::ResourcesSubscribe => match params::subscription_uri(params) {
                Some(uri) => self.subscribe(uri, context),
                None => unclear("The uri cannot be read"),
            },
            Method::ResourcesUnsubscribe => match params::subscription_uri(params) {
                Some(uri) => self.unsubscribe(uri, context),
                None => unclear("The uri cannot be read"),
            },
            Method::LoggingSetLevel => match params::log_level(params) {
                Some(level) => self.set_level(level, context),
                None => unclear("There is no such log level"),
            },
            _ => {
                let traffic = Arc::clone(&self.server.members.traffic);
                Box::pin(traffic.carry(Arc::clone(&self.member), request, context))
            }
        }
    }

    fn notify(&self, notification: Notification) {
        let Notification { method, params } = notification;
        match method {
            // We have sent `initialized` ourselves, and the server knows no roots and may ask no questions.
            Method::Initialized | Method::RootsListChanged | Method::Progress => {}
            _ if self.server.members.traffic.notify(&method, params.as_ref()) => {}
            _ => {
                tracing::warn!(
                    %method, child = self.server.id(),
                    "the queue to the server is full; dropped a notification"
                );
            }
        }
    }

    fn close(&self) -> BoxFuture<()> {
        self.leave().unwrap_or_else(|| Box::pin(std::future::ready(())))
    }
}

impl Drop for SharedLink {
    fn drop(&mut self) {
        drop(self.leave());
    }
}

/// Refuses a request that we cannot read: its effect on the server would hold for all sessions.
fn unclear(what: &'static str) -> BoxFuture<Reply> {
    Box::pin(std::future::ready(Err(RpcError::of(Reason::InvalidParams, what))))
}

/// Runs `work` in a task of its own, so that it finishes even if the request is dropped.
fn finish_in_task<W: Future<Output = ()> + Send + 'static>(
    context: CallContext,
    work: impl FnOnce(oneshot::Sender<Reply>) -> W,
) -> BoxFuture<Reply> {
    let (tell, told) = oneshot::channel();
    spawn(work(tell));
    Box::pin(
        async move { unless_cancelled(&context, async { told.await.unwrap_or_else(|_| Err(gone())) }).await },
    )
}
