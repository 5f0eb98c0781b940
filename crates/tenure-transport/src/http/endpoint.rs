//! The MCP endpoint: one request in, one response out.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Response};
use tenure_auth::{ClientCertificate, LastShown};
use tenure_protocol::{Eras, Error, Reason};
use tenure_session::budget::{Budget, Peer, Resource, Share, Taken};
use tenure_session::call::{Caller, Collect};
use tenure_session::exchange::Exchanges;
use tenure_session::{Reader, Session, SessionId, Sessions};
use tokio_util::task::TaskTracker;

use super::access::{EndpointAuth, Sender};
use super::answer::AnswerFormat;
use super::body::Body;
use super::cors::{self, BrowserPage};
use super::elsewhere::{Carried, Found, Hold};
use super::event_body::SessionEvents;
use super::guard::{self, AllowedHosts, AllowedOrigins};
use super::headers;
use super::leniencies::Leniencies;
use super::proxies::TrustedProxies;
use super::refused::Refused;
use super::reject::{reject, reject_method};
use super::sse::Wording;
use crate::cluster::Relay;
use crate::correlation;
use crate::observe::{Observers, OpenRequest, RequestNotes};

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
    /// The proxies that say for whom they send a request.
    pub proxies: TrustedProxies,
    /// The observer of requests that have ended.
    pub observers: Observers,
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
            proxies: TrustedProxies::default(),
            observers: Observers::default(),
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
    /// Who may use it; every client, if it is `None`.
    auth: Option<EndpointAuth>,
    /// The way to the nodes that have the other sessions, in a cluster.
    pub(super) relay: Option<Relay>,
    refused: Refused,
    /// Tasks that read streams for clients. Each ends with the connection of its client.
    pub(super) tasks: TaskTracker,
}

/// The other end of the connection. An embedder's server passes it as an extension of the request.
#[derive(Clone, Debug)]
pub struct Remote {
    /// Its address; behind a proxy that is listed, the address of the client.
    pub address: SocketAddr,
    /// The proxy, if the connection is one of it.
    pub(crate) proxy: Option<SocketAddr>,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// How much it may make the server hold, if its connection has looked that up already.
    pub(crate) share: Option<Share>,
    /// The certificate whose key it has proved to have.
    pub certificate: Option<Arc<ClientCertificate>>,
    /// The credentials that its connection showed last, if an endpoint asks for any.
    pub(crate) last_shown: Option<Arc<LastShown>>,
}

impl Remote {
    /// A client at this address that speaks `http` or `https`.
    pub fn new(address: SocketAddr, scheme: &'static str) -> Self {
        Self { address, proxy: None, scheme, share: None, certificate: None, last_shown: None }
    }

    /// The other end of the connection itself: a proxy, or the client.
    pub(super) fn peer(&self) -> SocketAddr {
        self.proxy.unwrap_or(self.address)
    }

    /// The client for which a listed proxy sends a request, if it does.
    pub(super) fn behind(peer: Option<&Self>, headers: &HeaderMap, rules: &Rules) -> Option<Self> {
        let peer = peer?;
        let address = rules.proxies.client(peer.address, headers)?;
        let share = Some(rules.budget.share(Peer::at(address.ip())));
        // The certificate is the proxy's, and proves nothing of the client.
        let (proxy, scheme, last_shown) = (Some(peer.address), peer.scheme, peer.last_shown.clone());
        Some(Self { address, proxy, share, certificate: None, scheme, last_shown })
    }
}

