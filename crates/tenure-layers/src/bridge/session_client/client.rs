//! A session's client as a modern server sees it during one request.
//!
//! Messages about the request go to the session; progress forms one rising series, however often the request is sent.
//! Messages that may not be sent on a request's stream are dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_protocol::revision::MODERN;
use tenure_protocol::translate::progress::Series;
use tenure_protocol::translate::request::{self, Sender};
use tenure_protocol::translate::{handshake, tasks};
use tenure_protocol::{Error, Method, RawJson, Request, RequestId, Revision, RpcError};
use tenure_session::backend::Call;
use tenure_session::call::{CallContext, CallSession, Client, Origin};
use tenure_session::id::{Principal, Route};
use tenure_session::port::BoxFuture;
use tenure_session::port::clock::Time;
use tokio_util::sync::CancellationToken;

/// The capabilities and the name that a session's client declared, as far as they can be relayed.
#[derive(Debug)]
pub(super) struct DeclaredClient {
    pub(super) capabilities: RawJson,
    /// Whether the server may answer with a task, which we follow for the client.
    pub(super) knows_tasks: bool,
    pub(super) info: Option<RawJson>,
}

impl DeclaredClient {
    /// Reads the params of `initialize`.
    pub(super) fn introduced(params: &RawJson, revision: Revision) -> Self {
        let said = handshake::introduced(params, revision);
        Self { capabilities: said.relayed.object(), knows_tasks: false, info: said.client }
    }

    /// The same client in front of a server with this discovery result.
    pub(super) fn in_front_of(self: Arc<Self>, discovered: &RawJson) -> Arc<Self> {
        if !tasks::advertised(discovered) {
            return self;
        }
        let capabilities = tasks::declared(&self.capabilities);
        Arc::new(Self { capabilities, knows_tasks: true, info: self.info.clone() })
    }

    /// The params of a request of this client to a modern server.
    ///
    /// # Errors
    /// When the params are not an object.
    pub(super) fn params(
        &self,
        method: &Method,
        params: Option<&RawJson>,
        level: Option<&str>,
        token: Option<&RawJson>,
    ) -> Result<RawJson, RpcError> {
        let (capabilities, client) = (&self.capabilities, self.info.as_ref());
        request::to_modern(method, params, &Sender { version: MODERN, capabilities, client, level, token })
    }
}

/// A session's client during one request.
pub(super) struct SessionClient {
    declared: Arc<DeclaredClient>,
    context: CallContext,
    token: Option<RawJson>,
    series: Mutex<Series>,
    /// How often the request was begun.
    attempts: AtomicU32,
}

impl SessionClient {
    /// For a request with this context; its progress token is the client's.
    pub(super) fn new(declared: Arc<DeclaredClient>, context: CallContext) -> Arc<Self> {
        let token = context.progress_token();
        Arc::new(Self { declared, context, token, series: Mutex::default(), attempts: AtomicU32::new(0) })
    }

    /// The client's progress token.
    pub(super) fn token(&self) -> Option<&RawJson> {
        self.token.as_ref()
    }

    /// Starts an attempt, which counts its progress from the start.
    pub(super) fn begins_again(&self) {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        self.series.lock().restart();
    }

    /// How often the request was begun.
    pub(super) fn attempts(&self) -> u32 {
        self.attempts.load(Ordering::Relaxed)
    }

    /// The request as the server gets it.
    pub(super) fn call(self: &Arc<Self>, request: Request) -> Call {
        let client: Arc<dyn Client> = Arc::clone(self) as _;
        let context = if self.context.is_our_own() {
            self.context.clone().through(client)
        } else {
            let mut context = CallContext::new(client, &request, self.context.caller().clone());
            if let Some(state) = self.context.state() {
                context.set_state(state.clone());
            }
            context
        };
        Call { request, context }
    }
}

impl Client for SessionClient {
    fn notify(
        self: Arc<Self>,
        _: &Origin,
        method: &Method,
        params: Option<&RawJson>,
    ) -> BoxFuture<Result<(), Error>> {
        let params = match method {
            Method::Progress => {
                let told =
                    params.zip(self.token()).and_then(|(it, token)| self.series.lock().tell(it, token));
                let Some(told) = told else { return Box::pin(std::future::ready(Ok(()))) };
                Some(told)
            }
            Method::LogMessage => params.cloned(),
            _ => {
                let session = self.label();
                tracing::debug!(session, %method, "dropped a message that does not belong to a request");
                return Box::pin(std::future::ready(Ok(())));
            }
        };
        let (context, method) = (self.context.clone(), method.clone());
        Box::pin(async move { context.notify(&method, params.as_ref()).await })
    }

    fn ask(
        self: Arc<Self>,
        _: &Origin,
        method: &Method,
        params: Option<&RawJson>,
    ) -> BoxFuture<Result<RawJson, RpcError>> {
        let (context, method, params) = (self.context.clone(), method.clone(), params.cloned());
        Box::pin(async move { context.ask(&method, params.as_ref()).await })
    }

    fn cancellation(&self, _: &RequestId, _: u64) -> Option<CancellationToken> {
        Some(self.context.cancellation())
    }

    fn capabilities(&self) -> RawJson {
        self.declared.capabilities.clone()
    }

    fn client_info(&self) -> Option<RawJson> {
        self.declared.info.clone()
    }

    fn protocol(&self) -> &'static str {
        MODERN
    }

    fn revision(&self) -> Revision {
        self.context.revision()
    }

    fn timeout(&self) -> Duration {
        self.context.timeout()
    }

    fn started(&self) -> Time {
        self.context.started()
    }

    fn label(&self) -> &str {
        self.context.session_label()
    }

    fn route(&self) -> &Route {
        self.context.route()
    }

    fn principal(&self) -> Principal {
        self.context.caller().principal.clone()
    }

    fn session(self: Arc<Self>) -> Option<CallSession> {
        self.context.session()
    }
}
