//! The paths of the server: the MCP endpoints, the doors, and the health checks of operators.
//!
//! Served by [`HttpServer`](crate::serve::HttpServer), or as a `tower` service by an embedder's server.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_MAX_AGE, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue,
};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use tenure_auth::LastShown;
use tenure_session::budget::{Peer, Share};
use tenure_session::port::store::{Grade, Trouble};
use tenure_session::supervise::LoopState;

use super::access::EndpointAuth;
use super::body::Body;
use super::cors;
use super::doors::{Doorkeeper, Doors};
use super::endpoint::{Endpoint, Remote, observed};
use super::guard;
use super::reject::{empty, reject};

/// Where clients look for the metadata of a server with one endpoint.
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// Everything the server answers; a `tower` service. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Router {
    mcp: Endpoint,
    /// The endpoints at `/mcp/NAME`, by name.
    named: Arc<HashMap<String, Endpoint>>,
    pub(crate) doors: Doorkeeper,
    /// The metadata of all endpoints as protected resources, by path.
    metadata: Arc<HashMap<String, Bytes>>,
}

impl Router {
    /// Serves this endpoint at `/mcp`, with `/healthz` and `/readyz` beside it.
    pub fn new(mcp: Endpoint) -> Self {
        let router =
            Self { mcp, named: Arc::default(), doors: Doorkeeper::default(), metadata: Arc::default() };
        router.with_metadata()
    }

    /// Serves these endpoints at `/mcp/NAME` too.
    #[must_use]
    pub fn with_named(self, named: impl IntoIterator<Item = (String, Endpoint)>) -> Self {
        Self { named: Arc::new(named.into_iter().collect()), ..self }.with_metadata()
    }

    /// Collects the metadata of the endpoints that tokens can be got for. That of `/mcp` is also at the root, where some
    /// clients look first.
    fn with_metadata(self) -> Self {
        let of = |endpoint: &Endpoint| endpoint.auth().and_then(EndpointAuth::metadata);
        let mut found: HashMap<_, _> = self.named.values().filter_map(of).collect();
        if let Some((path, text)) = of(&self.mcp) {
            found.insert(WELL_KNOWN.to_owned(), text.clone());
            found.insert(path, text);
        }
        Self { metadata: Arc::new(found), ..self }
    }

    /// Opens doors beside it, for clients that do not speak Streamable HTTP.
    #[must_use]
    pub fn with_doors(self, doors: Doors) -> Self {
        Self { doors: Doorkeeper::new(doors), ..self }
    }

    /// How much memory a client at this address may make the server hold.
    pub(crate) fn share(&self, address: IpAddr) -> Share {
        self.mcp.rules().budget.share(Peer::at(address))
    }

    /// The place for the credentials of a new connection, if its requests need any.
    pub(crate) fn last_shown(&self) -> Option<Arc<LastShown>> {
        let mut endpoints = std::iter::once(&self.mcp).chain(self.named.values());
        endpoints.any(|endpoint| endpoint.auth().is_some()).then(Arc::default)
    }

    /// The endpoint at `/mcp`. An embedder can serve it at any other path too.
    pub fn endpoint(&self) -> &Endpoint {
        &self.mcp
    }

    /// The endpoint at `/mcp/NAME`, or at `/mcp` without a name.
    pub(super) fn endpoint_named(&self, name: Option<&str>) -> Option<&Endpoint> {
        name.map_or(Some(&self.mcp), |name| self.named.get(name))
    }

    /// Answers one request.
    ///
    /// # Cancel safety
    /// An admitted request of a session goes on when this future is dropped; a request without a session is withdrawn.
    pub async fn handle<B>(&self, request: Request<B>, remote: Option<&Remote>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        match request.uri().path() {
            "/mcp" => self.mcp.handle(request, remote).await,
            path if let Some(door) = self.doors.at(path) => {
                Box::pin(self.doors.handle(door, &self.mcp, request, remote)).await
            }
            path => match path.strip_prefix("/mcp/").and_then(|name| self.named.get(name)) {
                Some(endpoint) => endpoint.handle(request, remote).await,
                None => self.without_endpoint(request, remote, Self::beside),
            },
        }
    }

    /// Answers a request that belongs to no endpoint.
    fn without_endpoint<B>(
        &self,
        request: Request<B>,
        remote: Option<&Remote>,
        answer: impl FnOnce(&Self, &Parts, Option<&Remote>) -> Response<Body>,
    ) -> Response<Body> {
        let (parts, _) = request.into_parts();
        let client = Remote::behind(remote, &parts.headers, self.mcp.rules());
        let remote = client.as_ref().or(remote);
        let open = self.mcp.observe(&parts, remote);
        observed(answer(self, &parts, remote), open)
    }

    /// The answer to a request on a connection that has no permit.
    pub(crate) fn without_permit<B>(&self, request: Request<B>, remote: &Remote) -> Response<Body> {
        self.without_endpoint(request, Some(remote), |_, _, _| Self::no_permit())
    }

    /// Whether a request for this path is answered even when the server is full.
    pub(crate) fn is_about_health(path: &str) -> bool {
        matches!(path, "/healthz" | "/readyz")
    }

