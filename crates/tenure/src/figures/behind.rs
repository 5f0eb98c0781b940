//! Counters of the servers behind, by two layers.
//!
//! [`Behind`] stands right in front of one server: how many calls are in flight, whether it can be reached, and, if it is
//! another process, how long calls take. [`Listed`] stands in front of all layers, and takes the names of tools out of the lists that clients get.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use prometheus_client::metrics::gauge::Gauge;
use serde::Deserialize;
use tenure_protocol::message::says_it_failed;
use tenure_protocol::{Method, Notification, RawJson, Reason, Reply, Request, RpcError, params};
use tenure_session::backend::{Backend, Call, Link, Open, Opened, Responder};
use tenure_session::port::BoxFuture;
use tenure_session::port::clock::{Clock, SystemClock};
use tenure_session::{forward_link, forward_responder};
use tokio::time::Instant;

use super::counted::{Counted, Figures};
use super::metrics::{ByBackend, StartLabels};
use super::observers::{MAIN, code_label, method_label};
use super::tools::Tools;
use super::uncounted::EndedBehind;
use super::view::{BackendRow, ServerName, TimedText};

/// The longest text of an error that is kept.
const LONGEST_ERROR: usize = 300;

/// The place of a server's own tools among those of endpoints.
const OWN_TOOLS: &str = "server ";

/// How a server is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ServerKind {
    Child,
    Url,
    Native,
    Demo,
}

impl ServerKind {
    fn word(self) -> &'static str {
        match self {
            Self::Child => "child",
            Self::Url => "url",
            Self::Native => "native",
            Self::Demo => "demo",
        }
    }

    /// Whether it runs in this process. Then no request goes anywhere, and how long one takes is known from that of the client.
    fn is_in_process(self) -> bool {
        match self {
            Self::Child | Self::Url => false,
            Self::Native | Self::Demo => true,
        }
    }
}

/// The servers behind, in the order of the configuration.
#[derive(Debug, Default)]
pub(super) struct Servers {
    all: RwLock<Vec<Arc<Server>>>,
    /// The label of the endpoint without a name, so that none has to be made for each request.
    main: std::sync::OnceLock<Arc<str>>,
}

/// One server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: Arc<str>,
    pub(super) own_tools: Box<str>,
    kind: ServerKind,
    target: Box<str>,
    in_flight: Gauge,
    up_gauge: Gauge,
    is_up: AtomicBool,
    starts: AtomicU64,
    failed: AtomicU64,
    said: Mutex<Said>,
}

/// The last name and revision of a server, and its last error.
#[derive(Debug, Default)]
struct Said {
    error: Option<TimedText>,
    server: Option<ServerName>,
    era: Option<String>,
}

impl Servers {
    /// The label for an endpoint.
    pub(super) fn label(&self, endpoint: Option<&str>) -> Arc<str> {
        let Some(endpoint) = endpoint else {
            return Arc::clone(self.main.get_or_init(|| MAIN.into()));
        };
        let known = self
            .all
            .read()
            .iter()
            .find(|server| &*server.name == endpoint)
            .map(|server| Arc::clone(&server.name));
        known.unwrap_or_else(|| endpoint.into())
    }

    pub(super) fn rows(&self, tools: &Tools) -> Vec<BackendRow> {
        self.all.read().iter().map(|server| server.row(tools)).collect()
    }
}

impl Server {
    fn row(&self, tools: &Tools) -> BackendRow {
        let said = self.said.lock();
        BackendRow {
            name: self.name.to_string(),
            kind: self.kind.word().to_owned(),
            target: self.target.to_string(),
            up: self.is_up.load(Ordering::Relaxed),
            in_flight: u64::try_from(self.in_flight.get()).unwrap_or_default(),
            starts: self.starts.load(Ordering::Relaxed),
            failed_starts: self.failed.load(Ordering::Relaxed),
            last_error: said.error.clone(),
            server: said.server.clone(),
            era: said.era.clone(),
            tools: tools.count(Some(&self.own_tools)),
        }
    }

    fn is(&self, is_up: bool) {
        // Read first: it hardly ever changes, and all threads read it with each answer.
        if self.is_up.load(Ordering::Relaxed) != is_up && self.is_up.swap(is_up, Ordering::Relaxed) != is_up {
            self.up_gauge.set(is_up.into());
        }
    }

