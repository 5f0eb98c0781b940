//! The client of a request, as the server sees it.

use std::sync::Arc;
use std::time::Duration;

use tenure_protocol::{Error, Method, RawJson, RequestId, Revision, RpcError};
use tokio_util::sync::CancellationToken;

use super::{Became, CallSession, TaskWish};
use crate::id::{Principal, Route};
use crate::port::BoxFuture;
use crate::port::clock::Time;

/// The request that a message to the client belongs to.
#[derive(Clone, Debug)]
pub enum Origin {
    /// No request.
    Unasked,
    /// A request in flight.
    Call {
        /// The client's id for it.
        id: RequestId,
        /// Our number for it; 0 for a request of our own, which the client does not know.
        number: u64,
    },
}

/// The client of one or many requests: a session, or an object that takes the place of a session for a server.
///
/// 1. `notify` keeps the order of messages, and may wait for room in a queue.
/// 2. `ask` always returns: with the client's answer, or with an error that says why the client was not asked.
/// 3. When the token of `cancellation` is cancelled, no client waits for the answer any more.
/// 4. When `become_task` returns that the call is a task, the task is in the store. From then on a question of the call
///    may wait for its answer as long as the task may take.
///
/// A client of a single request may ignore the origin, id and number.
pub trait Client: Send + Sync + 'static {
    /// Passes a notification on.
    fn notify(
        self: Arc<Self>,
        origin: &Origin,
        method: &Method,
        params: Option<&RawJson>,
    ) -> BoxFuture<Result<(), Error>>;
    /// Asks the client something.
    fn ask(
        self: Arc<Self>,
        origin: &Origin,
        method: &Method,
        params: Option<&RawJson>,
    ) -> BoxFuture<Result<RawJson, RpcError>>;
    /// Cancelled when the request is withdrawn, or its time is up. `None`: the request is over.
    fn cancellation(&self, id: &RequestId, number: u64) -> Option<CancellationToken>;
    /// The `ClientCapabilities` that count for its requests.
    fn capabilities(&self) -> RawJson;
    /// The client's name and version, if it sent them.
    fn client_info(&self) -> Option<RawJson>;
    /// The revision of the protocol that the client speaks, as on the wire.
    fn protocol(&self) -> &'static str;
    /// The revision whose formats the server should use.
    fn revision(&self) -> Revision;
    /// How long a request may take without reporting progress.
    fn timeout(&self) -> Duration;
    /// When the request was admitted; for a session, the current time.
    fn started(&self) -> Time;
    /// The name in logs.
    fn label(&self) -> &str;
    /// The endpoint that requests come to.
    fn route(&self) -> &Route;
    /// The principal for our own requests to the server, which the client does not know.
    fn principal(&self) -> Principal {
        Principal::ANONYMOUS
    }
    /// The session that requests belong to, if there is one.
    fn session(self: Arc<Self>) -> Option<CallSession> {
        None
    }
    /// Whether it watches a resource.
    fn watches(&self, uri: &str) -> bool {
        let _ = uri;
        true
    }
    /// Makes a task of the call, where that can be done. See
    /// [`CallContext::become_task`](super::CallContext::become_task).
    fn become_task(&self, wish: TaskWish) -> BoxFuture<Result<Became, RpcError>> {
        let _ = wish;
        Box::pin(std::future::ready(Ok(Became::No)))
    }
    /// A request is sent to a server again: progress that the client already got is not reported again.
    fn begins_again(&self, id: &RequestId, number: u64) {
        let _ = (id, number);
    }
    /// A server still works on a request, although it reported no progress: the request's timeout starts again.
    fn goes_on(&self, id: &RequestId, number: u64) {
        let _ = (id, number);
    }
    /// Closes the connection that waits for the answer to a request. The request goes on.
    fn close_connection(self: Arc<Self>, id: &RequestId, number: u64) {
        let _ = (id, number);
    }
    /// The link with this number was lost: it ended without being closed.
    fn link_lost(self: Arc<Self>, link: u64) {
        let _ = link;
    }
}
