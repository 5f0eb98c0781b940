//! Requests without a session: each gets a handler of its own, which is called in place.
//!
//! Handlers are written for one client each, so no handler serves two requests. rmcp's own rules for the modern era
//! apply to the call, but the handler's `Peer` describes a client with a session: only then does rmcp let a handler ask
//! the client something, and our exchanges can wait for the answer.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};

use ::rmcp::ServerHandler;
use rmcp::model::{
    ClientRequest, Implementation, InitializeRequestParams, ProtocolVersion, RequestMetaObject,
};
use rmcp::service::{RequestContext, Service, serve_directly};
use tenure_protocol::{RawJson, Reason, Reply, RpcError};
use tenure_session::Route;
use tenure_session::backend::{Call, Responder};
use tenure_session::call::Fanout;
use tenure_session::exchange::Listens;
use tenure_session::port::BoxFuture;

use super::RmcpBackend;
use super::convert::{mcp_error, request_id, typed_exchange};
use crate::rmcp::exchange_peer::{ExchangePeer, UnusedService};

/// Answers requests without a session.
pub(super) struct RmcpResponder<F> {
    backend: Arc<RmcpBackend<F>>,
    server_info: RawJson,
    capabilities: RawJson,
    keeps_tasks: bool,
    started: OnceLock<StartedRmcp>,
}

struct StartedRmcp {
    fanout: Fanout,
    listens: Listens,
}

impl<F, H> RmcpResponder<F>
where
    F: Fn() -> H + Send + Sync + 'static,
    H: ServerHandler,
{
    /// Makes one handler to read its capabilities. `None` if it does not speak the modern era.
    pub(super) fn new(backend: Arc<RmcpBackend<F>>) -> Option<Self> {
        let Ok(handler) = std::panic::catch_unwind(AssertUnwindSafe(|| (backend.make)())) else {
            tracing::error!("an rmcp handler panicked while it was made; only sessions are served");
            return None;
        };
        if !handler.supported_protocol_versions().contains(&ProtocolVersion::V_2026_07_28) {
            return None;
        }
        let info = ServerHandler::get_info(&handler);
        Some(Self {
            backend,
            server_info: RawJson::of(&info.server_info),
            capabilities: RawJson::of(&info.capabilities),
            keeps_tasks: info.capabilities.supports_tasks(),
            started: OnceLock::new(),
        })
    }
}

impl<F, H> Responder for RmcpResponder<F>
where
    F: Fn() -> H + Send + Sync + 'static,
    H: ServerHandler,
{
    fn begin(&self, fanout: Fanout) {
        self.started.get_or_init(|| {
            let listens = Listens::new(&fanout);
            StartedRmcp { fanout, listens }
        });
    }

    fn server_info(&self) -> Option<RawJson> {
        Some(self.server_info.clone())
    }

    /// A handler that declares the extension keeps tasks itself, with rmcp's means.
    fn keeps_tasks(&self, _: &Route) -> bool {
        self.keeps_tasks
    }

    fn respond(&self, call: Call) -> BoxFuture<Reply> {
        let Some(started) = self.started.get() else {
            let error = RpcError::of(Reason::Internal, "The server has not been started");
            return Box::pin(std::future::ready(Err(error)));
        };
        let (request, meta) = match typed_exchange(&call.request) {
            Ok(typed) => typed,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        let handler = (self.backend.make)();
        if let ClientRequest::SubscriptionsListenRequest(listen) = &request
            && handler.accepted_subscription_filter(&listen.params.notifications).is_none()
        {
            // The handler does not serve listens itself, so we serve this one from the fan-out.
            let (listens, capabilities) = (started.listens.clone(), self.capabilities.clone());
            return Box::pin(async move { listens.serve(call, &capabilities).await });
        }
        Box::pin(answer(handler, (request, meta), call, started.fanout.clone()))
    }
}

async fn answer<H: ServerHandler>(
    handler: H,
    (request, meta): (ClientRequest, RequestMetaObject),
    call: Call,
    fanout: Fanout,
) -> Reply {
    let context = Arc::new(call.context);
    let (peer, transport) = ExchangePeer::new(Arc::clone(&context), fanout);
    let loop_of_its_own = serve_directly(UnusedService, transport, Some(client(&meta)));
    // The token is cancelled when the request ends, answered or not, so that tasks of the handler can stop.
    let token = context.cancellation().child_token();
    let mut rmcp_context = RequestContext::new(request_id(&call.request.id), loop_of_its_own.peer().clone());
    rmcp_context.ct = token.clone();
    rmcp_context.meta = meta;
    rmcp_context.extensions.insert(context);
    let _end = ExchangeEndGuard { peer, _token: token.drop_guard() };
    let answer = handler.handle_request(request, rmcp_context).await;
    answer.map(|result| RawJson::of(&result)).map_err(|error| mcp_error(&error))
}

/// Closes the peer when the request ends, for whatever reason. Dropping its handle ends rmcp's loop only when the loop
/// is polled next; until then no message may pass.
struct ExchangeEndGuard {
    peer: Arc<ExchangePeer>,
    _token: tokio_util::sync::DropGuard,
}

impl Drop for ExchangeEndGuard {
    fn drop(&mut self) {
        self.peer.close();
    }
}

/// The client as the `Peer` sees it: a client with a session, which a handler may ask.
fn client(meta: &RequestMetaObject) -> InitializeRequestParams {
    let capabilities = meta.client_capabilities().unwrap_or_default();
    let info = meta.client_info().unwrap_or_else(|| Implementation::new("unknown", "unknown"));
    InitializeRequestParams::new(capabilities, info).with_protocol_version(ProtocolVersion::V_2025_11_25)
}
