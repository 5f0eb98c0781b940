//! Serves any rmcp `ServerHandler`, one per session.
//!
//! rmcp's own service loop runs per session, because only it can make the `Peer` through which a
//! handler talks back. A request that is alone in its session does not pass through that loop: the
//! handler is called in place, which saves three hops between tasks. A second request that comes
//! meanwhile does pass through it, because the loop then tells us which request a message belongs to.
//! So a message from a handler goes to the stream of the request that the loop named, or of the one
//! request that was called in place, or of no request.

mod caught;
mod convert;
mod state;
mod traffic;

use std::sync::Arc;

use ::rmcp::ServerHandler;
use ::rmcp::model::{ClientNotification, InitializeRequestParams, JsonRpcMessage, NumberOrString};
use ::rmcp::service::{Peer, RequestContext, RoleServer, RunningService, Service, serve_directly};
use tenure_session::port::BoxFuture;
use tenure_session::port::backend::{Backend, Call, Link, Open, Opened, Reply};
use tenure_session::{Notification, RawJson, Reason, RpcError};
use tokio::sync::mpsc;

use self::caught::Caught;
use self::convert::{mcp_error, typed_request};
use self::traffic::{Inbound, Traffic, Wire};

pub use self::state::{DataState, MaybeState};

/// Messages to rmcp's loop that may wait; more of a session's notifications are dropped with a warning.
const INBOUND: usize = 32;

/// A backend that makes an rmcp handler for every session.
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
}

async fn shake_hands<H: ServerHandler>(handler: Arc<H>, open: Open) -> Result<Opened, RpcError> {
    let mut params: InitializeRequestParams = open
        .params
        .read()
        .map_err(|error| RpcError::of(Reason::InvalidParams, format!("initialize: {error}")))?;
    // The session's revision is already settled; an unknown one must not reach the handler.
    params.protocol_version = serde_json::from_value(open.revision.as_str().into())
        .map_err(|error| RpcError::of(Reason::Internal, error.to_string()))?;
    let (sender, receiver) = mpsc::channel(INBOUND);
    let traffic = Arc::new(Traffic::new(open.outlet, sender.clone()));
    let wire = Wire { traffic: Arc::clone(&traffic), inbound: receiver };
    let running = serve_directly(Caught(Arc::clone(&handler)), wire, Some(params.clone()));
    let peer = running.peer().clone();
    let context = RequestContext::new(NumberOrString::Number(0), peer.clone());
    let result = handler.initialize(params, context).await.map_err(|error| mcp_error(&error))?;
    let link = Box::new(RmcpLink { handler, peer, traffic, inbound: sender, _running: running });
    Ok(Opened { link, result: RawJson::of(&result) })
}

struct RmcpLink<H: ServerHandler> {
    handler: Arc<H>,
    peer: Peer<RoleServer>,
    traffic: Arc<Traffic>,
    inbound: mpsc::Sender<Inbound>,
    /// Ends rmcp's loop when dropped.
    _running: RunningService<RoleServer, Caught<H>>,
}

impl<H: ServerHandler> Link for RmcpLink<H> {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        let (mut request, meta) = match typed_request(&call.request) {
            Ok(typed) => typed,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        let context = Arc::new(call.context);
        if let Some(in_place) = self.traffic.call_in_place(&context) {
            let id = convert::request_id(&call.request.id);
            let mut rmcp_context = RequestContext::new(id, self.peer.clone());
            rmcp_context.ct = context.cancellation();
            rmcp_context.meta = meta;
            rmcp_context.extensions.insert(context);
            let handler = Arc::clone(&self.handler);
            return Box::pin(async move {
                let answer = handler.handle_request(request, rmcp_context).await;
                drop(in_place);
                answer.map(|result| RawJson::of(&result)).map_err(|error| mcp_error(&error))
            });
        }
        convert::put_back(&mut request, meta, Arc::clone(&context));
        let (through_loop, id) = self.traffic.call_through_loop(&context);
        let inbound = self.inbound.clone();
        Box::pin(async move {
            let message = JsonRpcMessage::request(request, id);
            if inbound.send(Box::new(message)).await.is_err() {
                return Err(RpcError::of(Reason::BackendUnavailable, "The server has stopped"));
            }
            through_loop.answer().await
        })
    }

    fn notify(&self, notification: Notification) {
        let Some(typed) = convert::typed_notification::<ClientNotification>(&notification) else {
            tracing::debug!(method = %notification.method, "a notification that the handler cannot read");
            return;
        };
        if self.inbound.try_send(Box::new(JsonRpcMessage::notification(typed))).is_err() {
            tracing::warn!(method = %notification.method, "the handler is behind; dropped a notification");
        }
    }

    fn close(&self) -> BoxFuture<()> {
        self.traffic.close();
        Box::pin(std::future::ready(()))
    }
}

impl<F> std::fmt::Debug for RmcpBackend<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RmcpBackend")
    }
}
