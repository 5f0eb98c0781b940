//! The outcome of each request, told once, when its answer has ended: for access logs, metrics and audit logs.
//!
//! In: what every step learns about a request, noted in `RequestNotes`. Out: one [`RequestEnd`] for the
//! [`RequestObserver`], also if the request was refused or its client hung up. Without an observer there are no notes, and
//! nothing is allocated.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use tenure_protocol::message::{WrittenAnswer, written_answer};
use tenure_protocol::revision::MODERN;
use tenure_protocol::{Message, Method, Reason, Request, RequestId, params};
use tenure_session::call::Caller;
use tenure_session::figures::RequestFigures;
use tenure_session::{Principal, Route, Session, SessionKey};
use tokio::time::Instant;

use crate::correlation;

/// The longest name of a tool, prompt or resource that is noted.
const LONGEST_NAME: usize = 256;

/// The most requests of a full-duplex connection that are watched at once. A session bounds them lower.
const MOST_WATCHED: usize = 4096;

/// A request whose answer has ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RequestEnd<'a> {
    /// `http`, `https`, `stdio`, `websocket`, or `sse` for a message that was posted to `/messages`.
    pub transport: &'static str,
    /// The request of HTTP; `None` for a message of a full-duplex connection.
    pub http: Option<HttpEnd<'a>>,
    /// The name of the endpoint, if it has one: the server behind `/mcp/NAME`.
    pub endpoint: Option<&'a str>,
    /// The method of the message, if one was read.
    pub method: Option<&'a Method>,
    /// The tool, prompt or resource that it names.
    pub name: Option<&'a str>,
    /// Requests in a batch.
    pub batch: Option<usize>,
    /// The outcome of the message.
    pub outcome: Outcome,
    /// Whether the answer was sent to its end. Otherwise the client went away, or the process did.
    pub is_complete: bool,
    /// From the head of the request to the end of the answer.
    pub duration: Duration,
    /// Bytes of the request's body.
    pub bytes_in: u64,
    /// Bytes of the answer's body.
    pub bytes_out: u64,
    /// The name of the session in logs; never its id.
    pub session: Option<&'a str>,
    /// The hash of its id, if it is still there.
    pub session_key: Option<&'a SessionKey>,
    /// The revision that it was answered in, if it was read so far.
    pub protocol: Option<&'static str>,
    /// Who sent it.
    pub principal: &'a Principal,
    /// The name that the client gave itself.
    pub client: Option<&'a str>,
    /// The address of the client.
    pub remote: Option<SocketAddr>,
    /// The id by which logs of several processes are put together.
    pub correlation: Option<&'a str>,
    /// The trace id of its `traceparent`.
    pub trace: Option<&'a str>,
}

impl<'a> RequestEnd<'a> {
    /// A request of this sender of which nothing else is known, for tests of observers.
    pub fn of(principal: &'a Principal) -> Self {
        Self {
            transport: "http",
            http: None,
            endpoint: None,
            method: None,
            name: None,
            batch: None,
            outcome: Outcome::None,
            is_complete: false,
            duration: Duration::ZERO,
            bytes_in: 0,
            bytes_out: 0,
            session: None,
            session_key: None,
            protocol: None,
            principal,
            client: None,
            remote: None,
            correlation: None,
            trace: None,
        }
    }
}

impl RequestEnd<'_> {
    /// Whether it was a request of MCP, and not a notification, an answer, or a request of HTTP alone.
    pub fn is_call(&self) -> bool {
        self.method.is_some_and(|method| !method.as_str().starts_with("notifications/"))
    }

    /// Whether it ended with an error, or with a result that says that the tool failed.
    pub fn has_failed(&self) -> bool {
        matches!(self.outcome, Outcome::Error { .. } | Outcome::ToolError | Outcome::Limited { .. })
    }

    /// Adds it to the figures of its session.
    fn count_for(&self, session: &Session) {
        let Some(method) = self.method.filter(|_| self.is_call()) else { return };
        session.count(&RequestFigures {
            method,
            name: self.name,
            has_failed: self.has_failed(),
            took: (self.outcome != Outcome::None).then_some(self.duration),
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            remote: self.remote,
            transport: self.transport,
        });
    }
}

/// The part of a request that HTTP has.
#[derive(Clone, Copy, Debug)]
pub struct HttpEnd<'a> {
    /// The method.
    pub method: &'a http::Method,
    /// The path, without the query.
    pub path: &'a str,
    /// The status; `None` if the client hung up before there was one.
    pub status: Option<u16>,
}

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Outcome {
    /// There was no message to answer, or its answer was not sent here.
    #[default]
    None,
    /// A result.
    Result,
    /// The result of a tool that says that the tool failed.
    ToolError,
    /// The result of a tool that says in words that the call was refused, where `limits.answer` asks for that.
    Limited {
        /// Why.
        reason: Reason,
    },
    /// An error.
    Error {
        /// Its code.
        code: i64,
        /// Why, if the error is our own.
        reason: Option<Reason>,
    },
}