    fn failed(&self, error: &RpcError) {
        let mut text = error.to_string();
        text.truncate(text.floor_char_boundary(LONGEST_ERROR));
        self.said.lock().error = Some(TimedText { at: SystemClock.now().0, text });
        self.is(false);
    }

    fn opened(&self, result: &RawJson) {
        #[derive(Deserialize)]
        struct Said {
            #[serde(rename = "protocolVersion")]
            era: Option<String>,
            #[serde(rename = "serverInfo")]
            server: Option<ServerName>,
        }
        self.is(true);
        if let Ok(Said { era, server }) = result.read() {
            let mut said = self.said.lock();
            (said.era, said.server) = (era.or(said.era.take()), server.or(said.server.take()));
        }
    }
}

/// Counts the calls to one server.
pub(crate) struct Behind<S: ?Sized> {
    counted: Arc<Counted>,
    server: Arc<Server>,
    inner: Arc<S>,
}

impl Figures {
    /// Puts the layer that counts right in front of a server.
    pub(crate) fn in_front_of_server(
        &self,
        backend: Arc<dyn Backend>,
        name: Option<&str>,
        (kind, target): (ServerKind, &str),
    ) -> Arc<dyn Backend> {
        let name: Arc<str> = self.0.servers.label(name);
        let of = ByBackend { backend: Arc::clone(&name) };
        let server = Arc::new(Server {
            own_tools: format!("{OWN_TOOLS}{name}").into(),
            kind,
            target: target.into(),
            in_flight: self.0.metrics.in_flight.get_or_create_owned(&of),
            up_gauge: self.0.metrics.backend_up.get_or_create_owned(&of),
            is_up: AtomicBool::new(true),
            starts: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            said: Mutex::default(),
            name,
        });
        server.up_gauge.set(1);
        self.0.servers.all.write().push(Arc::clone(&server));
        Arc::new(Behind { counted: Arc::clone(&self.0), server, inner: backend })
    }

    /// Puts the layer that sees lists of tools in front of everything.
    pub(crate) fn in_front(&self, backend: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Listed { counted: Arc::clone(&self.0), inner: backend })
    }
}

impl Behind<dyn Backend> {
    fn start(counted: &Counted, server: &Server, opened: &Result<Opened, RpcError>) {
        let outcome = match opened {
            Ok(opened) => {
                server.starts.fetch_add(1, Ordering::Relaxed);
                server.opened(&opened.result);
                "opened"
            }
            Err(error) => {
                server.failed.fetch_add(1, Ordering::Relaxed);
                server.failed(error);
                "failed"
            }
        };
        counted
            .metrics
            .starts
            .get_or_create(&StartLabels { backend: Arc::clone(&server.name), outcome })
            .inc();
    }
}

impl Backend for Behind<dyn Backend> {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let (opening, counted, server) =
            (self.inner.open(open), Arc::clone(&self.counted), Arc::clone(&self.server));
        Box::pin(async move {
            let opened = opening.await;
            Self::start(&counted, &server, &opened);
            let Opened { link, result } = opened?;
            Ok(Opened { link: Box::new(BehindLink(Behind { counted, server, inner: link.into() })), result })
        })
    }

    fn responder(self: Arc<Self>) -> Option<Arc<dyn Responder>> {
        let inner = Arc::clone(&self.inner).responder()?;
        let (counted, server) = (Arc::clone(&self.counted), Arc::clone(&self.server));
        Some(Arc::new(Behind { counted, server, inner }))
    }
}

struct BehindLink(Behind<dyn Link>);

impl Link for BehindLink {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        counted(&self.0.counted, &self.0.server, call, |call| self.0.inner.call(call))
    }

    fn notify(&self, notification: Notification) {
        self.0.inner.notify(notification);
    }

    fn close(&self) -> BoxFuture<()> {
        self.0.inner.close()
    }

    fn echoes_cookies(&self) -> bool {
        self.0.inner.echoes_cookies()
    }
}

impl Responder for Behind<dyn Responder> {
    fn respond(&self, call: Call) -> BoxFuture<Reply> {
        counted(&self.counted, &self.server, call, |call| self.inner.respond(call))
    }

    forward_responder!(inner);
}

/// A request that a server has not answered. If this is dropped, its answer is no longer wanted.
struct InFlight(Arc<Server>);

