//! Sessions in front of a server that knows no sessions: a backend over a responder.
//!
//! A link emulates the session towards the server: it keeps the client's capabilities and name, its log level and its
//! subscriptions, and sends them with every request. The runtime keeps everything else of a session, so a client whose
//! connection breaks finds its answer as with any other server. The server's future belongs to the call: it is dropped,
//! and so cancelled, when the client cancels the request, and never before.

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
use tenure_session::backend::{Backend, Call, Link, Open, Opened, Responder, repeatable_tools};
use tenure_session::call::{CallContext, Caller, Outlet, input_required};
use tenure_session::port::BoxFuture;
use tenure_session::port::clock::Clock;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::bridge::session_client::client::{DeclaredClient, SessionClient};
use crate::bridge::session_client::discovery_cache::DiscoveryCache;
use crate::bridge::session_client::modern_task;
use crate::bridge::session_client::session_feed::SessionFeed;

/// Sessions in front of a server that knows only exchanges.
pub struct SessionsOnExchanges(Arc<ModernServer>);

/// The modern server, shared by all links.
pub(super) struct ModernServer {
    responder: Arc<dyn Responder>,
    discoveries: DiscoveryCache,
    next_id: AtomicU64,
    begun: AtomicBool,
}

impl SessionsOnExchanges {
    /// Puts sessions in front of a responder.
    pub fn new(responder: Arc<dyn Responder>, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(ModernServer {
            responder,
            discoveries: DiscoveryCache::new(clock),
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
            let declared = Arc::new(DeclaredClient::introduced(&open.params, open.revision));
            let (discovered, caller) = server.discover(&open, &declared).await?;
            let declared = declared.in_front_of(&discovered);
            let name = open.route.name().unwrap_or("server");
            let result = handshake::initialize_result(&discovered, open.revision, Feeds::Open, name)?;
            let feed = SessionFeed::new(&server, &declared, &open, caller, &result);
            let session = EmulatedSession {
                server,
                declared,
                revision: open.revision,
                outlet: open.outlet,
                level: Mutex::default(),
                feed,
                closed: CancellationToken::new(),
                tasks: TaskTracker::new(),
            };
            Ok(Opened { link: Box::new(BridgeLink(Arc::new(session))), result })
        })
    }

    fn responder(self: Arc<Self>) -> Option<Arc<dyn Responder>> {
        Some(Arc::clone(&self.0.responder))
    }
}

impl ModernServer {
    /// An id that no other request of ours has.
    pub(super) fn next_id(&self) -> RequestId {
        RequestId::from_number(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    pub(super) fn respond(&self, call: Call) -> BoxFuture<Reply> {
        self.responder.respond(call)
    }

    fn discovery(&self, declared: &DeclaredClient) -> Result<Request, RpcError> {
        let method = Method::Discover;
        let params = declared.params(&method, None, None, None)?;
        Ok(Request { id: self.next_id(), method, params: Some(params) })
    }

    /// The server's discovery result, and the caller on whose behalf it was asked.
    async fn discover(
        &self,
        open: &Open,
        declared: &Arc<DeclaredClient>,
    ) -> Result<(RawJson, Caller), RpcError> {
        let request = self.discovery(declared)?;
        let method = request.method.clone();
        let context = open.outlet.inquiry(&request).map_err(|error| error.to_rpc())?;
        let caller = context.caller().clone();
        if let Some(kept) = self.discoveries.get(&open.route, &caller.principal) {
            return Ok((kept, caller));
        }
        let client = SessionClient::new(Arc::clone(declared), context);
        let result =
            self.respond(client.call(request)).await.map_err(|error| codes::to_legacy(&method, &error))?;
        if !handshake::serves(&result, MODERN) {
            let message = format!("The server does not serve version {MODERN}");
            return Err(RpcError::of(Reason::BackendUnavailable, message));
        }
        self.discoveries.keep(&open.route, &caller.principal, &result);
        Ok((result, caller))
    }
}

struct BridgeLink(Arc<EmulatedSession>);

impl Drop for BridgeLink {
    fn drop(&mut self) {
        // Requests in flight would otherwise keep the session alive.
        self.0.close();
    }
}

/// The session of one client, as far as the modern server needs it.
pub(super) struct EmulatedSession {
    server: Arc<ModernServer>,
    declared: Arc<DeclaredClient>,
    revision: Revision,
    outlet: Outlet,
    /// The client's log level. While it is `None`, the server sends no log messages.
    level: Mutex<Option<&'static str>>,
    feed: SessionFeed,
    closed: CancellationToken,
    /// The tasks that cancel server tasks which are no longer wanted.
    pub(super) tasks: TaskTracker,
}

impl Link for BridgeLink {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        let session = Arc::clone(&self.0);
        Box::pin(async move {
            let (context, closed) = (call.context.clone(), session.closed.clone());
            tokio::select! {
                // Polled first, so that nothing is sent for a request that was cancelled while its client was asked.
                biased;
                () = context.cancelled() => Err(RpcError::of(Reason::Cancelled, "The request was cancelled")),
                () = closed.cancelled() => {
                    Err(RpcError::of(Reason::BackendUnavailable, "The link to the server was closed"))
                }
                reply = session.answer(call) => reply,
            }
        })
    }

    fn notify(&self, notification: Notification) {
        match notification.method {
            Method::Initialized => self.0.feed.initialized(),
            // Roots are asked for when they are needed, and the runtime cancels requests.
            method => tracing::debug!(%method, "a notification is not passed on to a modern server"),
        }
    }

    fn close(&self) -> BoxFuture<()> {
        let session = Arc::clone(&self.0);
        session.close();
        Box::pin(async move {
            session.tasks.close();
            // Each of these tasks ends within a few seconds.
            session.tasks.wait().await;
        })
    }
}

impl EmulatedSession {
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
            // When a session wakes, the runtime repeats its subscriptions; none of them waits for the server.
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
        let client = SessionClient::new(Arc::clone(&self.declared), context.clone());
        let (method, level) = (request.method, *self.level.lock());
        let params = self.declared.params(&method, request.params.as_ref(), level, client.token())?;
        let modern = Request { id: request.id, method: method.clone(), params: Some(params) };
        let (session, seen) = (Arc::clone(&self), Arc::clone(&client));
        let was_task = Arc::new(AtomicBool::new(false));
        let (waits, becomes_task) = (context.clone(), Arc::clone(&was_task));
        let respond = move |request: Request| -> BoxFuture<Reply> {
            let (session, client) = (Arc::clone(&session), Arc::clone(&client));
            let (context, becomes_task) = (waits.clone(), Arc::clone(&becomes_task));
            Box::pin(async move {
                client.begins_again();
                let reply = session.attempt(&client, request).await?;
                if !session.declared.knows_tasks || ResultType::of(&reply) != ResultType::Task {
                    return Ok(reply);
                }
                becomes_task.store(true, Ordering::Relaxed);
                modern_task::run(&session, &client, &context, &reply).await
            })
        };
        let answer = input_required::drive(&context, modern, respond).await;
        // The server took the request: it must never be sent anywhere else.
        let was_taken = was_task.load(Ordering::Relaxed);
        match answer {
            Ok(result) => Ok(result::to_legacy(&method, &result, self.revision)),
            Err(error) if !was_taken && self.has_left_the_era(&seen, &error).await => {
                Err(self.another_link(&seen))
            }
            Err(error) => Err(codes::to_legacy(&method, &error)),
        }
    }

