//! Serves handlers that live in this process and are written against the port itself.
//!
//! A handler gets requests with unparsed params and answers with raw JSON, so we parse and build only what the handler
//! asks for. Each session has a handler of its own, whose data belongs to that session. One more handler serves all
//! requests without a session.

use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};
use tenure_protocol::modern::ResultType;
use tenure_protocol::translate::questions;
use tenure_protocol::{Method, Notification, RawJson, Reason, Reply, Request, RpcError};
use tenure_session::backend::{Backend, Call, Link, Open, Opened, Responder};
use tenure_session::call::{Fanout, Outlet, input_required};
use tenure_session::exchange::Listens;
use tenure_session::port::BoxFuture;

/// Answers the requests of one session, or all requests without a session.
pub trait Handler: Send + Sync + 'static {
    /// The server's description of itself for `initialize`.
    fn introduction(&self) -> Introduction;

    /// Answers a request. It may ask the client something through the context of the call, or answer with a result of
    /// type `input_required` and be called again with the answers: either way works for clients of either era.
    fn call(self: Arc<Self>, call: Call) -> impl Future<Output = Reply> + Send + 'static;

    /// Receives a notification. Must not block.
    fn hear(&self, notification: Notification) {
        drop(notification);
    }
}

/// A server's description of itself for `initialize`.
#[derive(Clone, Debug)]
pub struct Introduction {
    /// The server's name.
    pub name: &'static str,
    /// The server's version.
    pub version: &'static str,
    /// Its capabilities, in the shape of the specification.
    pub capabilities: Value,
    /// Instructions for the model, if there are any.
    pub instructions: Option<&'static str>,
}

/// Where a new handler can send messages.
#[derive(Debug)]
pub struct Made<'a> {
    fanout: &'a Fanout,
    outlet: Option<&'a Outlet>,
}

impl Made<'_> {
    /// For news to all clients.
    pub fn fanout(&self) -> &Fanout {
        self.fanout
    }

    /// For messages to the session that belong to no request. `None` if the handler serves requests without a session.
    pub fn outlet(&self) -> Option<&Outlet> {
        self.outlet
    }
}

/// A backend that makes one handler per session, and one for all requests without a session.
pub struct Native<F> {
    make: F,
}

impl<F, H> Native<F>
where
    F: Fn(&Made<'_>) -> H + Send + Sync + 'static,
    H: Handler,
{
    /// A backend whose handlers come from `make`.
    pub fn new(make: F) -> Self {
        Self { make }
    }
}

impl<F, H> Backend for Native<F>
where
    F: Fn(&Made<'_>) -> H + Send + Sync + 'static,
    H: Handler,
{
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let handler = (self.make)(&Made { fanout: &open.fanout, outlet: Some(&open.outlet) });
        let introduction = handler.introduction();
        let mut result = json!({
            "protocolVersion": open.revision.as_str(),
            "capabilities": introduction.capabilities,
            "serverInfo": introduction.server_info(),
        });
        if let Some(instructions) = introduction.instructions {
            result["instructions"] = instructions.into();
        }
        let link = Box::new(NativeLink { handler: Arc::new(handler) });
        Box::pin(std::future::ready(Ok(Opened { link, result: RawJson::of(&result) })))
    }

    fn responder(self: Arc<Self>) -> Option<Arc<dyn Responder>> {
        Some(Arc::new(NativeResponder { native: self, started: OnceLock::new() }))
    }
}

impl Introduction {
    fn server_info(&self) -> Value {
        json!({ "name": self.name, "version": self.version })
    }
}

/// Answers requests without a session.
struct NativeResponder<F, H> {
    native: Arc<Native<F>>,
    started: OnceLock<StartedNative<H>>,
}

struct StartedNative<H> {
    handler: Arc<H>,
    server_info: RawJson,
    discovery: RawJson,
    capabilities: RawJson,
    listens: Listens,
}

impl<F, H> Responder for NativeResponder<F, H>
where
    F: Fn(&Made<'_>) -> H + Send + Sync + 'static,
    H: Handler,
{
    fn begin(&self, fanout: Fanout) {
        self.started.get_or_init(|| {
            let handler = (self.native.make)(&Made { fanout: &fanout, outlet: None });
            let introduction = handler.introduction();
            let mut discovery = json!({ "capabilities": introduction.capabilities });
            if let Some(instructions) = introduction.instructions {
                discovery["instructions"] = instructions.into();
            }
            StartedNative {
                handler: Arc::new(handler),
                server_info: RawJson::of(&introduction.server_info()),
                discovery: RawJson::of(&discovery),
                capabilities: RawJson::of(&introduction.capabilities),
                listens: Listens::new(&fanout),
            }
        });
    }

    fn server_info(&self) -> Option<RawJson> {
        self.started.get().map(|started| started.server_info.clone())
    }

    fn respond(&self, call: Call) -> BoxFuture<Reply> {
        let Some(started) = self.started.get() else {
            let error = RpcError::of(Reason::Internal, "The server has not been started");
            return Box::pin(std::future::ready(Err(error)));
        };
        match call.request.method {
            Method::Discover => Box::pin(std::future::ready(Ok(started.discovery.clone()))),
            Method::Listen => {
                let (listens, capabilities) = (started.listens.clone(), started.capabilities.clone());
                Box::pin(async move { listens.serve(call, &capabilities).await })
            }
            _ => Box::pin(Arc::clone(&started.handler).call(call)),
        }
    }
}

struct NativeLink<H> {
    handler: Arc<H>,
}

impl<H: Handler> Link for NativeLink<H> {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        let handler = Arc::clone(&self.handler);
        if !questions::may_be_asked(&call.request.method) {
            return Box::pin(handler.call(call));
        }
        let (request, context) = (call.request.clone(), call.context.clone());
        let first = Arc::clone(&handler).call(call);
        Box::pin(async move {
            let result = first.await?;
            if ResultType::of(&result) != ResultType::InputRequired {
                return Ok(result);
            }
            // Clients with sessions do not know this result type. We ask the client and call the handler again with the
            // answers.
            let again = |request: Request| -> BoxFuture<Reply> {
                Box::pin(Arc::clone(&handler).call(Call { request, context: context.clone() }))
            };
            // Boxed: this is rare, and unboxed it would enlarge the future of every call.
            Box::pin(input_required::go_on(&context, request, result, again)).await
        })
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
