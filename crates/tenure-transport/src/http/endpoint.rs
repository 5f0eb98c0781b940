//! The MCP endpoint: one request in, one response out.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Response};
use tenure_protocol::{Eras, Error, Reason};
use tenure_session::budget::{Budget, Peer, Resource, Share, Taken};
use tenure_session::call::{Caller, Collect};
use tenure_session::exchange::Exchanges;
use tenure_session::{Principal, Reader, Session, SessionId, Sessions};
use tokio_util::task::TaskTracker;

use super::answer::AnswerFormat;
use super::body::Body;
use super::cors::{self, BrowserPage};
use super::event_body::SessionEvents;
use super::guard::{self, AllowedHosts, AllowedOrigins};
use super::headers;
use super::leniencies::Leniencies;
use super::refused::Refused;
use super::reject::{reject, reject_method};

/// What the endpoint allows.
#[derive(Clone, Debug)]
pub struct Rules {
    /// `Host` values that are allowed.
    pub hosts: AllowedHosts,
    /// `Origin` values that are allowed.
    pub origins: AllowedOrigins,
    /// The largest body that is read.
    pub max_body_bytes: usize,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// How often a quiet stream gets a comment.
    pub keep_alive: Duration,
    /// How long an HTTP/2 client may make no room on a stream while bytes wait for it.
    pub stall_timeout: Duration,
    /// Exceptions for clients of earlier designs.
    pub leniencies: Leniencies,
    /// How much clients may make the server hold.
    pub budget: Budget,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            hosts: AllowedHosts::Loopback,
            origins: AllowedOrigins::Loopback,
            max_body_bytes: 4 << 20,
            body_timeout: Duration::from_secs(30),
            keep_alive: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(60),
            leniencies: Leniencies::NONE,
            budget: Budget::default(),
        }
    }
}

/// The MCP endpoint of some sessions; a `tower` service. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Endpoint(pub(super) Arc<EndpointState>);

#[derive(Debug)]
pub(super) struct EndpointState {
    pub(super) sessions: Sessions,
    pub(super) exchanges: Option<Exchanges>,
    pub(super) rules: Rules,
    refused: Refused,
    /// Tasks that read streams for clients. Each ends with the connection of its client.
    pub(super) tasks: TaskTracker,
}

/// The other end of the connection. An embedder's server passes it as an extension of the request.
#[derive(Clone, Debug)]
pub struct Remote {
    /// Its address.
    pub address: SocketAddr,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// How much it may make the server hold, if its connection has looked that up already.
    pub(crate) share: Option<Share>,
}

impl Remote {
    /// A client at this address that speaks `http` or `https`.
    pub fn new(address: SocketAddr, scheme: &'static str) -> Self {
        Self { address, scheme, share: None }
    }
}

/// The sender of a request, and the memory that the request takes.
pub(super) struct Asker<'a> {
    pub(super) remote: Option<&'a Remote>,
    /// The memory of its body.
    pub(super) held: Arc<Taken>,
}

impl Endpoint {
    /// An endpoint that serves only these sessions.
    pub fn new(sessions: Sessions, rules: Rules) -> Self {
        Self(Arc::new(EndpointState {
            sessions,
            exchanges: None,
            rules,
            refused: Refused::default(),
            tasks: TaskTracker::new(),
        }))
    }

    /// Serves requests without a session too.
    #[must_use]
    pub fn with_exchanges(self, exchanges: Exchanges) -> Self {
        let (sessions, rules) = (self.0.sessions.clone(), self.0.rules.clone());
        Self(Arc::new(EndpointState {
            sessions,
            exchanges: Some(exchanges),
            rules,
            refused: Refused::default(),
            tasks: TaskTracker::new(),
        }))
    }

    /// The sessions it serves.
    pub fn sessions(&self) -> &Sessions {
        &self.0.sessions
    }

    /// Answers one request that came from `remote`.
    ///
    /// # Cancel safety
    /// An admitted request of a session goes on when this future is dropped; a request without a session is withdrawn.
    pub async fn handle<B>(&self, request: Request<B>, remote: Option<&Remote>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let page = match self.admit(&parts, remote, self.methods()) {
            ControlFlow::Continue(page) => page,
            ControlFlow::Break(response) => return response,
        };
        let response = match parts.method {
            Method::POST => self.post(&parts, body, remote, AnswerFormat::Streamable).await,
            Method::GET if let Some(response) = Box::pin(self.resume_call(&parts, remote)).await => response,
            _ if self.has_no_sessions_for(headers::protocol_version(&parts.headers)) => reject_method("POST"),
            // Boxed, so that the future of the frequent POST has no room for the rare methods.
            Method::GET => Box::pin(self.get(&parts, remote)).await,
            Method::DELETE => Box::pin(self.delete(&parts)).await,
            _ => reject(&Error::new(Reason::MethodNotAllowed, "Use POST, GET or DELETE"), None),
        };
        cors::readable(response, page)
    }

    pub(super) fn rules(&self) -> &Rules {
        &self.0.rules
    }

