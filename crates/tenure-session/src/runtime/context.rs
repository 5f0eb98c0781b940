//! What a handler gets: the context of its request, and outlets for messages to the client.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::session::Session;
use super::sessions::Inner;
use super::stream::Origin;
use crate::error::{Error, Reason, RpcError};
use crate::id::{Principal, RequestId, SessionId};
use crate::message::{self, RawJson, Request};
use crate::method::Method;
use crate::phase::Phase;
use crate::port::clock::Time;
use crate::protocol::Revision;
use crate::rules::{self, LogLevel};
use crate::state::State;

/// Who sent a message, and how it reached us.
#[derive(Clone, Debug)]
pub struct Caller {
    /// `http`, `https`, later `stdio` and `websocket`.
    pub transport: &'static str,
    /// The other end, as far as known.
    pub remote: Option<SocketAddr>,
    /// Who it is.
    pub principal: Principal,
    /// The W3C `traceparent` of the message, if it has one.
    pub traceparent: Option<Box<str>>,
}

impl Caller {
    /// A caller about whom nothing is known but the transport.
    pub fn anonymous(transport: &'static str) -> Self {
        Self { transport, remote: None, principal: Principal::ANONYMOUS, traceparent: None }
    }
}

/// The context of one request.
#[derive(Debug)]
pub struct CallContext {
    session: Arc<Session>,
    id: RequestId,
    number: u64,
    method: Method,
    caller: Caller,
    started: Time,
    /// The request's params, for the few who look for `_meta` there.
    params: Option<RawJson>,
    /// What the request works on, if it names a data session or a handle.
    state: Option<State>,
}

impl CallContext {
    pub(super) fn new(
        session: Arc<Session>,
        request: &Request,
        number: u64,
        caller: Caller,
        started: Time,
    ) -> Self {
        let (id, method, params) = (request.id.clone(), request.method.clone(), request.params.clone());
        Self { session, id, number, method, caller, started, params, state: None }
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

    /// The session's name in logs.
    pub fn session_label(&self) -> &str {
        self.session.label()
    }

    /// The session's revision.
    pub fn revision(&self) -> Revision {
        self.session.revision()
    }

    /// The name the client gave itself at `initialize`.
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
        let initialize = self.session.state.lock().initialize.clone();
        initialize.read::<Params>().ok().map(|params| params.client_info.name)
    }

    /// When the request was admitted.
    pub fn started(&self) -> Time {
        self.started
    }

    /// How long the request may take without reporting progress.
    pub fn timeout(&self) -> Duration {
        self.session.inner.limits.request_timeout
    }

    /// The token under which the client wants to hear of progress, raw.
    pub fn progress_token(&self) -> Option<RawJson> {
        rules::progress_token(self.params.as_ref())
    }

