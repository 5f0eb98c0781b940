//! The MCP servers behind us: the port that in-process handlers, child processes and remote servers
//! implement.
//!
//! A backend opens a [`Link`] per session. A link answers one request with one future. Other messages of
//! that request (progress, logs, questions to the client) go through the request's own [`CallContext`], so
//! that they reach the right stream. Messages that belong to no request go through the session's
//! [`Outlet`].
//!
//! A [`Responder`] is the same server for exchanges: it answers requests without a session. There `server/discover` and
//! `subscriptions/listen` are requests like any other: a listen acknowledges, sends messages through the context of its
//! call as long as it lasts, and is answered when it ends.

pub mod probe;
#[doc(hidden)]
pub mod forward;
mod greet;
mod tool_pages;

use std::sync::Arc;

use tenure_protocol::message::Reply;
use tenure_protocol::{Notification, RawJson, Request, Revision, RpcError};

use crate::call::{CallContext, Fanout, Outlet};
use crate::id::{Principal, Route};
use crate::port::BoxFuture;

pub use greet::Greeting;
pub use tool_pages::repeatable_tools;

/// Why a link is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opening {
    /// A client sent `initialize`.
    Fresh,
    /// A dormant session is woken; the handshake is replayed.
    Wake,
}

/// The arguments for opening a link.
#[derive(Debug)]
pub struct Open {
    /// The params of `initialize` as the client sent them.
    pub params: RawJson,
    /// The revision the session will speak.
    pub revision: Revision,
    /// Why the link is opened.
    pub opening: Opening,
    /// The endpoint that the session belongs to.
    pub route: Route,
    /// The outlet for messages that belong to no request.
    pub outlet: Outlet,
    /// The fan-out for news to every session of this endpoint.
    pub fanout: Fanout,
}

/// A link, and the server's answer to `initialize`.
pub struct Opened {
    /// The link.
    pub link: Box<dyn Link>,
    /// The server's `InitializeResult`.
    pub result: RawJson,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened").field("result", &self.result).finish_non_exhaustive()
    }
}

/// One request for a backend.
#[derive(Debug)]
pub struct Call {
    /// The request.
    pub request: Request,
    /// Its context: who asks, and where related messages go.
    pub context: CallContext,
}

/// Opens links.
///
/// 1. Every `open` gives a link of its own; links do not see each other's messages.
/// 2. `open` may take long or fail; it holds up no other link.
/// 3. The result carries `protocolVersion`, one of the revisions we know.
/// 4. Dropping the future of `open`, or the link, frees everything behind it.
pub trait Backend: Send + Sync + 'static {
    /// Opens a link and does the handshake.
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>>;

    /// The same server for requests without a session. `None`: it supports sessions only, and a caller that needs a
    /// responder puts a bridge in front of it.
    fn responder(self: Arc<Self>) -> Option<Arc<dyn Responder>> {
        None
    }
}

/// One live connection to a backend, serving one session.
///
/// 1. `call` answers every request: with a result, or with an error that says why not.
/// 2. Calls run side by side; one that hangs holds up no other.
/// 3. When [`CallContext::cancelled`] resolves, the call should stop; its answer is then not used.
/// 4. The future of `call` may be dropped at any time.
/// 5. After `close` no more messages come, and calls in flight end with an error.
pub trait Link: Send + Sync + 'static {
    /// Answers a request.
    fn call(&self, call: Call) -> BoxFuture<Reply>;
    /// Passes a notification on. It must not wait.
    fn notify(&self, notification: Notification);
    /// Ends the link.
    fn close(&self) -> BoxFuture<()>;
    /// Whether the cookie of a data session comes back with the answer to any request, a ping too.
    fn echoes_cookies(&self) -> bool {
        false
    }
}

/// Answers exchanges.
///
/// 1. Every request is answered; one that the server does not know with -32601.
/// 2. Calls know nothing of each other: nothing of one caller reaches another.
/// 3. Dropping the future cancels the request, and the server is told so.
/// 4. Messages that belong to a request go through its context, in order, before the answer.
/// 5. A listen acknowledges before it sends any other message.
/// 6. A result may lack its `resultType`, its caching hints and the server's name: the runtime adds them.
/// 7. After `close` the server holds nothing for later requests: no session, no process.
/// 8. The error for a capability that the client did not declare (-32021) names the capability.
/// 9. A request that is lost with the server ends with the reason `interrupted` if the server may have handled it, and
///    with `backend_unavailable` if the server did not, or if handling it twice does no harm.
pub trait Responder: Send + Sync + 'static {
    /// Answers a request. Its params are as the client sent them, with `_meta`.
    fn respond(&self, call: Call) -> BoxFuture<Reply>;

    /// Whether the server seals and opens the states in `input_required` results itself, so that they are passed on
    /// byte for byte. Otherwise the runtime seals them, and the server gets back what it wrote.
    fn keeps_request_states(&self) -> bool {
        false
    }

    /// Whether the server keeps its tasks itself at an endpoint: it has no tasks, or it makes them and answers
    /// `tasks/get`, `tasks/update`, `tasks/cancel` and listens for tasks. Otherwise its calls can become tasks that the
    /// runtime keeps.
    fn keeps_tasks(&self, route: &Route) -> bool {
        let _ = route;
        false
    }

    /// The server's name and version, for results that do not contain them.
    fn server_info(&self) -> Option<RawJson> {
        None
    }

    /// Frees what the server holds for this principal: sessions, processes. Called when its credentials were revoked, and its
    /// requests have been told to end; those that still run may fail.
    fn forget(&self, principal: &Principal) {
        let _ = principal;
    }

    /// Frees everything that the server holds for later requests: sessions, processes. Called once, after the last
    /// call.
    ///
    /// # Cancel safety
    /// Sessions and processes that have begun to end still end.
    fn close(&self) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }

    /// Gives the server the fan-out for news to all clients. Called once, before the first call.
    fn begin(&self, fanout: Fanout) {
        drop(fanout);
    }
}
