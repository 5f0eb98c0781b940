//! Sessions in front of a server that knows none: a backend over a responder.
//!
//! A link stands for the session towards the server: it knows what the client said of itself, the level of its log
//! messages and what it watches, and says so with every request. The runtime keeps everything else of a session, so
//! a client whose connection breaks finds its answer as with any other server. The server's future belongs to the
//! call: it is dropped, and so cancelled, when the client withdraws the request, and never before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tenure_protocol::modern::ResultType;
use tenure_protocol::params::{self, Repeat};
use tenure_protocol::revision::MODERN;
use tenure_protocol::translate::evidence::{self, Verdict};
use tenure_protocol::translate::handshake::{self, Feeds};
use tenure_protocol::translate::{codes, request, result};
use tenure_protocol::{Method, Notification, RawJson, Reason, Reply, Request, RequestId, Revision, RpcError};
use tenure_session::backend::{Backend, Call, Link, Open, Opened, Responder};
use tenure_session::call::{CallContext, Caller, Outlet, input_required};
use tenure_session::port::BoxFuture;
use tenure_session::port::clock::Clock;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::bridge::session_client::client::{Client, Guise};
use crate::bridge::session_client::discovery_cache::Discoveries;
use crate::bridge::session_client::modern_task;
use crate::bridge::session_client::session_feed::Feed;

/// How many pages of tools are looked through for one that says whether it may be called twice.
const MAX_PAGES: usize = 20;

/// Sessions in front of a server that knows only requests that stand alone.
pub struct SessionsOnExchanges(Arc<Server>);

/// The server behind, for all links.
pub(super) struct Server {
    responder: Arc<dyn Responder>,
    discoveries: Discoveries,
    next_id: AtomicU64,
    begun: AtomicBool,
}

impl SessionsOnExchanges {
    /// Puts sessions in front of a responder.
    pub fn new(responder: Arc<dyn Responder>, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Server {
            responder,
            discoveries: Discoveries::new(clock),
            next_id: AtomicU64::new(1),
            begun: AtomicBool::new(false),
        }))
    }
}

impl std::fmt::Debug for SessionsOnExchanges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionsOnExchanges")
    }
}

impl Backend for SessionsOnExchanges {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let server = Arc::clone(&self.0);
        Box::pin(async move {
            if !server.begun.swap(true, Ordering::AcqRel) {
                server.responder.begin(open.fanout.clone());
            }
            let client = Arc::new(Client::introduced(&open.params, open.revision));
            let (discovered, caller) = server.discover(&open, &client).await?;
            let client = client.before(&discovered);
            let name = open.route.name().unwrap_or("server");
            let result = handshake::initialize_result(&discovered, open.revision, Feeds::Open, name)?;
            let feed = Feed::new(&server, &client, &open, caller, &result);
            let way = Way {
                server,
                client,
                revision: open.revision,
                outlet: open.outlet,
                level: Mutex::default(),
                feed,
                closed: CancellationToken::new(),
                tasks: TaskTracker::new(),
            };
            Ok(Opened { link: Box::new(Bridged(Arc::new(way))), result })
        })
    }

    fn responder(self: Arc<Self>) -> Option<Arc<dyn Responder>> {
        Some(Arc::clone(&self.0.responder))
    }
}