    /// An outlet for messages that belong to this request; it may outlive the context.
    pub fn outlet(&self) -> Outlet {
        Outlet { session: Arc::downgrade(&self.session), origin: self.origin(), link: 0 }
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

    /// Sends a notification that belongs to this request.
    ///
    /// # Errors
    /// When the request is over.
    pub async fn notify(&self, method: &Method, params: Option<&RawJson>) -> Result<(), Error> {
        notify(&self.session, &self.origin(), method, params).await
    }

    /// Asks the client something on this request's stream, and waits for the answer.
    ///
    /// # Errors
    /// What the client answered, or why it could not be asked.
    pub async fn ask(&self, method: &Method, params: Option<&RawJson>) -> Result<RawJson, RpcError> {
        self.session.ask(self.origin(), method, params).await
    }

    /// Closes the connection that waits for this request's answer, but not the request: the client
    /// comes back for the answer. Does nothing in sessions whose revision does not know this.
    pub fn close_connection(&self) {
        let mut state = self.session.state.lock();
        if !state.revision.may_close_early() {
            return;
        }
        if let Ok(stream) = self.session.stream_of(&mut state, &self.id, self.number) {
            self.session.close_connection(&mut state, stream);
        }
        drop(state);
        self.session.flush();
    }

    /// Whether this is a request of the runtime's own, of which the client knows nothing: nobody withdraws it, and
    /// what is said about it reaches nobody.
    pub fn is_our_own(&self) -> bool {
        self.number == 0
    }

    /// Resolves when the client withdraws the request, or its time is up.
    pub async fn cancelled(&self) {
        if self.is_our_own() {
            return std::future::pending().await;
        }
        // A request that is no longer in flight is as good as cancelled.
        if let Some(token) = self.session.cancel_token(&self.id, self.number) {
            token.cancelled().await;
        }
    }

    /// A token that is cancelled when the request is withdrawn or its time is up.
    pub fn cancellation(&self) -> CancellationToken {
        if self.is_our_own() {
            return CancellationToken::new();
        }
        self.session.cancel_token(&self.id, self.number).unwrap_or_else(|| {
            let over = CancellationToken::new();
            over.cancel();
            over
        })
    }

    /// Whether the request was withdrawn or is over.
    pub fn is_cancelled(&self) -> bool {
        let token = || self.session.cancel_token(&self.id, self.number);
        !self.is_our_own() && token().is_none_or(|token| token.is_cancelled())
    }

    fn origin(&self) -> Origin {
        Origin::Call { id: self.id.clone(), number: self.number }
    }
}

/// Where messages to the client go.
#[derive(Clone, Debug)]
pub struct Outlet {
    /// Weak, because a backend may keep an outlet longer than the session lives.
    session: Weak<Session>,
    origin: Origin,
    /// The number of the link that it was made for.
    link: u64,
}

impl Outlet {
    pub(super) fn of_link(session: &Arc<Session>, link: u64) -> Self {
        Self { session: Arc::downgrade(session), origin: Origin::Session, link }
    }

    /// Sends a notification.
    ///
    /// # Errors
    /// When the session or the request it belongs to is over.
    pub async fn notify(&self, method: &Method, params: Option<&RawJson>) -> Result<(), Error> {
        notify(&self.session()?, &self.origin, method, params).await
    }

    /// Asks the client something and waits for the answer.
    ///
    /// # Errors
    /// What the client answered, or why it could not be asked.
    pub async fn ask(&self, method: &Method, params: Option<&RawJson>) -> Result<RawJson, RpcError> {
        let session = self.session().map_err(|error| error.to_rpc())?;
        session.ask(self.origin.clone(), method, params).await
    }

    /// Tells this session, if it watches `uri`, that it changed. For what belongs to one session alone;
    /// what is shared goes through [`Fanout::resource_updated`].
    ///
    /// # Errors
    /// When the session is over.
    pub async fn resource_updated(&self, uri: &str) -> Result<(), Error> {
        let session = self.session()?;
        if !session.state.lock().subscriptions.contains(uri) {
            return Ok(());
        }
        let params = RawJson::of(&serde_json::json!({ "uri": uri }));
        notify(&session, &Origin::Session, &Method::ResourceUpdated, Some(&params)).await
    }

    /// The link is gone without having been closed: the session gets another one with its next request.
    pub fn link_lost(&self) {
        if let Ok(session) = self.session() {
            session.link_lost(self.link);
        }
    }

    /// The session's name in logs.
    pub fn session_label(&self) -> String {
        self.session().map_or_else(|_| "s-gone".to_owned(), |session| session.label().to_owned())
    }

