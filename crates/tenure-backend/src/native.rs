//! Serves handlers that live in this process and are written against the port itself.
//!
//! A handler gets requests with their params unread and answers with raw JSON, so nothing is parsed or
//! built that it does not ask for. One handler is made per session; what it keeps is the session's.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_session::port::BoxFuture;
use tenure_session::port::backend::{Backend, Call, Link, Open, Opened, Reply};
use tenure_session::{Notification, RawJson, RpcError};

/// Answers the requests of one session.
pub trait Handler: Send + Sync + 'static {
    /// What the server says of itself at `initialize`.
    fn introduction(&self) -> Introduction;

    /// Answers a request.
    fn call(self: Arc<Self>, call: Call) -> impl Future<Output = Reply> + Send + 'static;

    /// Hears a notification. Must not wait.
    fn hear(&self, notification: Notification) {
        drop(notification);
    }
}

/// What a server says of itself at `initialize`.
#[derive(Clone, Debug)]
pub struct Introduction {
    /// The server's name.
    pub name: &'static str,
    /// The server's version.
    pub version: &'static str,
    /// Its capabilities, in the shape of the specification.
    pub capabilities: Value,
    /// What a model should know about it.
    pub instructions: Option<&'static str>,
}

/// A backend that makes a handler for every session.
pub struct Native<F> {
    make: F,
}

impl<F, H> Native<F>
where
    F: Fn(&Open) -> H + Send + Sync + 'static,
    H: Handler,
{
    /// A backend whose handlers come from `make`.
    pub fn new(make: F) -> Self {
        Self { make }
    }
}

impl<F, H> Backend for Native<F>
where
    F: Fn(&Open) -> H + Send + Sync + 'static,
    H: Handler,
{
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let handler = (self.make)(&open);
        let introduction = handler.introduction();
        let mut result = json!({
            "protocolVersion": open.revision.as_str(),
            "capabilities": introduction.capabilities,
            "serverInfo": { "name": introduction.name, "version": introduction.version },
        });
        if let Some(instructions) = introduction.instructions {
            result["instructions"] = instructions.into();
        }
        let link = Box::new(NativeLink { handler: Arc::new(handler) });
        Box::pin(std::future::ready(Ok(Opened { link, result: RawJson::of(&result) })))
    }
}

struct NativeLink<H> {
    handler: Arc<H>,
}

impl<H: Handler> Link for NativeLink<H> {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        Box::pin(Arc::clone(&self.handler).call(call))
    }

    fn notify(&self, notification: Notification) {
        self.handler.hear(notification);
    }

    fn close(&self) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }
}

impl<F> std::fmt::Debug for Native<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Native")
    }
}