/// The sender of a request, its body, and the memory that the request takes.
pub(super) struct Asker<'a> {
    pub(super) sender: &'a Sender<'a>,
    pub(super) body: &'a Bytes,
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
            auth: None,
            relay: None,
            refused: Refused::default(),
            tasks: TaskTracker::new(),
        }))
    }

    /// Serves only senders with good credentials.
    #[must_use]
    pub fn with_auth(self, auth: EndpointAuth) -> Self {
        let EndpointState { sessions, exchanges, rules, relay, .. } = &*self.0;
        Self(Arc::new(EndpointState {
            sessions: sessions.clone(),
            exchanges: exchanges.clone(),
            rules: rules.clone(),
            auth: Some(auth),
            relay: relay.clone(),
            refused: Refused::default(),
            tasks: TaskTracker::new(),
        }))
    }

    /// Serves requests without a session too.
    #[must_use]
    pub fn with_exchanges(self, exchanges: Exchanges) -> Self {
        let EndpointState { sessions, rules, auth, relay, .. } = &*self.0;
        Self(Arc::new(EndpointState {
            sessions: sessions.clone(),
            exchanges: Some(exchanges),
            rules: rules.clone(),
            auth: auth.clone(),
            relay: relay.clone(),
            refused: Refused::default(),
            tasks: TaskTracker::new(),
        }))
    }

    /// Sends requests for sessions of other nodes to those nodes.
    #[must_use]
    pub fn with_relay(self, relay: Relay) -> Self {
        let EndpointState { sessions, exchanges, rules, auth, .. } = &*self.0;
        Self(Arc::new(EndpointState {
            sessions: sessions.clone(),
            exchanges: exchanges.clone(),
            rules: rules.clone(),
            auth: auth.clone(),
            relay: Some(relay),
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
        let client = Remote::behind(remote, &parts.headers, self.rules());
        let remote = client.as_ref().or(remote);
        let open = self.observe(&parts, remote);
        let response = self.answered(&parts, body, remote, open.as_ref().map(OpenRequest::notes)).await;
        observed(response, open)
    }

    async fn answered<B>(
        &self,
        parts: &http::request::Parts,
        body: B,
        remote: Option<&Remote>,
        notes: Option<&Arc<RequestNotes>>,
    ) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let page = match self.admit(parts, remote, self.methods()) {
            ControlFlow::Continue(page) => page,
            ControlFlow::Break(response) => return response,
        };
        let sender = match self.identify(parts, remote, notes).await {
            Ok(sender) => sender,
            Err(refusal) => return cors::readable(*refusal, page),
        };
        let response = match parts.method {
            Method::POST => self.post(parts, body, &sender, AnswerFormat::Streamable).await,
            Method::GET if let Err(refusal) = self.check_base_scopes(&sender) => *refusal,
            Method::GET if let Some(response) = Box::pin(self.resume_call(parts, &sender)).await => response,
            _ if self.has_no_sessions_for(headers::protocol_version(&parts.headers)) => reject_method("POST"),
            // Boxed, so that the future of the frequent POST has no room for the rare methods.
            Method::GET => Box::pin(self.get(parts, &sender)).await,
            Method::DELETE => Box::pin(self.delete(parts, &sender)).await,
            _ => reject(&Error::new(Reason::MethodNotAllowed, "Use POST, GET or DELETE"), None),
        };
        cors::readable(response, page)
    }

    /// Begins to observe a request, if there is an observer.
    pub(super) fn observe(
        &self,
        parts: &http::request::Parts,
        remote: Option<&Remote>,
    ) -> Option<OpenRequest> {
        let transport = remote.map_or("http", |remote| remote.scheme);
        let sender = (transport, remote.map(|remote| remote.address));
        OpenRequest::http(&self.0.rules.observers, parts, sender, self.0.sessions.route())
    }

    /// As `observe`, for a relayed request, which the node that its client has reached observes.
    pub(super) fn observe_relayed(
        &self,
        parts: &http::request::Parts,
        remote: &Remote,
    ) -> Option<OpenRequest> {
        let sender = (remote.scheme, Some(remote.address));
        OpenRequest::http(&self.0.rules.observers.silenced(), parts, sender, self.0.sessions.route())
    }

    pub(super) fn rules(&self) -> &Rules {
        &self.0.rules
    }

    /// Who may use it; every client, if it is `None`.
    pub(super) fn auth(&self) -> Option<&EndpointAuth> {
        self.0.auth.as_ref()
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
        let preflight = page.as_ref().and_then(|page| page.preflight(&parts.method, &parts.headers, methods));
        if let Some(response) = preflight {
            return ControlFlow::Break(response);
        }
        // Also requests without a session: their states are sealed with the keys in which this node differs.
        match self.0.relay.as_ref().and_then(|relay| relay.roster().refusal()) {
            Some(error) => ControlFlow::Break(cors::readable(reject(&error, None), page)),
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

    /// Finds the session that the headers name. If it has to be woken, its memory counts against the sender's share. If
    /// another node has it, that node is asked for the answer. `hold` says how long the request has waited for that.
    pub(super) async fn session(
        &self,
        parts: &http::request::Parts,
        sender: &Sender<'_>,
        carried: Carried<'_>,
        hold: &mut Option<Hold>,
    ) -> Result<Found, Error> {
        let share = || Some(self.share(sender.remote));
        let found = match (session_id(parts), &self.0.relay) {
            (Ok(id), None) => {
                let found = self.0.sessions.find_within(share, &id, &sender.principal).await;
                found.map(|session| Found::Here(session, sender.attempt()))
            }
            (Ok(id), Some(relay)) => match self.0.sessions.live(&id, &sender.principal) {
                // Only a session that is not here has to be looked for.
                Some(session) if relay.roster().is_confirmed() => {
                    let attempt = hold.as_ref().map_or(sender.attempt(), Hold::attempt);
                    Ok(Found::Here(session, attempt))
                }
                _ => Box::pin(self.find_in_cluster(relay, &id, parts, sender, carried, hold)).await,
            },
            (Err(error), _) => Err(error),
        };
        if let Ok(Found::Here(session, _)) = &found {
            sender.uses(session);
        }
        found.map_err(|error| self.0.rules.leniencies.not_found(error, &parts.headers))
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
    pub(super) fn bodiless(&self, parts: &http::request::Parts, sender: &Sender<'_>) -> Caller {
        let held = Arc::new(self.share(sender.remote).take_anyway(Resource::Memory, 0));
        self.caller(parts, &Asker { sender, body: &Bytes::new(), held })
    }

    pub(super) fn caller(&self, parts: &http::request::Parts, asker: &Asker<'_>) -> Caller {
        let text = |name| parts.headers.get(name).and_then(|value| value.to_str().ok()).map(Box::from);
        let sender = asker.sender;
        Caller {
            transport: sender.remote.map_or("http", |remote| remote.scheme),
            remote: sender.remote.map(|remote| remote.address),
            principal: sender.principal.clone(),
            scopes: sender.scopes(),
            traceparent: text(correlation::TRACEPARENT),
            tracestate: text(correlation::TRACESTATE),
            correlation: match sender.notes {
                Some(notes) => Some(notes.correlation()),
                None => correlation::id_of(&parts.headers),
            },
            collect: Collect::Resumes,
            held: Some(Arc::clone(&asker.held)),
            refusal: None,
        }
    }

    /// Prepares a response for this version of HTTP. In HTTP/2, many streams share a connection, so each stream needs
    /// its own limit on how long it may be stuck.
    pub(super) fn at_pace(
        &self,
        version: http::Version,
        mut response: Response<Body>,
        sender: &Sender<'_>,
        share: &Share,
    ) -> Response<Body> {
        if let Some(notes) = sender.notes {
            response.body_mut().show_to(notes);
        }
        match version {
            http::Version::HTTP_2 | http::Version::HTTP_3 => {
                response.map(|body| body.at_pace(&self.0.tasks, self.0.rules.stall_timeout, share))
            }
            _ => response.map(|body| body.counted(share)),
        }
    }

    /// A response that streams the events of a request.
    pub(super) fn stream(&self, reader: Reader) -> Response<Body> {
        self.stream_events(SessionEvents::new(reader, self.0.rules.leniencies.wording()))
    }

    /// A response that streams events as long as the credentials of the session's owner are good.
    pub(super) fn stream_while_usable(
        &self,
        reader: Reader,
        wording: Wording,
        sender: &Sender<'_>,
    ) -> Response<Body> {
        self.stream_events(self.events_while_usable(reader, wording, sender))
    }

    /// The events of a reader as long as the credentials of the session's owner are good.
    pub(super) fn events_while_usable(
        &self,
        reader: Reader,
        wording: Wording,
        sender: &Sender<'_>,
    ) -> SessionEvents {
        let events = SessionEvents::new(reader, wording);
        match self.opener(sender) {
            Some(opener) => events.while_usable(opener),
            None => events,
        }
    }

    pub(super) fn stream_events(&self, events: SessionEvents) -> Response<Body> {
        event_stream(Body::events(events, self.0.rules.keep_alive))
    }
}

/// The response to a request that is observed: the request ends with it.
pub(super) fn observed(mut response: Response<Body>, open: Option<OpenRequest>) -> Response<Body> {
    if let Some(open) = open {
        open.notes().status(response.status(), response.body().refusal());
        response.body_mut().ends(open);
    }
    response
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