    fn session(&self) -> Result<Arc<Session>, Error> {
        self.session.upgrade().ok_or_else(|| Error::new(Reason::SessionNotFound, "the session is over"))
    }
}

async fn notify(
    session: &Arc<Session>,
    origin: &Origin,
    method: &Method,
    params: Option<&RawJson>,
) -> Result<(), Error> {
    match method {
        Method::LogMessage => {
            let wanted = session.state.lock().log_level.unwrap_or(LogLevel::Debug);
            if rules::log_level(params).is_some_and(|level| level < wanted) {
                return Ok(());
            }
        }
        Method::Progress => {
            if let Origin::Call { id, number } = origin {
                let now = session.inner.clock.now();
                let mut state = session.state.lock();
                if let Some(call) = state.calls.get_mut(id).filter(|call| call.number == *number) {
                    call.progressed = Some(now);
                    if call.repeats_progress(params) {
                        return Ok(());
                    }
                }
            }
        }
        _ => {}
    }
    session.emit(origin, message::write_notification(method, params)).await
}

/// News that may concern every session of a backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// The list of tools changed.
    Tools,
    /// The list of prompts changed.
    Prompts,
    /// The list of resources changed.
    Resources,
}

impl News {
    const ALL: [Self; 3] = [Self::Tools, Self::Prompts, Self::Resources];

    fn method(self) -> Method {
        match self {
            Self::Tools => Method::ToolsListChanged,
            Self::Prompts => Method::PromptsListChanged,
            Self::Resources => Method::ResourcesListChanged,
        }
    }
}

/// When each list last changed, for sessions that slept meanwhile.
#[derive(Default)]
pub(super) struct LastNews([AtomicU64; 3]);

impl LastNews {
    fn note(&self, news: News, now: Time) {
        self.0[news as usize].store(now.0, Ordering::Relaxed);
    }

    /// The lists that changed after this time.
    pub(super) fn since(&self, time: Time) -> impl Iterator<Item = Method> {
        let changed = move |news: &News| self.0[*news as usize].load(Ordering::Relaxed) > time.0;
        News::ALL.into_iter().filter(changed).map(News::method)
    }
}

/// Tells many sessions at once.
#[derive(Clone)]
pub struct Fanout(pub(super) Weak<Inner>);

impl Fanout {
    /// Tells every session that watches `uri` that it changed. Nobody watches: nothing happens.
    pub fn resource_updated(&self, uri: &str) {
        let Some(inner) = self.0.upgrade() else { return };
        let params = RawJson::of(&serde_json::json!({ "uri": uri }));
        let body = message::write_notification(&Method::ResourceUpdated, Some(&params));
        for id in inner.watchers.of(uri) {
            if let Some(session) = inner.live.get(&id) {
                tell(&session, &body);
            }
        }
    }

    /// Tells every session that a list changed.
    pub fn list_changed(&self, news: News) {
        let Some(inner) = self.0.upgrade() else { return };
        let method = news.method();
        inner.news.note(news, inner.clock.now());
        let body = message::write_notification(&method, None);
        for session in inner.live.all() {
            if session.state.lock().phase == Phase::Initialized {
                tell(&session, &body);
            }
        }
    }
}

fn tell(session: &Arc<Session>, body: &bytes::Bytes) {
    if let Err(error) = session.emit_now(&Origin::Session, body.clone()) {
        tracing::debug!(session = %session.label, %error, "could not pass news on");
    }
}

impl std::fmt::Debug for Fanout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fanout")
    }
}

/// Which sessions watch which resource.
#[derive(Default)]
pub(super) struct Watchers {
    by_uri: Mutex<HashMap<Box<str>, HashSet<SessionId, RandomState>, RandomState>>,
}

impl Watchers {
    pub(super) fn add(&self, uri: &str, id: SessionId) {
        self.by_uri.lock().entry(uri.into()).or_default().insert(id);
    }

    pub(super) fn remove(&self, uri: &str, id: &SessionId) {
        let mut by_uri = self.by_uri.lock();
        if let Some(sessions) = by_uri.get_mut(uri) {
            sessions.remove(id);
            if sessions.is_empty() {
                by_uri.remove(uri);
            }
        }
    }

    fn of(&self, uri: &str) -> Vec<SessionId> {
        self.by_uri.lock().get(uri).map(|sessions| sessions.iter().copied().collect()).unwrap_or_default()
    }
}