    fn no_permit() -> Response<Body> {
        let mut response = Self::text(
            StatusCode::SERVICE_UNAVAILABLE,
            "there are as many connections as there may be; try again later\n",
        );
        response.headers_mut().insert(http::header::RETRY_AFTER, HeaderValue::from_static("1"));
        response
    }

    /// Answers a request for a path beside the endpoints. Any client may ask; pages of other origins cannot read the
    /// answer.
    fn beside(&self, request: &Parts, remote: Option<&Remote>) -> Response<Body> {
        let (method, path) = (&request.method, request.uri.path());
        // An embedder's server checks HTTP by its own rules.
        if remote.is_some()
            && let Err(error) = guard::check_one_host(request.version, &request.headers)
        {
            return reject(&error, None);
        }
        if let Some(text) = self.metadata.get(path) {
            return metadata(method, text);
        }
        // A page that asks for a wrong path has to be able to read that nothing is there.
        let page = self.mcp.page(&request.headers).unwrap_or_default();
        if let Some(response) =
            page.as_ref().and_then(|page| page.preflight(method, &request.headers, "GET, HEAD"))
        {
            return response;
        }
        let response = match path {
            "/healthz" | "/readyz" if !matches!(*method, Method::GET | Method::HEAD) => {
                let mut response = Self::text(StatusCode::METHOD_NOT_ALLOWED, "use GET\n");
                response.headers_mut().insert(http::header::ALLOW, HeaderValue::from_static("GET, HEAD"));
                response
            }
            "/healthz" => self.health(),
            "/readyz" => self.readiness(),
            _ => Self::text(StatusCode::NOT_FOUND, self.where_else()),
        };
        cors::readable(response, page)
    }

    /// The text for a path that is not served.
    fn where_else(&self) -> String {
        let mut names: Vec<_> = self.named.keys().map(|name| format!("/mcp/{name}")).collect();
        // The names of the servers behind are for callers with credentials.
        if names.is_empty() || self.mcp.auth().is_some() {
            return "not found; the MCP endpoint is /mcp\n".to_owned();
        }
        names.sort();
        format!("not found; the MCP endpoints are /mcp for all servers as one, and {}\n", names.join(", "))
    }

    /// Whether the process works. It names any trouble, but fails only for trouble that does not pass by itself.
    fn health(&self) -> Response<Body> {
        let loops = match self.mcp.sessions().loops().state() {
            LoopState::Well => None,
            LoopState::Restarted(what) | LoopState::Down(what) => {
                Some(Trouble { what, grade: Grade::Degraded })
            }
        };
        match self.mcp.sessions().store_trouble().or(loops) {
            None => Self::text(StatusCode::OK, "ok\n"),
            Some(Trouble { what, grade: Grade::Degraded }) => {
                Self::text(StatusCode::OK, format!("degraded: {what}\n"))
            }
            Some(Trouble { what, grade: Grade::Down | Grade::Lost }) => {
                Self::text(StatusCode::SERVICE_UNAVAILABLE, format!("failed: {what}\n"))
            }
        }
    }

    /// Whether new work should be sent here.
    fn readiness(&self) -> Response<Body> {
        if !self.mcp.sessions().is_ready() {
            return Self::text(StatusCode::SERVICE_UNAVAILABLE, "draining\n");
        }
        if let Some(Trouble { what, .. }) = self.mcp.sessions().store_trouble() {
            return Self::text(StatusCode::SERVICE_UNAVAILABLE, format!("store: {what}\n"));
        }
        let roster = self.mcp.0.relay.as_ref().map(|relay| relay.roster());
        if let Some(why) = roster.and_then(|roster| roster.unfit()) {
            return Self::text(StatusCode::SERVICE_UNAVAILABLE, format!("cluster: {why}\n"));
        }
        if roster.is_some_and(|roster| !roster.is_confirmed()) {
            let what = "cluster: this node has no contact with the others\n";
            return Self::text(StatusCode::SERVICE_UNAVAILABLE, what);
        }
        match self.mcp.sessions().loops().state() {
            LoopState::Well => Self::text(StatusCode::OK, "ready\n"),
            LoopState::Restarted(words) => {
                Self::text(StatusCode::OK, format!("ready, but degraded: {words}\n"))
            }
            LoopState::Down(words) => {
                Self::text(StatusCode::SERVICE_UNAVAILABLE, format!("degraded: {words}\n"))
            }
        }
    }

    fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
        let mut response = Response::new(Body::full(text.into()));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        response
    }
}

/// The metadata of a protected resource. Any page may read it: it tells how to log in.
fn metadata(method: &Method, text: &Bytes) -> Response<Body> {
    let mut response = match *method {
        Method::GET | Method::HEAD => {
            let mut response = Response::new(Body::full(text.clone()));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("max-age=300"));
            response
        }
        Method::OPTIONS => {
            let mut response = empty(StatusCode::NO_CONTENT);
            let headers = response.headers_mut();
            headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, HEAD"));
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("*"));
            headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("7200"));
            response
        }
        _ => {
            let mut response = empty(StatusCode::METHOD_NOT_ALLOWED);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD, OPTIONS"));
            response
        }
    };
    response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    response
}