impl From<WrittenAnswer> for Outcome {
    fn from(answer: WrittenAnswer) -> Self {
        match answer {
            WrittenAnswer::Result { is_tool_error: false } => Self::Result,
            WrittenAnswer::Result { is_tool_error: true } => Self::ToolError,
            WrittenAnswer::Refused { reason } => Self::Limited { reason },
            WrittenAnswer::Error { code, reason } => Self::Error { code, reason },
        }
    }
}

/// Hears of every request that has ended.
///
/// 1. `ended` is called once for each request, from the task that served it. It must not wait.
/// 2. What it is given may come from any client: names and paths are bounded, and not made harmless.
pub trait RequestObserver: Send + Sync + 'static {
    /// A request has ended.
    fn ended(&self, request: &RequestEnd<'_>);
}

/// The observers of requests; empty by default. Cheap to clone.
#[derive(Clone, Default)]
pub struct Observers(Option<Arc<dyn RequestObserver>>);

impl Observers {
    /// These observers, in this order.
    pub fn new(observers: impl IntoIterator<Item = Arc<dyn RequestObserver>>) -> Self {
        let mut all: Vec<_> = observers.into_iter().collect();
        match all.len() {
            0 | 1 => Self(all.pop()),
            _ => Self(Some(Arc::new(All(all)))),
        }
    }
}

impl Observers {
    /// For requests of which the observers hear elsewhere: here they only count for their session.
    pub(crate) fn silenced(&self) -> Self {
        Self(self.0.as_ref().map(|_| Arc::new(Silence) as _))
    }
}

struct Silence;

