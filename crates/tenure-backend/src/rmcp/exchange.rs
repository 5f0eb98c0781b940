//! Requests that belong to no session: a handler of its own for each, called in place.
//!
//! Handlers are written for one client each, so each request gets one that no other client has spoken to. It is asked
//! by rmcp's own rules for the modern era, but its `Peer` takes the client for one of sessions: rmcp lets a handler
//! ask a client something only there, and our exchanges can wait for the answer.

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
use crate::rmcp::exchange_peer::{Unasked, Voice};

/// Answers requests that belong to no session.
pub(super) struct RmcpResponder<F> {
    backend: Arc<RmcpBackend<F>>,
    server_info: RawJson,
    capabilities: RawJson,
    keeps_tasks: bool,
    begun: OnceLock<Begun>,
}

struct Begun {
    fanout: Fanout,
    listens: Listens,
}

impl<F, H> RmcpResponder<F>
where
    F: Fn() -> H + Send + Sync + 'static,
    H: ServerHandler,
{
    /// One more handler is made, to see what it is. `None` if it does not speak the modern era.
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
            begun: OnceLock::new(),
        })
    }
}

impl<F, H> Responder for RmcpResponder<F>
where
    F: Fn() -> H + Send + Sync + 'static,
    H: ServerHandler,
{
    fn begin(&self, fanout: Fanout) {
        self.begun.get_or_init(|| {
            let listens = Listens::new(&fanout);
            Begun { fanout, listens }
        });
    }

    fn server_info(&self) -> Option<RawJson> {
        Some(self.server_info.clone())
    }

    /// A handler that declares the extension itself has tasks the way of rmcp.
    fn keeps_tasks(&self, _: &Route) -> bool {
        self.keeps_tasks
    }

    fn respond(&self, call: Call) -> BoxFuture<Reply> {
        let Some(begun) = self.begun.get() else {
            let error = RpcError::of(Reason::Internal, "The server was not begun");
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
            // It has no listens of its own; what its kind tells all comes from here.
            let (listens, capabilities) = (begun.listens.clone(), self.capabilities.clone());
            return Box::pin(async move { listens.serve(call, &capabilities).await });
        }
        Box::pin(answer(handler, (request, meta), call, begun.fanout.clone()))
    }
}

async fn answer<H: ServerHandler>(
    handler: H,
    (request, meta): (ClientRequest, RequestMetaObject),
    call: Call,
    fanout: Fanout,
) -> Reply {
    let context = Arc::new(call.context);
    let (voice, line) = Voice::new(Arc::clone(&context), fanout);
    let loop_of_its_own = serve_directly(Unasked, line, Some(client(&meta)));
    // Whatever the handler set going hears that the request is over, also if it was answered.
    let token = context.cancellation().child_token();
    let mut rmcp_context = RequestContext::new(request_id(&call.request.id), loop_of_its_own.peer().clone());
    rmcp_context.ct = token.clone();
    rmcp_context.meta = meta;
    rmcp_context.extensions.insert(context);
    let _over = Over { voice, _token: token.drop_guard() };
    let answer = handler.handle_request(request, rmcp_context).await;
    answer.map(|result| RawJson::of(&result)).map_err(|error| mcp_error(&error))
}

/// The end of a request, however it comes. rmcp's loop ends with its own handle, but only when it runs next; until then
/// nobody may hear it.
struct Over {
    voice: Arc<Voice>,
    _token: tokio_util::sync::DropGuard,
}

impl Drop for Over {
    fn drop(&mut self) {
        self.voice.close();
    }
}

/// The client as a `Peer` knows it: one that can be asked.
fn client(meta: &RequestMetaObject) -> InitializeRequestParams {
    let capabilities = meta.client_capabilities().unwrap_or_default();
    let info = meta.client_info().unwrap_or_else(|| Implementation::new("unknown", "unknown"));
    InitializeRequestParams::new(capabilities, info).with_protocol_version(ProtocolVersion::V_2025_11_25)
}
