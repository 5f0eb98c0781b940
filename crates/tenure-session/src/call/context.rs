//! The context of one request: its caller, its client, and the way for its messages to the client.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tenure_protocol::modern::capability::{self, Capabilities, Capability};
use tenure_protocol::revision::MODERN;
use tenure_protocol::{Error, Method, RawJson, Reason, Request, RequestId, Revision, RpcError, params};
use tokio_util::sync::CancellationToken;

use super::{Became, CallSession, Caller, Client, Granted, Origin, Outlet, RefusalMark, TaskWish};
use crate::id::Route;
use crate::port::clock::Time;
use crate::state::State;

/// The context of one request. A clone is the context of the same request, for a server that answers it in parts.
#[derive(Clone)]
pub struct CallContext {
    client: Arc<dyn Client>,
    id: RequestId,
    /// The number that the client's session gave the request; 0 without a session, and for a request of our own.
    number: u64,
    is_our_own: bool,
    method: Method,
    caller: Caller,
    started: Time,
    /// The request's params, for readers of `_meta`.
    params: Option<RawJson>,
    /// The state that the request names by a data session or a handle.
    state: Option<State>,
}

impl std::fmt::Debug for CallContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("CallContext");
        shown.field("client", &self.client.label()).field("number", &self.number).field("id", &self.id);
        shown.field("method", &self.method).finish_non_exhaustive()
    }
}

impl CallContext {
    /// The context of a client's request.
    pub fn new(client: Arc<dyn Client>, request: &Request, caller: Caller) -> Self {
        let started = client.started();
        Self::numbered(client, request, 0, caller, started)
    }

    /// The same for a request to which a session gave a number.
    pub(crate) fn numbered(
        client: Arc<dyn Client>,
        request: &Request,
        number: u64,
        caller: Caller,
        started: Time,
    ) -> Self {
        let (id, method, params) = (request.id.clone(), request.method.clone(), request.params.clone());
        Self { client, id, number, is_our_own: false, method, caller, started, params, state: None }
    }

    /// The context of our own request on a client's behalf. The client does not know it.
    pub(crate) fn our_own(client: Arc<dyn Client>, request: &Request) -> Self {
        let (principal, scopes) = (client.principal(), Granted::Ours);
        let caller = Caller { principal, scopes, ..Caller::anonymous("wake") };
        Self { is_our_own: true, ..Self::new(client, request, caller) }
    }

    /// The same request with another client, which may change the messages to and from the first one.
    #[must_use]
    pub fn through(self, client: Arc<dyn Client>) -> Self {
        Self { client, number: 0, ..self }
    }

    /// Has limits of ours note whether they refuse the request.
    pub fn marks_refusal(&mut self) -> RefusalMark {
        self.caller.refusal.get_or_insert_default().clone()
    }

    /// Sets the state of the request.
    pub fn set_state(&mut self, state: State) {
        self.state = Some(state);
    }

    /// Sets the `traceparent` that goes on to the server.
    pub fn set_traceparent(&mut self, traceparent: String) {
        self.caller.traceparent = Some(traceparent.into_boxed_str());
        // It belongs to the span that it came with.
        self.caller.tracestate = None;
    }