    /// Checks Host and Origin; every path of the endpoint does so first. Breaks with the response for a request that
    /// is not allowed, and for a browser's preflight request. Continues with the page that sent the request, if a
    /// page did.
    pub(super) fn admit(
        &self,
        parts: &http::request::Parts,
        remote: Option<&Remote>,
        methods: &'static str,
    ) -> ControlFlow<Response<Body>, Option<BrowserPage>> {
        let page = self.page(&parts.headers);
        if let Err(error) = guard::check_host(parts, remote, &self.0.rules.hosts) {
            self.tell_refused(&error, parts);
            return ControlFlow::Break(cors::readable(reject(&error, None), page.ok().flatten()));
        }
        let page = match page {
            Ok(page) => page,
            Err(error) => {
                self.tell_refused(&error, parts);
                return ControlFlow::Break(reject(&error, None));
            }
        };
        match page.as_ref().and_then(|page| page.preflight(&parts.method, &parts.headers, methods)) {
            Some(response) => ControlFlow::Break(response),
            None => ControlFlow::Continue(page),
        }
    }

    /// The page that sends a request, if a page does.
    pub(super) fn page(&self, headers: &HeaderMap) -> Result<Option<BrowserPage>, Error> {
        guard::check_origin(headers, &self.0.rules.origins)
    }

    /// Logs for operators which host or origin was refused, and how to allow it.
    fn tell_refused(&self, error: &Error, parts: &http::request::Parts) {
        let host = guard::host(&parts.headers, parts.uri.authority());
        self.0.refused.tell(error, host, &parts.headers);
    }

    /// The HTTP methods that the endpoint allows.
    fn methods(&self) -> &'static str {
        match self.eras() {
            Eras::Modern => "POST",
            Eras::Legacy | Eras::Both => "GET, POST, DELETE",
        }
    }

    /// Finds the session that the headers name. If it has to be woken, its memory counts against the sender's share.
    pub(super) async fn session(
        &self,
        parts: &http::request::Parts,
        remote: Option<&Remote>,
    ) -> Result<Arc<Session>, Error> {
        let share = || Some(self.share(remote));
        let found = match session_id(parts) {
            Ok(id) => self.0.sessions.find_within(share, &id, &self.principal(parts)).await,
            Err(error) => Err(error),
        };
        found.map_err(|error| self.0.rules.leniencies.not_found(error, &parts.headers))
    }

    /// The principal of a request. Until authentication checks credentials, every principal is anonymous.
    #[expect(clippy::unused_self, reason = "credentials will be checked by the endpoint's rules")]
    pub(super) fn principal(&self, _parts: &http::request::Parts) -> Principal {
        Principal::ANONYMOUS
    }

    /// How much the sender of a request may make the server hold.
    pub(super) fn share(&self, remote: Option<&Remote>) -> Share {
        match remote {
            Some(Remote { share: Some(share), .. }) => share.clone(),
            Some(Remote { address, .. }) => self.0.rules.budget.share(Peer::at(address.ip())),
            None => self.0.rules.budget.share(Peer::UNKNOWN),
        }
    }

    /// The caller of a request without a body.
    pub(super) fn bodiless(&self, parts: &http::request::Parts, remote: Option<&Remote>) -> Caller {
        let held = Arc::new(self.share(remote).take_anyway(Resource::Memory, 0));
        self.caller(parts, &Asker { remote, held })
    }

    pub(super) fn caller(&self, parts: &http::request::Parts, asker: &Asker<'_>) -> Caller {
        let traceparent = parts.headers.get(headers::TRACEPARENT);
        Caller {
            transport: asker.remote.map_or("http", |remote| remote.scheme),
            remote: asker.remote.map(|remote| remote.address),
            principal: self.principal(parts),
            traceparent: traceparent.and_then(|value| value.to_str().ok()).map(Box::from),
            collect: Collect::Resumes,
            held: Some(Arc::clone(&asker.held)),
        }
    }

    /// Prepares a response for this version of HTTP. In HTTP/2, many streams share a connection, so each stream needs
    /// its own limit on how long it may be stuck.
    pub(super) fn at_pace(
        &self,
        version: http::Version,
        response: Response<Body>,
        share: &Share,
    ) -> Response<Body> {
        match version {
            http::Version::HTTP_2 | http::Version::HTTP_3 => {
                response.map(|body| body.at_pace(&self.0.tasks, self.0.rules.stall_timeout, share))
            }
            _ => response.map(|body| body.counted(share)),
        }
    }

    /// A response that streams events.
    pub(super) fn stream(&self, reader: Reader) -> Response<Body> {
        let rules = &self.0.rules;
        let events = SessionEvents { reader, wording: rules.leniencies.wording() };
        event_stream(Body::events(events, rules.keep_alive))
    }
}

/// The session id that the headers carry.
pub(super) fn session_id(parts: &http::request::Parts) -> Result<SessionId, Error> {
    match headers::session(&parts.headers) {
        headers::SessionHeader::Session(id) => Ok(id),
        headers::SessionHeader::Unknown => {
            Err(Error::new(Reason::SessionNotFound, "Session not found or expired"))
        }
        headers::SessionHeader::None => {
            Err(Error::new(Reason::SessionRequired, "Missing Mcp-Session-Id header: start with initialize"))
        }
    }
}

pub(super) fn event_stream(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    // Without this, nginx and similar proxies buffer the stream.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

/// Names the session in a response to its owner.
pub(super) fn with_session(mut response: Response<Body>, session: &Session) -> Response<Body> {
    if let Ok(id) = HeaderValue::from_str(&session.id().expose()) {
        response.headers_mut().insert(headers::SESSION_ID, id);
    }
    response
}