impl RequestObserver for Silence {
    fn ended(&self, _: &RequestEnd<'_>) {}
}

struct All(Vec<Arc<dyn RequestObserver>>);

impl RequestObserver for All {
    fn ended(&self, request: &RequestEnd<'_>) {
        for observer in &self.0 {
            observer.ended(request);
        }
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Observers").field(&self.0.is_some()).finish()
    }
}

/// A request that is under way. When this is dropped, the request has ended.
#[derive(Debug)]
pub(crate) struct OpenRequest(Arc<RequestNotes>);

/// What is known of a request so far.
#[derive(Debug)]
pub(crate) struct RequestNotes {
    observers: Observers,
    began: Instant,
    transport: &'static str,
    http: Option<(http::Method, Uri)>,
    route: Route,
    remote: Option<SocketAddr>,
    correlation: Arc<str>,
    trace: Option<Box<str>>,
    bytes_out: AtomicU64,
    is_complete: AtomicBool,
    noted: Mutex<Noted>,
}

#[derive(Debug)]
struct Noted {
    method: Option<Method>,
    name: Option<String>,
    batch: Option<usize>,
    bytes_in: u64,
    status: Option<u16>,
    outcome: Outcome,
    session: Option<Arc<Session>>,
    /// The name in logs of a session that is not there any more.
    label: Option<Box<str>>,
    /// The name of a client without a session.
    client: Option<Box<str>>,
    principal: Principal,
}

impl OpenRequest {
    /// A request of HTTP begins.
    pub(crate) fn http(
        observers: &Observers,
        parts: &http::request::Parts,
        (transport, remote): (&'static str, Option<SocketAddr>),
        route: &Route,
    ) -> Option<Self> {
        observers.0.as_ref()?;
        let (correlation, trace) = correlation::of(&parts.headers);
        Some(Self::new(RequestNotes {
            http: Some((parts.method.clone(), parts.uri.clone())),
            trace,
            ..RequestNotes::begin(
                observers,
                (transport, remote),
                route,
                correlation.unwrap_or_else(correlation::make),
            )
        }))
    }

    fn new(notes: RequestNotes) -> Self {
        Self(Arc::new(notes))
    }

    pub(crate) fn notes(&self) -> &Arc<RequestNotes> {
        &self.0
    }
}

impl RequestNotes {
    fn begin(
        observers: &Observers,
        (transport, remote): (&'static str, Option<SocketAddr>),
        route: &Route,
        correlation: Arc<str>,
    ) -> Self {
        let noted = Noted {
            method: None,
            name: None,
            batch: None,
            bytes_in: 0,
            status: None,
            outcome: Outcome::None,
            session: None,
            label: None,
            client: None,
            principal: Principal::ANONYMOUS,
        };
        Self {
            observers: observers.clone(),
            began: Instant::now(),
            transport,
            http: None,
            route: route.clone(),
            remote,
            correlation,
            trace: None,
            bytes_out: AtomicU64::new(0),
            is_complete: AtomicBool::new(false),
            noted: Mutex::new(noted),
        }
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        // Every change is a single assignment, so a panic leaves the notes whole.
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The id by which logs of several processes are put together.
    pub(crate) fn correlation(&self) -> Arc<str> {
        Arc::clone(&self.correlation)
    }

    pub(crate) fn principal(&self, principal: &Principal) {
        self.noted().principal = principal.clone();
    }

    pub(crate) fn read(&self, bytes: usize) {
        self.noted().bytes_in = bytes as u64;
    }

    /// The message that the request carries.
    pub(crate) fn message(&self, message: &Message) {
        let (method, params) = match message {
            Message::Request(request) => (&request.method, request.params.as_ref()),
            Message::Notification(notification) => (&notification.method, notification.params.as_ref()),
            Message::Response(_) => return,
        };
        let name = match method {
            Method::ToolsCall | Method::PromptsGet => params::tool_name(params),
            Method::ResourcesRead | Method::ResourcesSubscribe | Method::ResourcesUnsubscribe => {
                params::text_member(params, "uri")
            }
            _ => None,
        };
        let mut noted = self.noted();
        noted.method = Some(match method {
            Method::Other(name) => Method::new(cut(name)),
            known => known.clone(),
        });
        noted.name = name.map(|mut name| {
            name.truncate(cut(&name).len());
            name
        });
    }

    pub(crate) fn batch(&self, messages: usize) {
        self.noted().batch = Some(messages);
    }

    /// The session that it belongs to. It is held as long as the request, which has no copy of its names.
    pub(crate) fn session(&self, session: &Arc<Session>) {
        self.noted().session = Some(Arc::clone(session));
    }

    /// The name in logs of a session that is not there any more.
    pub(crate) fn label(&self, label: &str) {
        self.noted().label = Some(label.into());
    }

    /// The client of a request without a session.
    pub(crate) fn client(&self, name: &str) {
        self.noted().client = Some(cut(name).into());
    }

    pub(crate) fn status(&self, status: http::StatusCode, refusal: Option<Reason>) {
        let mut noted = self.noted();
        noted.status = Some(status.as_u16());
        if let Some(reason) = refusal {
            noted.outcome = Outcome::Error { code: reason.code().into(), reason: Some(reason) };
        }
    }

    /// A message that goes to the client; only an answer says how the request ended.
    pub(crate) fn sends(&self, message: &[u8]) {
        let mut noted = self.noted();
        let is_tool = matches!(noted.method, Some(Method::ToolsCall));
        if let Some(answer) = written_answer(message, is_tool) {
            noted.outcome = answer.into();
        }
    }

    /// Bytes of the answer were given to the connection.
    pub(crate) fn sent(&self, bytes: usize) {
        self.bytes_out.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The answer was given to the connection as a whole.
    pub(crate) fn complete(&self) {
        self.is_complete.store(true, Ordering::Relaxed);
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let notes = &*self.0;
        let Some(observer) = &notes.observers.0 else { return };
        let noted = notes.noted();
        let session = noted.session.as_ref();
        let is_modern = session.is_none() && noted.client.is_some();
        let request = RequestEnd {
            transport: notes.transport,
            http: notes.http.as_ref().map(|(method, uri)| HttpEnd {
                method,
                path: cut(uri.path()),
                status: noted.status,
            }),
            endpoint: notes.route.name(),
            method: noted.method.as_ref(),
            name: noted.name.as_deref(),
            batch: noted.batch,
            outcome: noted.outcome,
            is_complete: notes.is_complete.load(Ordering::Relaxed),
            duration: notes.began.elapsed(),
            bytes_in: noted.bytes_in,
            bytes_out: notes.bytes_out.load(Ordering::Relaxed),
            session_key: session.map(|session| session.key()),
            protocol: session.map(|session| session.revision().as_str()).or(is_modern.then_some(MODERN)),
            session: session.map_or(noted.label.as_deref(), |session| Some(session.label())),
            principal: &noted.principal,
            client: session.map_or(noted.client.as_deref(), |session| session.client_name().map(cut)),
            remote: notes.remote,
            correlation: Some(&notes.correlation),
            trace: notes.trace.as_deref(),
        };
        if let Some(session) = session {
            request.count_for(session);
        }
        observer.ended(&request);
    }
}

/// The requests of a full-duplex connection whose answers have not been queued yet. Cheap to clone.
#[derive(Clone, Default, Debug)]
pub(crate) struct OpenCalls(Option<Arc<CallsOfConnection>>);

#[derive(Debug)]
struct CallsOfConnection {
    observers: Observers,
    caller: Caller,
    transport: &'static str,
    route: Route,
    calls: Mutex<Vec<(RequestId, OpenRequest)>>,
}

impl OpenCalls {
    /// Watches the requests of this caller.
    pub(crate) fn of(observers: &Observers, caller: &Caller, transport: &'static str, route: &Route) -> Self {
        Self(observers.0.as_ref().map(|_| {
            Arc::new(CallsOfConnection {
                observers: observers.clone(),
                // `held` belongs to single requests.
                caller: Caller { held: None, ..caller.clone() },
                transport,
                route: route.clone(),
                calls: Mutex::default(),
            })
        }))
    }

    /// A request came. Its correlation id goes with it to the server.
    pub(crate) fn begin(
        &self,
        request: &Request,
        bytes: usize,
        session: Option<&Arc<Session>>,
    ) -> Option<Arc<str>> {
        let of = self.0.as_ref()?;
        let correlation = correlation::make();
        of.watch(request, of.open(bytes, session, &correlation));
        Some(correlation)
    }

    /// The requests of a batch came, each with the bytes of its element. They have one correlation id.
    pub(crate) fn begin_batch<'a>(
        &self,
        requests: impl Iterator<Item = (&'a Request, usize)>,
        messages: usize,
        session: &Arc<Session>,
    ) -> Option<Arc<str>> {
        let of = self.0.as_ref()?;
        let correlation = correlation::make();
        for (request, bytes) in requests {
            let open = of.open(bytes, Some(session), &correlation);
            open.notes().batch(messages);
            of.watch(request, open);
        }
        Some(correlation)
    }

    /// A batch was refused as a whole.
    pub(crate) fn refused_batch(&self, messages: usize, bytes: usize, refusal: &Bytes) {
        let Some(of) = &self.0 else { return };
        let open = of.open(bytes, None, &correlation::make());
        let notes = open.notes();
        notes.batch(messages);
        notes.sends(refusal);
        notes.sent(refusal.len());
        notes.complete();
    }

    /// The answer to a request was queued.
    pub(crate) fn end(&self, id: &RequestId, answer: &Bytes) {
        let Some(of) = &self.0 else { return };
        let open = {
            let mut calls = of.lock();
            // The last one: a request is refused at once if another one with its id is in flight.
            let place = calls.iter().rposition(|(open, _)| open == id);
            place.map(|place| calls.swap_remove(place).1)
        };
        if let Some(open) = open {
            let notes = open.notes();
            notes.sends(answer);
            notes.sent(answer.len());
            notes.complete();
        }
    }

    /// A message about a request was queued; if it is the answer, the request ends.
    pub(crate) fn passes(&self, id: &RequestId, message: &Bytes) {
        if self.0.is_some() && written_answer(message, false).is_some() {
            self.end(id, message);
        }
    }

    /// A request gets no answer any more, if it has had none.
    pub(crate) fn withdrawn(&self, id: &RequestId) {
        if let Some(of) = &self.0 {
            of.lock().retain(|(open, _)| open != id);
        }
    }

    /// The connection is over: requests that have no answer by now get none here.
    pub(crate) fn end_all(&self) {
        let open = self.0.as_ref().map(|of| std::mem::take(&mut *of.lock()));
        drop(open);
    }

    /// Names the session of a request that opened it.
    pub(crate) fn opened(&self, id: &RequestId, session: &Arc<Session>) {
        let Some(of) = &self.0 else { return };
        if let Some((_, open)) = of.lock().iter().rfind(|(open, _)| open == id) {
            open.notes().session(session);
        }
    }
}

impl CallsOfConnection {
    fn open(&self, bytes: usize, session: Option<&Arc<Session>>, correlation: &Arc<str>) -> OpenRequest {
        let open = OpenRequest::new(RequestNotes::begin(
            &self.observers,
            (self.transport, self.caller.remote),
            &self.route,
            Arc::clone(correlation),
        ));
        let notes = open.notes();
        notes.principal(&self.caller.principal);
        notes.read(bytes);
        if let Some(session) = session {
            notes.session(session);
        }
        open
    }

    fn watch(&self, request: &Request, open: OpenRequest) {
        open.notes().message(&Message::Request(request.clone()));
        let mut calls = self.lock();
        if calls.len() < MOST_WATCHED {
            calls.push((request.id.clone(), open));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(RequestId, OpenRequest)>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The start of a text that may be of any length.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST_NAME)]
}