    /// The state that the request names by a data session or a handle.
    pub fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }

    /// The client's id for the request.
    pub fn request_id(&self) -> &RequestId {
        &self.id
    }

    /// The method of the request.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// The caller.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The id by which logs of several processes are put together, if the request has one.
    pub fn correlation(&self) -> Option<&str> {
        self.caller.correlation.as_deref()
    }

    /// The name of the client in logs.
    pub fn session_label(&self) -> &str {
        self.client.label()
    }

    /// The session that the request belongs to: its metadata and its idle time, which the handler may read and change.
    /// `None` for a request without a session, and for one of our own.
    pub fn session(&self) -> Option<CallSession> {
        if self.is_our_own { None } else { Arc::clone(&self.client).session() }
    }

    /// The revision whose formats the server should use: that of the session, if there is one.
    pub fn revision(&self) -> Revision {
        self.client.revision()
    }

    /// The revision of the protocol that the client speaks, as on the wire.
    pub fn protocol(&self) -> &'static str {
        self.client.protocol()
    }

    /// The `ClientCapabilities` that count for this request.
    pub fn capabilities(&self) -> RawJson {
        self.client.capabilities()
    }

    /// The name the client gave itself.
    pub fn client_name(&self) -> Option<String> {
        #[derive(serde::Deserialize)]
        struct Info {
            name: String,
        }
        self.client.client_info()?.read::<Info>().ok().map(|info| info.name)
    }

    /// The endpoint that the request came to.
    pub fn route(&self) -> &Route {
        self.client.route()
    }

    /// When the request was admitted.
    pub fn started(&self) -> Time {
        self.started
    }

    /// How long the request may take without reporting progress.
    pub fn timeout(&self) -> Duration {
        self.client.timeout()
    }

    /// The client's progress token, raw. `None` if the client does not want progress.
    pub fn progress_token(&self) -> Option<RawJson> {
        params::progress_token(self.params.as_ref())
    }

    /// An outlet for messages that belong to this request; it may outlive the context.
    pub fn outlet(&self) -> Outlet {
        Outlet::new(&self.client, self.origin())
    }

    /// Reports progress, if the client wants it. Each report restarts the request's timeout.
    ///
    /// # Errors
    /// When the request is over.
    pub async fn progress(
        &self,
        progress: f64,
        total: Option<f64>,
        message: Option<&str>,
    ) -> Result<(), Error> {
        let Some(token) = self.progress_token() else { return Ok(()) };
        #[derive(Serialize)]
        struct ProgressReport<'a> {
            #[serde(rename = "progressToken")]
            token: &'a serde_json::value::RawValue,
            progress: f64,
            #[serde(skip_serializing_if = "Option::is_none")]
            total: Option<f64>,
            #[serde(skip_serializing_if = "Option::is_none")]
            message: Option<&'a str>,
        }
        let token =
            token.read().map_err(|error| Error::new(Reason::InvalidParams, "bad token").caused_by(error))?;
        self.notify(
            &Method::Progress,
            Some(&RawJson::of(&ProgressReport { token, progress, total, message })),
        )
        .await
    }

    /// The request is sent to a server again: progress that the client already got is not reported again.
    pub fn begins_again(&self) {
        self.client.begins_again(&self.id, self.number);
    }

    /// A server still works on the request, although it reported no progress: the request's timeout starts again.
    pub fn goes_on(&self) {
        self.client.goes_on(&self.id, self.number);
    }

    /// Sends a notification that belongs to this request.
    ///
    /// # Errors
    /// When the request is over.
    pub async fn notify(&self, method: &Method, params: Option<&RawJson>) -> Result<(), Error> {
        if self.is_our_own {
            return Ok(());
        }
        Arc::clone(&self.client).notify(&self.origin(), method, params).await
    }

    /// Asks the client something on this request's stream, and waits for the answer.
    ///
    /// # Errors
    /// The client's error, or the reason why it could not be asked.
    pub async fn ask(&self, method: &Method, params: Option<&RawJson>) -> Result<RawJson, RpcError> {
        if self.is_our_own {
            return Err(RpcError::of(Reason::Cancelled, "The client knows nothing of this request"));
        }
        Arc::clone(&self.client).ask(&self.origin(), method, params).await
    }

    /// Turns the call into a task: its client gets an id at once, and comes back for the outcome. From then on the
    /// client finds questions when it polls the task, the handler's result is the outcome, and progress and log
    /// messages are dropped. A handler may ask questions before it calls this.
    ///
    /// Nothing happens where that is not possible: in a session, for any method but `tools/call`, for a client that
    /// does not declare the extension, on a server without tasks. The handler then goes on, and its client waits.
    ///
    /// # Errors
    /// When there are too many tasks, or the store fails. The call then goes on without a task.
    ///
    /// # Cancel safety
    /// If it is dropped early, the call may or may not have become a task.
    pub async fn become_task(&self, wish: TaskWish) -> Result<Became, RpcError> {
        if self.is_our_own {
            return Ok(Became::No);
        }
        self.client.become_task(wish).await
    }

    /// For handlers that can only work as a task: checks that the client supports tasks.
    ///
    /// # Errors
    /// The client does not declare the extension, or is in a session (-32021).
    pub fn requires_task(&self) -> Result<(), RpcError> {
        let declares =
            || Capabilities::parse(self.capabilities()).is_some_and(|it| it.has(&Capability::TASKS));
        if !self.is_our_own && self.protocol() == MODERN && declares() {
            return Ok(());
        }
        Err(capability::missing(&[Capability::TASKS]).to_rpc())
    }

    /// Closes the connection that waits for this request's answer. The request goes on, and the client
    /// comes back for the answer. Does nothing if the client's revision does not support this.
    pub fn close_connection(&self) {
        Arc::clone(&self.client).close_connection(&self.id, self.number);
    }

    /// Whether this is the runtime's own request, which the client does not know: it is never withdrawn, and its
    /// messages are dropped.
    pub fn is_our_own(&self) -> bool {
        self.is_our_own
    }

    /// Resolves when the client withdraws the request, or its time is up.
    pub async fn cancelled(&self) {
        if self.is_our_own {
            return std::future::pending().await;
        }
        // A request that is no longer in flight counts as cancelled.
        if let Some(token) = self.token() {
            token.cancelled().await;
        }
    }

    /// A token that is cancelled when the request is withdrawn or its time is up.
    pub fn cancellation(&self) -> CancellationToken {
        if self.is_our_own {
            return CancellationToken::new();
        }
        self.token().unwrap_or_else(|| {
            let over = CancellationToken::new();
            over.cancel();
            over
        })
    }

    /// Whether the request was withdrawn or is over.
    pub fn is_cancelled(&self) -> bool {
        !self.is_our_own && self.token().is_none_or(|token| token.is_cancelled())
    }

    /// The token of the client. `None`: the request is over.
    fn token(&self) -> Option<CancellationToken> {
        self.client.cancellation(&self.id, self.number)
    }

    fn origin(&self) -> Origin {
        Origin::Call { id: self.id.clone(), number: self.number }
    }
}