impl InFlight {
    fn new(server: &Arc<Server>) -> Self {
        server.in_flight.inc();
        Self(Arc::clone(server))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.dec();
    }
}

fn counted(
    counted: &Arc<Counted>,
    server: &Arc<Server>,
    call: Call,
    pass: impl FnOnce(Call) -> BoxFuture<Reply>,
) -> BoxFuture<Reply> {
    // A listen lasts as long as its client wants.
    if call.request.method == Method::Listen {
        return pass(call);
    }
    let is_list = call.request.method == Method::ToolsList;
    let (in_flight, counted) = (InFlight::new(server), Arc::clone(counted));
    let timed = (!server.kind.is_in_process()).then(|| TimedCall::begin(&call.request));
    // Called here, so that calls go out in the order in which they came.
    let reply = pass(call);
    Box::pin(async move {
        let reply = reply.await;
        let server = &in_flight.0;
        match &reply {
            Ok(result) => {
                server.is(true);
                if is_list {
                    counted.tools.learn(Some(&server.own_tools), result);
                }
            }
            Err(error) if error.is(Reason::BackendUnavailable) => server.failed(error),
            Err(_) => {}
        }
        if let Some(timed) = timed {
            counted.add_behind(timed.end(server, &reply));
        }
        reply
    })
}

/// A request to another process that is under way.
struct TimedCall {
    began: Instant,
    method: &'static str,
    tool: Option<String>,
    is_tool: bool,
}

impl TimedCall {
    fn begin(request: &Request) -> Self {
        let is_tool = request.method == Method::ToolsCall;
        let tool = if is_tool { params::tool_name(request.params.as_ref()) } else { None };
        Self { began: Instant::now(), method: method_label(&request.method), tool, is_tool }
    }

    fn end(self, server: &Arc<Server>, reply: &Reply) -> EndedBehind {
        let error_type = match reply {
            Ok(result) => (self.is_tool && says_it_failed(result.bytes())).then_some("tool_error"),
            Err(error) => Some(error.reason().map_or_else(|| code_label(error.code()), Reason::as_str)),
        };
        let (method, tool, took) = (self.method, self.tool, self.began.elapsed());
        EndedBehind { server: Arc::clone(server), method, tool, error_type, took }
    }
}

/// Sees the lists of tools that clients get.
pub(crate) struct Listed<S: ?Sized> {
    counted: Arc<Counted>,
    inner: Arc<S>,
}

impl Backend for Listed<dyn Backend> {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let (opening, counted) = (self.inner.open(open), Arc::clone(&self.counted));
        Box::pin(async move {
            let Opened { link, result } = opening.await?;
            Ok(Opened { link: Box::new(ListedLink { counted, inner: link.into() }), result })
        })
    }

    fn responder(self: Arc<Self>) -> Option<Arc<dyn Responder>> {
        let inner = Arc::clone(&self.inner).responder()?;
        Some(Arc::new(Listed { counted: Arc::clone(&self.counted), inner }))
    }
}

struct ListedLink {
    counted: Arc<Counted>,
    inner: Arc<dyn Link>,
}

impl Link for ListedLink {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        listed(&self.counted, call, |call| self.inner.call(call))
    }

    fn notify(&self, notification: Notification) {
        self.inner.notify(notification);
    }

    forward_link!(inner);
}

impl Responder for Listed<dyn Responder> {
    fn respond(&self, call: Call) -> BoxFuture<Reply> {
        listed(&self.counted, call, |call| self.inner.respond(call))
    }

    forward_responder!(inner);
}

fn listed(
    counted: &Arc<Counted>,
    call: Call,
    pass: impl FnOnce(Call) -> BoxFuture<Reply>,
) -> BoxFuture<Reply> {
    if call.request.method != Method::ToolsList {
        return pass(call);
    }
    let (counted, route) = (Arc::clone(counted), call.context.route().clone());
    let reply = pass(call);
    Box::pin(async move {
        let reply = reply.await;
        if let Ok(result) = &reply {
            counted.tools.learn(route.name(), result);
        }
        reply
    })
}

impl<S: ?Sized> fmt::Debug for Behind<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Behind").field(&self.server.name).finish()
    }
}

impl<S: ?Sized> fmt::Debug for Listed<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listed")
    }
}