impl Server {
    /// An id that no other request of ours has.
    pub(super) fn next_id(&self) -> RequestId {
        RequestId::from_number(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    pub(super) fn respond(&self, call: Call) -> BoxFuture<Reply> {
        self.responder.respond(call)
    }

    fn discovery(&self, client: &Client) -> Result<Request, RpcError> {
        let method = Method::Discover;
        let params = client.params(&method, None, None, None)?;
        Ok(Request { id: self.next_id(), method, params: Some(params) })
    }

    /// What the server says of itself, and who asks.
    async fn discover(&self, open: &Open, client: &Arc<Client>) -> Result<(RawJson, Caller), RpcError> {
        let request = self.discovery(client)?;
        let method = request.method.clone();
        let context = open.outlet.inquiry(&request).map_err(|error| error.to_rpc())?;
        let caller = context.caller().clone();
        if let Some(kept) = self.discoveries.get(&open.route, &caller.principal) {
            return Ok((kept, caller));
        }
        let guise = Guise::new(Arc::clone(client), context);
        let result =
            self.respond(guise.call(request)).await.map_err(|error| codes::to_legacy(&method, &error))?;
        if !handshake::serves(&result, MODERN) {
            let message = format!("The server does not serve version {MODERN}");
            return Err(RpcError::of(Reason::BackendUnavailable, message));
        }
        self.discoveries.keep(&open.route, &caller.principal, &result);
        Ok((result, caller))
    }
}

struct Bridged(Arc<Way>);

impl Drop for Bridged {
    fn drop(&mut self) {
        // Requests under way would otherwise keep the rest alive.
        self.0.close();
    }
}

/// The way of one session's requests to the server.
pub(super) struct Way {
    server: Arc<Server>,
    client: Arc<Client>,
    revision: Revision,
    outlet: Outlet,
    /// From which level on the client wants log messages; none until it says so, and then the server sends none.
    level: Mutex<Option<&'static str>>,
    feed: Feed,
    closed: CancellationToken,
    /// Tells the server of tasks that are not wanted any more.
    pub(super) tasks: TaskTracker,
}

impl Link for Bridged {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        let way = Arc::clone(&self.0);
        Box::pin(async move {
            let (context, closed) = (call.context.clone(), way.closed.clone());
            tokio::select! {
                // First, so that nothing is sent for a request that was withdrawn while its client was asked.
                biased;
                () = context.cancelled() => Err(RpcError::of(Reason::Cancelled, "The request was cancelled")),
                () = closed.cancelled() => {
                    Err(RpcError::of(Reason::BackendUnavailable, "The way to the server was closed"))
                }
                reply = way.answer(call) => reply,
            }
        })
    }

    fn notify(&self, notification: Notification) {
        match notification.method {
            Method::Initialized => self.0.feed.initialized(),
            // Roots are asked for when they are needed, and the runtime withdraws requests.
            method => tracing::debug!(%method, "a modern server is not told"),
        }
    }

    fn close(&self) -> BoxFuture<()> {
        let way = Arc::clone(&self.0);
        way.close();
        Box::pin(async move {
            way.tasks.close();
            // What is told there takes a few seconds at most.
            way.tasks.wait().await;
        })
    }
}

impl Way {
    fn close(&self) {
        self.closed.cancel();
        self.feed.close();
    }

    async fn answer(self: Arc<Self>, call: Call) -> Reply {
        let Call { request, context } = call;
        let params = request.params.as_ref();
        let uri = || {
            let missing = || RpcError::of(Reason::InvalidParams, "The uri is missing");
            params::subscription_uri(params).ok_or_else(missing)
        };
        match request.method {
            Method::Ping => Ok(RawJson::EMPTY_OBJECT),
            Method::LoggingSetLevel => {
                *self.level.lock() = Some(request::level(params)?);
                Ok(RawJson::EMPTY_OBJECT)
            }
            // At a wake the session's own words are repeated one by one; each need not wait for the server.
            Method::ResourcesSubscribe if context.is_our_own() => self.feed.resubscribe(&uri()?),
            Method::ResourcesSubscribe => self.feed.subscribe(uri()?).await,
            Method::ResourcesUnsubscribe => self.feed.unsubscribe(&uri()?),
            Method::Initialize
            | Method::Discover
            | Method::Listen
            | Method::TasksGet
            | Method::TasksUpdate
            | Method::TasksCancel
            | Method::TasksResult
            | Method::TasksList => {
                Err(RpcError::of(Reason::MethodNotFound, format!("There is no {} here", request.method)))
            }
            _ => self.forward(request, context).await,
        }
    }

    async fn forward(self: Arc<Self>, request: Request, context: CallContext) -> Reply {
        let guise = Guise::new(Arc::clone(&self.client), context.clone());
        let (method, level) = (request.method, *self.level.lock());
        let params = self.client.params(&method, request.params.as_ref(), level, guise.token())?;
        let modern = Request { id: request.id, method: method.clone(), params: Some(params) };
        let (way, seen) = (Arc::clone(&self), Arc::clone(&guise));
        let was_task = Arc::new(AtomicBool::new(false));
        let (waits, becomes_task) = (context.clone(), Arc::clone(&was_task));
        let respond = move |request: Request| -> BoxFuture<Reply> {
            let (way, guise) = (Arc::clone(&way), Arc::clone(&guise));
            let (context, becomes_task) = (waits.clone(), Arc::clone(&becomes_task));
            Box::pin(async move {
                guise.begins_again();
                let reply = way.attempt(&guise, request).await?;
                if !way.client.knows_tasks || ResultType::of(&reply) != ResultType::Task {
                    return Ok(reply);
                }
                becomes_task.store(true, Ordering::Relaxed);
                modern_task::pursue(&way, &guise, &context, &reply).await
            })
        };
        let answer = input_required::drive(&context, modern, respond).await;
        // The server took it: it must never be sent anywhere else.
        let was_taken = was_task.load(Ordering::Relaxed);
        match answer {
            Ok(result) => Ok(result::to_legacy(&method, &result, self.revision)),
            Err(error) if !was_taken && self.has_left_the_era(&seen, &error).await => {
                Err(self.another_link(&seen))
            }
            Err(error) => Err(codes::to_legacy(&method, &error)),
        }
    }

