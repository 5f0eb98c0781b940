//! Serves any rmcp `ServerHandler`: one handler per session, and one for each request without a session (`exchange`).
//!
//! In a session:
//!
//! rmcp's own service loop runs per session, because only that loop can make the `Peer` through which a
//! handler talks to the client. If no other request is in flight, we call the handler directly and skip
//! the loop, which saves three hops between tasks. A second request that comes meanwhile goes through
//! the loop, because the loop then tells us which request a message belongs to. So a message from a
//! handler goes to the stream of the request that the loop named, or else to the stream of the request
//! that was called in place, or else to the session's own stream.

mod attempt;
mod traffic;

mod exchange;
mod exchange_peer;

mod session;
mod state;
mod task;

mod convert;
mod panic_guard;

use std::sync::Arc;

use ::rmcp::ServerHandler;
use ::rmcp::model::{
    ClientNotification, ClientRequest, InitializeRequestParams, JsonRpcMessage, NumberOrString,
};
use ::rmcp::service::{Peer, RequestContext, RoleServer, RunningService, serve_directly};
use tenure_protocol::Reply;
use tenure_protocol::modern::ResultType;
use tenure_protocol::translate::questions;
use tenure_protocol::{Notification, RawJson, Reason, Request, RpcError};
use tenure_session::backend::Responder;
use tenure_session::backend::{Backend, Call, Link, Open, Opened};
use tenure_session::call::CallContext;
use tenure_session::call::input_required;
use tenure_session::port::BoxFuture;
use tokio::sync::mpsc;

use self::attempt::attempt;
use self::convert::{mcp_error, typed_request};
use self::exchange::RmcpResponder;
use self::traffic::{InPlace, Inbound, LoopTraffic, LoopTransport, ThroughLoop};
use crate::rmcp::panic_guard::PanicGuard;

pub use self::session::{MaybeSession, ToolSession};
pub use self::state::{DataState, MaybeState};
pub use self::task::ToolTask;

/// The examples in the docs, which are compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tasks.md")]
mod docs {}

/// Capacity of the queue to rmcp's loop. When it is full, requests wait and notifications are dropped with a warning.
const INBOUND: usize = 32;

/// A backend that makes an rmcp handler for every session, and for every request without a session.
pub struct RmcpBackend<F> {
    make: F,
}

impl<F, H> RmcpBackend<F>
where
    F: Fn() -> H + Send + Sync + 'static,
    H: ServerHandler,
{
    /// A backend whose handlers come from `make`.
    pub fn new(make: F) -> Self {
        Self { make }
    }
}

impl<F, H> Backend for RmcpBackend<F>
where
    F: Fn() -> H + Send + Sync + 'static,
    H: ServerHandler,
{
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let handler = Arc::new((self.make)());
        Box::pin(shake_hands(handler, open))
    }

    /// `None` if the handlers do not speak revision 2026-07-28. Makes one handler to find that out.
    fn responder(self: Arc<Self>) -> Option<Arc<dyn Responder>> {
        Some(Arc::new(RmcpResponder::new(self)?))
    }
}

async fn shake_hands<H: ServerHandler>(handler: Arc<H>, open: Open) -> Result<Opened, RpcError> {
    let mut params: InitializeRequestParams = open
        .params
        .read()
        .map_err(|error| RpcError::of(Reason::InvalidParams, format!("initialize: {error}")))?;
    // The session's revision is already agreed; an unknown revision must not reach the handler.
    params.protocol_version = serde_json::from_value(open.revision.as_str().into())
        .map_err(|error| RpcError::of(Reason::Internal, error.to_string()))?;
    let (sender, receiver) = mpsc::channel(INBOUND);
    let traffic = Arc::new(LoopTraffic::new(open.outlet, sender.clone()));
    let transport = LoopTransport { traffic: Arc::clone(&traffic), inbound: receiver };
    let running = serve_directly(PanicGuard(Arc::clone(&handler)), transport, Some(params.clone()));
    let peer = running.peer().clone();
    let context = RequestContext::new(NumberOrString::Number(0), peer.clone());
    let result = handler.initialize(params, context).await.map_err(|error| mcp_error(&error))?;
    let served = Arc::new(Served { handler, peer, traffic, inbound: sender });
    let link = Box::new(RmcpLink { served, _running: running });
    Ok(Opened { link, result: RawJson::of(&result) })
}