    /// Sends a request, and sends it again if the server broke off and a repeat is safe.
    async fn attempt(&self, client: &Arc<SessionClient>, request: Request) -> Reply {
        let error = match self.send(client, request.clone()).await {
            Err(error) if error.is(Reason::BackendUnavailable) || error.is(Reason::Interrupted) => error,
            reply => return reply,
        };
        if !error.is_refused() && !self.may_repeat(client, &request).await {
            return Err(error);
        }
        tracing::info!(method = %request.method, %error, "the request is sent again, because the server broke off");
        self.send(client, request).await
    }

    /// A request about a task of the server.
    pub(super) fn about_task(&self, method: &Method, params: &RawJson) -> Result<Request, RpcError> {
        let params = self.declared.params(method, Some(params), None, None)?;
        Ok(Request { id: self.server.next_id(), method: method.clone(), params: Some(params) })
    }

    /// A request of our own, which no client can cancel; `None` if the session is gone.
    pub(super) fn of_our_own(&self, request: Request) -> Option<Call> {
        let context = self.outlet.inquiry(&request).ok()?;
        Some(SessionClient::new(Arc::clone(&self.declared), context).call(request))
    }

    pub(super) fn respond(&self, call: Call) -> BoxFuture<Reply> {
        self.server.respond(call)
    }

    pub(super) fn send(&self, client: &Arc<SessionClient>, request: Request) -> BoxFuture<Reply> {
        // Every attempt has an id of its own, not the client's: many clients send to one server.
        let request = Request { id: self.server.next_id(), ..request };
        self.server.respond(client.call(request))
    }

    async fn may_repeat(&self, client: &Arc<SessionClient>, request: &Request) -> bool {
        match params::repeat(&request.method) {
            Repeat::Safe => true,
            Repeat::Never => false,
            Repeat::AskTool => match params::tool_name(request.params.as_ref()) {
                Some(name) => self.is_repeatable(client, &name).await,
                None => false,
            },
        }
    }

    /// Whether a tool declares that a repeated call is safe.
    async fn is_repeatable(&self, client: &Arc<SessionClient>, name: &str) -> bool {
        let (tools, _) = repeatable_tools(async |cursor| {
            let page = cursor.map(|cursor| RawJson::of(&serde_json::json!({ "cursor": cursor })));
            let page = page.unwrap_or(RawJson::EMPTY_OBJECT);
            let params = self.declared.params(&Method::ToolsList, Some(&page), None, None)?;
            let list = Request { id: self.server.next_id(), method: Method::ToolsList, params: Some(params) };
            self.send(client, list).await
        })
        .await;
        tools.iter().any(|tool| tool == name)
    }

    /// Whether the server no longer serves the modern era. If the error does not say so, a discovery decides.
    async fn has_left_the_era(&self, client: &Arc<SessionClient>, error: &RpcError) -> bool {
        if evidence::of_exchange(error, MODERN) == Verdict::No {
            return true;
        }
        if !evidence::casts_doubt(error) {
            return false;
        }
        let Ok(discovery) = self.server.discovery(&self.declared) else { return false };
        evidence::of_reply(&self.send(client, discovery).await, MODERN) == Verdict::No
    }

    /// The error for a request that the server did not take, since another server replaced it. The session gets another
    /// link. A request that the previous server had begun is not sent again.
    fn another_link(&self, client: &SessionClient) -> RpcError {
        self.server.discoveries.forget();
        self.outlet.link_lost();
        match client.attempts() {
            0 | 1 => RpcError::refused("The server no longer serves the version that was spoken with it"),
            _ => RpcError::of(Reason::Interrupted, "The server was replaced before the request was done"),
        }
    }
}
