//! The MCP servers behind us, as exchanges see them: requests that stand alone, without a session.
//!
//! A responder answers one request with one future. `server/discover` and `subscriptions/listen` are requests like any
//! other: a listen acknowledges, speaks through the context of its call as long as it lasts, and is answered when it
//! ends. Whatever belongs to a request goes through its [`CallContext`](crate::call::CallContext).

use tenure_protocol::{RawJson, Reply};

use super::BoxFuture;
use super::backend::Call;
use crate::call::Fanout;
use crate::id::Route;

/// Answers exchanges.
///
/// 1. Every request is answered; one that the server does not know with -32601.
/// 2. Calls know nothing of each other: nothing of one caller reaches another.
/// 3. Dropping the future cancels the request, and the server hears of it.
/// 4. What belongs to a request goes through its context, in order, before the answer.
/// 5. A listen acknowledges before it says anything else.
/// 6. A result may lack its `resultType`, what it says on caching, and the server's name: they are added.
/// 7. After `close` nothing is left at the server that was kept for requests to come.
/// 8. The error for a capability that the client did not declare (-32021) says which.
/// 9. A request that is lost with the server ends with the reason `interrupted` if it may have been carried out, and
///    with `backend_unavailable` if it was not, or if doing it twice does no harm.
pub trait Responder: Send + Sync + 'static {
    /// Answers a request. Its params are as the client sent them, with `_meta`.
    fn respond(&self, call: Call) -> BoxFuture<Reply>;

    /// Whether the states in `input_required` results are the server's own affair: sealed and opened by it, and passed
    /// on byte for byte. Otherwise they are sealed for it, and it gets back what it wrote.
    fn keeps_request_states(&self) -> bool {
        false
    }

    /// Whether tasks are the server's own affair at an endpoint: it has none, or it makes them, and answers
    /// `tasks/get`, `tasks/update` and `tasks/cancel` and listens to tasks itself. Otherwise its calls can become tasks
    /// that are kept for it.
    fn keeps_tasks(&self, route: &Route) -> bool {
        let _ = route;
        false
    }

    /// What the server is, for results that do not say so themselves.
    fn server_info(&self) -> Option<RawJson> {
        None
    }

    /// Lets go of what is kept for requests to come: sessions, processes. Said once, after the last call.
    ///
    /// # Cancel safety
    /// What has begun to end goes on ending.
    fn close(&self) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }

    /// Where news goes that concerns everybody. Said once, before the first call.
    fn begin(&self, fanout: Fanout) {
        drop(fanout);
    }
}
