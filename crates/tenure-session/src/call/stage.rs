//! Whoever plays the part of a session towards a server behind.

use std::time::Duration;

use tenure_protocol::{Error, Method, RawJson, Revision, RpcError};
use tokio_util::sync::CancellationToken;

use super::{Became, CallSession, TaskWish};
use crate::id::{Principal, Route};
use crate::port::BoxFuture;
use crate::port::clock::Time;

/// One request and whoever made it, as the server behind sees them.
///
/// 1. `notify` takes messages in their order, and may wait for room.
/// 2. `ask` always answers: with what the client says, or with an error that says why it could not be asked.
/// 3. When the token of `cancellation` is cancelled, nobody waits for the answer any more.
/// 4. When `become_task` says that the call is a task, it is in the store; from then on a question of the call may
///    wait for its answer as long as the task may take.
pub trait Stage: Send + Sync + 'static {
    /// Passes a notification on that belongs to the request.
    fn notify(&self, method: &Method, params: Option<&RawJson>) -> BoxFuture<Result<(), Error>>;
    /// Asks the client something.
    fn ask(&self, method: &Method, params: Option<&RawJson>) -> BoxFuture<Result<RawJson, RpcError>>;
    /// Cancelled when the request is withdrawn, or its time is up.
    fn cancellation(&self) -> CancellationToken;
    /// The `ClientCapabilities` that count for this request.
    fn capabilities(&self) -> RawJson;
    /// The client as it calls itself, if it does.
    fn client_info(&self) -> Option<RawJson>;
    /// The revision of the protocol that the client speaks, as it stands on the wire.
    fn protocol(&self) -> &'static str;
    /// The revision whose shapes the server should use.
    fn revision(&self) -> Revision;
    /// How long the request may take without reporting progress.
    fn timeout(&self) -> Duration;
    /// When the request was admitted.
    fn started(&self) -> Time;
    /// The name in logs.
    fn label(&self) -> &str;
    /// The endpoint that the request came to.
    fn route(&self) -> &Route;
    /// On whose behalf the server is asked something that the client knows nothing of.
    fn principal(&self) -> Principal {
        Principal::ANONYMOUS
    }
    /// The session that the request belongs to, if there is one behind it.
    fn session(&self) -> Option<CallSession> {
        None
    }
    /// Makes a task of the call, where that can be done. See [`CallContext::become_task`](super::CallContext::become_task).
    fn become_task(&self, wish: TaskWish) -> BoxFuture<Result<Became, RpcError>> {
        let _ = wish;
        Box::pin(std::future::ready(Ok(Became::No)))
    }
}
