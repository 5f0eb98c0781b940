//! The link of one session to a server that it shares with others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tenure_protocol::{Method, Notification, Reason, Reply, RpcError, params};
use tenure_session::backend::{Call, Link};
use tenure_session::call::CallContext;
use tenure_session::port::BoxFuture;
use tokio::sync::oneshot;

use super::member::Member;
use super::server::Server;
use crate::child::shared::members::spawn;
use crate::pending::gone;

pub(super) struct SharedLink {
    pub(super) server: Arc<Server>,
    pub(super) member: Arc<Member>,
    pub(super) has_left: AtomicBool,
}

impl SharedLink {
    fn subscribe(&self, uri: String, context: CallContext) -> BoxFuture<Reply> {
        let (crowd, member) = (Arc::clone(&self.server.crowd), Arc::clone(&self.member));
        settled(context, async move |tell: oneshot::Sender<Reply>| {
            crowd.topics.subscribe(&member, &uri, tell).await;
        })
    }

    fn unsubscribe(&self, uri: String, context: CallContext) -> BoxFuture<Reply> {
        let (crowd, member) = (Arc::clone(&self.server.crowd), Arc::clone(&self.member));
        settled(context, async move |tell: oneshot::Sender<Reply>| {
            // Whoever asked may have left.
            drop(tell.send(crowd.topics.unsubscribe(&member, &uri).await));
        })
    }

    fn set_level(&self, level: params::LogLevel, context: CallContext) -> BoxFuture<Reply> {
        let (crowd, member) = (Arc::clone(&self.server.crowd), self.member.number);
        settled(context, async move |tell: oneshot::Sender<Reply>| {
            drop(tell.send(crowd.levels.set(member, level).await));
        })
    }

    /// Returns what has to be waited for.
    fn leave(&self) -> Option<BoxFuture<()>> {
        if self.has_left.swap(true, Ordering::Relaxed) {
            return None;
        }
        self.server.crowd.leave(&self.member).then(|| self.server.end())
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
                let traffic = Arc::clone(&self.server.crowd.traffic);
                Box::pin(traffic.carry(Arc::clone(&self.member), request, context))
            }
        }
    }

    fn notify(&self, notification: Notification) {
        let Notification { method, params } = notification;
        match method {
            // It has heard that from us, and roots and questions it does not know of.
            Method::Initialized | Method::RootsListChanged | Method::Progress => {}
            _ if self.server.crowd.traffic.notify(&method, params.as_ref()) => {}
            _ => {
                tracing::warn!(%method, child = self.server.id(), "the server is behind; dropped a notification");
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

/// Refuses what we cannot read: whatever the server made of it would hold for all sessions.
fn unclear(what: &'static str) -> BoxFuture<Reply> {
    Box::pin(std::future::ready(Err(RpcError::of(Reason::InvalidParams, what))))
}

/// Does something that has to come to an end, whether or not somebody waits for it.
fn settled<W: Future<Output = ()> + Send + 'static>(
    context: CallContext,
    work: impl FnOnce(oneshot::Sender<Reply>) -> W,
) -> BoxFuture<Reply> {
    let (tell, told) = oneshot::channel();
    spawn(work(tell));
    Box::pin(async move {
        tokio::select! {
            biased;
            reply = told => reply.unwrap_or_else(|_| Err(gone())),
            () = context.cancelled() => Err(RpcError::of(Reason::Cancelled, "The request was cancelled")),
        }
    })
}
