//! The context of one request: who asks, and where related messages go.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tenure_protocol::modern::capability::{self, Capabilities, Capability};
use tenure_protocol::revision::MODERN;
use tenure_protocol::{Error, Method, RawJson, Reason, Request, RequestId, Revision, RpcError, params};
use tokio_util::sync::CancellationToken;

use super::{Became, CallSession, Caller, Outlet, Stage, TaskWish};
use crate::id::Route;
use crate::port::clock::Time;
use crate::session::{Origin, Session};
use crate::state::State;

/// The context of one request. A copy is the context of the same request, for one that is answered in parts.
#[derive(Clone, Debug)]
pub struct CallContext {
    owner: Owner,
    id: RequestId,
    method: Method,
    caller: Caller,
    started: Time,
    /// The request's params, for the few who look for `_meta` there.
    params: Option<RawJson>,
    /// What the request works on, if it names a data session or a handle.
    state: Option<State>,
}

/// Whose request it is. Not a trait for both, so that a call of a session allocates nothing for it.
#[derive(Clone)]
enum Owner {
    /// A session's, with our number for it; 0 for a request of our own.
    Session(Arc<Session>, u64),
    /// Somebody's who plays the part of a session. `true` for a request of our own.
    Stage(Arc<dyn Stage>, bool),
}

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Session(session, number) => write!(f, "{} {number}", session.label()),
            Self::Stage(stage, _) => f.write_str(stage.label()),
        }
    }
}

impl CallContext {
    pub(crate) fn new(
        session: Arc<Session>,
        request: &Request,
        number: u64,
        caller: Caller,
        started: Time,
    ) -> Self {
        Self::of(Owner::Session(session, number), request, caller, started)
    }

    /// The context of a request that belongs to no session.
    pub fn staged(stage: Arc<dyn Stage>, request: &Request, caller: Caller) -> Self {
        let started = stage.started();
        Self::of(Owner::Stage(stage, false), request, caller, started)
    }

    /// The context of a request of our own on somebody's behalf.
    pub(super) fn on_stage(stage: Arc<dyn Stage>, request: &Request) -> Self {
        let started = stage.started();
        let caller = Caller { principal: stage.principal(), ..Caller::anonymous("wake") };
        Self::of(Owner::Stage(stage, true), request, caller, started)
    }

    fn of(owner: Owner, request: &Request, caller: Caller, started: Time) -> Self {
        let (id, method, params) = (request.id.clone(), request.method.clone(), request.params.clone());
        Self { owner, id, method, caller, started, params, state: None }
    }

    /// The same request with somebody else in place of the client, who may change what goes to it and comes from it.
    #[must_use]
    pub fn through(mut self, stage: Arc<dyn Stage>) -> Self {
        self.owner = Owner::Stage(stage, self.is_our_own());
        self
    }

    /// Makes the request work on a state.
    pub fn set_state(&mut self, state: State) {
        self.state = Some(state);
    }