    /// Sends a request, and once more if the server broke off and it does no harm.
    async fn attempt(&self, guise: &Arc<Guise>, request: Request) -> Reply {
        let error = match self.send(guise, request.clone()).await {
            Err(error) if error.is(Reason::BackendUnavailable) || error.is(Reason::Interrupted) => error,
            reply => return reply,
        };
        if !error.is_refused() && !self.may_repeat(guise, &request).await {
            return Err(error);
        }
        tracing::info!(method = %request.method, %error, "sent once more to a server that broke off");
        self.send(guise, request).await
    }

    /// A request about a task of the server.
    pub(super) fn about_task(&self, method: &Method, params: &RawJson) -> Result<Request, RpcError> {
        let params = self.client.params(method, Some(params), None, None)?;
        Ok(Request { id: self.server.next_id(), method: method.clone(), params: Some(params) })
    }

    /// A request that nobody withdraws; `None` if the session is gone.
    pub(super) fn of_our_own(&self, request: Request) -> Option<Call> {
        let context = self.outlet.inquiry(&request).ok()?;
        Some(Guise::new(Arc::clone(&self.client), context).call(request))
    }

    pub(super) fn respond(&self, call: Call) -> BoxFuture<Reply> {
        self.server.respond(call)
    }

    pub(super) fn send(&self, guise: &Arc<Guise>, request: Request) -> BoxFuture<Reply> {
        // Every attempt has an id of its own, which is not the client's: many clients speak to one server.
        let request = Request { id: self.server.next_id(), ..request };
        self.server.respond(guise.call(request))
    }

    async fn may_repeat(&self, guise: &Arc<Guise>, request: &Request) -> bool {
        match params::repeat(&request.method) {
            Repeat::Safe => true,
            Repeat::Never => false,
            Repeat::AskTool => match params::tool_name(request.params.as_ref()) {
                Some(name) => self.is_repeatable(guise, &name).await,
                None => false,
            },
        }
    }

    /// Whether a tool says of itself that calling it twice does no harm.
    async fn is_repeatable(&self, guise: &Arc<Guise>, name: &str) -> bool {
        let mut page = RawJson::EMPTY_OBJECT;
        for _ in 0..MAX_PAGES {
            let Ok(params) = self.client.params(&Method::ToolsList, Some(&page), None, None) else { break };
            let list = Request { id: self.server.next_id(), method: Method::ToolsList, params: Some(params) };
            let Ok(result) = self.send(guise, list).await else { break };
            let (tools, next) = params::repeatable_tools(&result);
            if tools.iter().any(|tool| tool == name) {
                return true;
            }
            let Some(next) = next else { break };
            page = RawJson::of(&serde_json::json!({ "cursor": next }));
        }
        false
    }

    /// Whether an error says that the server no longer serves the modern era, or if need be the server itself.
    async fn has_left_the_era(&self, guise: &Arc<Guise>, error: &RpcError) -> bool {
        if evidence::of_exchange(error, MODERN) == Verdict::No {
            return true;
        }
        if !evidence::casts_doubt(error) {
            return false;
        }
        let Ok(discovery) = self.server.discovery(&self.client) else { return false };
        evidence::of_reply(&self.send(guise, discovery).await, MODERN) == Verdict::No
    }

    /// The server did not take the request, since it is not what it was: the session gets another link. One that the
    /// server before it had begun is not begun anew.
    fn another_link(&self, guise: &Guise) -> RpcError {
        self.server.discoveries.forget();
        self.outlet.link_lost();
        match guise.attempts() {
            0 | 1 => RpcError::refused("The server no longer serves the version that was spoken with it"),
            _ => RpcError::of(Reason::Interrupted, "The server was replaced before the request was done"),
        }
    }
}