struct RmcpLink<H: ServerHandler> {
    served: Arc<Served<H>>,
    /// Ends rmcp's loop when dropped.
    _running: RunningService<RoleServer, PanicGuard<H>>,
}

/// The handler of a session, and both ways to call it.
struct Served<H> {
    handler: Arc<H>,
    peer: Peer<RoleServer>,
    traffic: Arc<LoopTraffic>,
    inbound: mpsc::Sender<Inbound>,
}

/// How a request reaches the handler.
#[expect(
    clippy::large_enum_variant,
    reason = "the large one is the usual one, and lives in a future that is boxed"
)]
enum Dispatch {
    InPlace(ClientRequest, RequestContext<RoleServer>, InPlace),
    ToLoop(Inbound, ThroughLoop),
}

impl<H: ServerHandler> Served<H> {
    /// One attempt at a request. The request is registered now and not when the future is first polled.
    fn attempt(
        &self,
        request: &Request,
        context: &Arc<CallContext>,
    ) -> impl Future<Output = Reply> + Send + use<H> {
        let dispatch = self.dispatch(request, context);
        let (handler, inbound) = (Arc::clone(&self.handler), self.inbound.clone());
        async move {
            match dispatch? {
                Dispatch::InPlace(request, context, in_place) => {
                    let answer = attempt(&*handler, request, context).await;
                    drop(in_place);
                    answer.map(|result| RawJson::of(&result)).map_err(|error| mcp_error(&error))
                }
                Dispatch::ToLoop(message, through_loop) => {
                    if inbound.send(message).await.is_err() {
                        return Err(RpcError::of(Reason::BackendUnavailable, "The server has stopped"));
                    }
                    through_loop.answer().await
                }
            }
        }
    }

    fn dispatch(&self, request: &Request, context: &Arc<CallContext>) -> Result<Dispatch, RpcError> {
        let (mut typed, meta) = typed_request(request)?;
        if let Some(in_place) = self.traffic.call_in_place(context) {
            let mut rmcp_context = RequestContext::new(convert::request_id(&request.id), self.peer.clone());
            rmcp_context.ct = context.cancellation();
            rmcp_context.meta = meta;
            rmcp_context.extensions.insert(Arc::clone(context));
            return Ok(Dispatch::InPlace(typed, rmcp_context, in_place));
        }
        convert::put_back(&mut typed, meta, Arc::clone(context));
        let (through_loop, id) = self.traffic.call_through_loop(context);
        Ok(Dispatch::ToLoop(Box::new(JsonRpcMessage::request(typed, id)), through_loop))
    }
}

impl<H: ServerHandler> Link for RmcpLink<H> {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        let Call { request, context } = call;
        let context = Arc::new(context);
        let first = self.served.attempt(&request, &context);
        if !questions::may_be_asked(&request.method) {
            return Box::pin(first);
        }
        let served = Arc::clone(&self.served);
        Box::pin(async move {
            let result = first.await?;
            if ResultType::of(&result) != ResultType::InputRequired {
                return Ok(result);
            }
            let again =
                |request: Request| -> BoxFuture<Reply> { Box::pin(served.attempt(&request, &context)) };
            input_required::go_on(&context, request, result, again).await
        })
    }

    fn notify(&self, notification: Notification) {
        let Some(typed) = convert::typed_notification::<ClientNotification>(&notification) else {
            tracing::debug!(method = %notification.method, "rmcp cannot parse a notification; dropped");
            return;
        };
        if self.served.inbound.try_send(Box::new(JsonRpcMessage::notification(typed))).is_err() {
            tracing::warn!(
                method = %notification.method,
                "the queue to the handler is full; dropped a notification"
            );
        }
    }

    fn close(&self) -> BoxFuture<()> {
        self.served.traffic.close();
        Box::pin(std::future::ready(()))
    }
}

impl<F> std::fmt::Debug for RmcpBackend<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RmcpBackend")
    }
}