    /// What the request works on: the state that its data session or its handle names.
    pub fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }

    /// The client's id for the request.
    pub fn request_id(&self) -> &RequestId {
        &self.id
    }

    /// What was asked.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Who asked, and how.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The name of the session, or of whoever stands in for one, in logs.
    pub fn session_label(&self) -> &str {
        match &self.owner {
            Owner::Session(session, _) => session.label(),
            Owner::Stage(stage, _) => stage.label(),
        }
    }

    /// The session that the request belongs to: its metadata and its idle time, which the handler may read and change.
    /// `None` for a request without a session, and for one of our own.
    pub fn session(&self) -> Option<CallSession> {
        match &self.owner {
            Owner::Session(_, 0) | Owner::Stage(_, true) => None,
            Owner::Session(session, _) => Some(CallSession::new(session)),
            Owner::Stage(stage, false) => stage.session(),
        }
    }

    /// The revision whose shapes the server should use: the session's, where there is one.
    pub fn revision(&self) -> Revision {
        match &self.owner {
            Owner::Session(session, _) => session.revision(),
            Owner::Stage(stage, _) => stage.revision(),
        }
    }

    /// The revision of the protocol that the client speaks, as it stands on the wire.
    pub fn protocol(&self) -> &'static str {
        match &self.owner {
            Owner::Session(session, _) => session.revision().as_str(),
            Owner::Stage(stage, _) => stage.protocol(),
        }
    }

    /// The `ClientCapabilities` that count for this request.
    pub fn capabilities(&self) -> RawJson {
        #[derive(serde::Deserialize)]
        struct Params<'a> {
            #[serde(borrow)]
            capabilities: &'a serde_json::value::RawValue,
        }
        match &self.owner {
            Owner::Session(session, _) => {
                let said = session.initialize();
                let read = said.read::<Params<'_>>();
                read.map_or(RawJson::EMPTY_OBJECT, |params| RawJson::of(&params.capabilities))
            }
            Owner::Stage(stage, _) => stage.capabilities(),
        }
    }

    /// The name the client gave itself.
    pub fn client_name(&self) -> Option<String> {
        #[derive(serde::Deserialize)]
        struct Params {
            #[serde(rename = "clientInfo")]
            client_info: Info,
        }
        #[derive(serde::Deserialize)]
        struct Info {
            name: String,
        }
        match &self.owner {
            Owner::Session(session, _) => {
                session.initialize().read::<Params>().ok().map(|params| params.client_info.name)
            }
            Owner::Stage(stage, _) => stage.client_info()?.read::<Info>().ok().map(|info| info.name),
        }
    }

    /// The endpoint that the request came to.
    pub fn route(&self) -> &Route {
        match &self.owner {
            Owner::Session(session, _) => session.route(),
            Owner::Stage(stage, _) => stage.route(),
        }
    }

    /// When the request was admitted.
    pub fn started(&self) -> Time {
        self.started
    }

    /// How long the request may take without reporting progress.
    pub fn timeout(&self) -> Duration {
        match &self.owner {
            Owner::Session(session, _) => session.request_timeout(),
            Owner::Stage(stage, _) => stage.timeout(),
        }
    }

    /// The token under which the client wants to hear of progress, raw.
    pub fn progress_token(&self) -> Option<RawJson> {
        params::progress_token(self.params.as_ref())
    }

    /// An outlet for messages that belong to this request; it may outlive the context.
    pub fn outlet(&self) -> Outlet {
        match &self.owner {
            Owner::Session(session, number) => Outlet::of_call(session, self.origin(*number)),
            Owner::Stage(stage, _) => Outlet::of_stage(stage),
        }
    }

    /// Reports progress, if the client wants to hear of it. Each report restarts the request's timeout.
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
        struct Params<'a> {
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
        self.notify(&Method::Progress, Some(&RawJson::of(&Params { token, progress, total, message }))).await
    }

    /// The request is sent to a server once more: progress that the client has heard of is not told again.
    pub fn begins_again(&self) {
        if let Owner::Session(session, number) = &self.owner {
            session.begins_again(&self.id, *number);
        }
    }

    /// Somebody works on the request, as is known otherwise than by its progress: its timeout begins anew.
    pub fn goes_on(&self) {
        if let Owner::Session(session, number) = &self.owner {
            session.goes_on(&self.id, *number);
        }
    }

    /// Sends a notification that belongs to this request.
    ///
    /// # Errors
    /// When the request is over.
    pub async fn notify(&self, method: &Method, params: Option<&RawJson>) -> Result<(), Error> {
        match &self.owner {
            Owner::Session(session, number) => session.notify(&self.origin(*number), method, params).await,
            Owner::Stage(_, true) => Ok(()),
            Owner::Stage(stage, false) => stage.notify(method, params).await,
        }
    }

    /// Asks the client something on this request's stream, and waits for the answer.
    ///
    /// # Errors
    /// What the client answered, or why it could not be asked.
    pub async fn ask(&self, method: &Method, params: Option<&RawJson>) -> Result<RawJson, RpcError> {
        match &self.owner {
            Owner::Session(session, number) => session.ask(self.origin(*number), method, params).await,
            Owner::Stage(_, true) => {
                Err(RpcError::of(Reason::Cancelled, "The client knows nothing of this request"))
            }
            Owner::Stage(stage, false) => stage.ask(method, params).await,
        }
    }

    /// Makes a task of the call: its client gets an id at once, and comes back for the outcome. From then on questions
    /// wait for the client to come for them, what the handler returns is the outcome, and progress and log messages
    /// reach nobody. A handler may ask first and become a task then.
    ///
    /// Nothing happens where that cannot be done: in a session, for anything but `tools/call`, for a client that does
    /// not declare the extension, on a server without tasks. A handler then goes on, and its client waits.
    ///
    /// # Errors
    /// When there are too many tasks, or the store fails. The call goes on as it was.
    ///
    /// # Cancel safety
    /// Dropped early, the call may or may not have become a task.
    pub async fn become_task(&self, wish: TaskWish) -> Result<Became, RpcError> {
        match &self.owner {
            Owner::Session(..) | Owner::Stage(_, true) => Ok(Became::No),
            Owner::Stage(stage, false) => stage.become_task(wish).await,
        }
    }

    /// For handlers that can only work as a task: checks that the client can deal with one.
    ///
    /// # Errors
    /// The client does not declare the extension, or is in a session (-32021).
    pub fn requires_task(&self) -> Result<(), RpcError> {
        let declares =
            || Capabilities::parse(self.capabilities()).is_some_and(|it| it.has(&Capability::TASKS));
        match &self.owner {
            Owner::Stage(stage, false) if stage.protocol() == MODERN && declares() => Ok(()),
            _ => Err(capability::missing(&[Capability::TASKS]).to_rpc()),
        }
    }

    /// Closes the connection that waits for this request's answer, but not the request: the client
    /// comes back for the answer. Does nothing where the client's revision does not know this.
    pub fn close_connection(&self) {
        if let Owner::Session(session, number) = &self.owner {
            session.close_connection_of(&self.id, *number);
        }
    }

    /// Whether this is a request of the runtime's own, of which the client knows nothing: nobody withdraws it, and
    /// what is said about it reaches nobody.
    pub fn is_our_own(&self) -> bool {
        matches!(self.owner, Owner::Session(_, 0) | Owner::Stage(_, true))
    }

    /// Resolves when the client withdraws the request, or its time is up.
    pub async fn cancelled(&self) {
        if self.is_our_own() {
            return std::future::pending().await;
        }
        // A request that is no longer in flight is as good as cancelled.
        if let Some(token) = self.token() {
            token.cancelled().await;
        }
    }

    /// A token that is cancelled when the request is withdrawn or its time is up.
    pub fn cancellation(&self) -> CancellationToken {
        if self.is_our_own() {
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
        !self.is_our_own() && self.token().is_none_or(|token| token.is_cancelled())
    }

    /// `None`: the request is over.
    fn token(&self) -> Option<CancellationToken> {
        match &self.owner {
            Owner::Session(session, number) => session.cancel_token(&self.id, *number),
            Owner::Stage(stage, _) => Some(stage.cancellation()),
        }
    }

    fn origin(&self, number: u64) -> Origin {
        Origin::Call { id: self.id.clone(), number }
    }
}
