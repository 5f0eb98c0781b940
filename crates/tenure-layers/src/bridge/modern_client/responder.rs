//! Exchanges for modern clients, answered by a server that knows only sessions.
//!
//! Every request leases a session until it is answered (`pool`). The session's server sees one client with one
//! request, so every message that it sends meanwhile belongs to that request (`pooled_request`). News that belong to
//! no request go to the listens (`listen_feed`). Questions of the server go to the request's own context; the exchange
//! runtime decides how a modern client is asked. Tools that support it are called as tasks (`task_support`,
//! `legacy_task`).
//!
//! In: requests with `_meta`. Out: requests of the latest revision in a session, and their results in modern form.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;
use tenure_protocol::modern::validate;
use tenure_protocol::params::{Repeat, repeat};
use tenure_protocol::translate::capabilities::Relayed;
use tenure_protocol::translate::handshake::{self, Feeds};
use tenure_protocol::translate::progress::Series;
use tenure_protocol::translate::{codes, questions, request, result, tasks};
use tenure_protocol::{Eras, Method, RawJson, Reason, Reply, Request, RpcError, era};
use tenure_session::backend::{Backend, Call, Responder};
use tenure_session::call::{CallContext, Fanout};
use tenure_session::exchange::request_state;
use tenure_session::id::{Principal, Route};
use tenure_session::port::BoxFuture;
use tenure_session::supervise::Loops;

use crate::bridge::modern_client::pool::{Lease, Pool, PoolKey, PoolLimits, Which};
use crate::bridge::modern_client::pooled_request::PooledRequest;
use crate::bridge::modern_client::task_support::CallMode;
use crate::bridge::modern_client::{legacy_task, listen_feed};

/// A responder over a backend.
///
/// Sessions towards the server are shared by the requests of one principal with the same capabilities, one after the
/// other. Without authentication all callers are one principal: a server that remembers things in its session then
/// shows them to all, unless every request gets a session of its own
/// ([`Reuse::Request`](crate::bridge::Reuse::Request)).
#[derive(Clone)]
pub struct ExchangesOnSessions {
    pool: Arc<Pool>,
    eras: Eras,
}

impl ExchangesOnSessions {
    /// Answers exchanges by this backend.
    pub fn new(backend: Arc<dyn Backend>, limits: PoolLimits) -> Self {
        Self { pool: Pool::new(backend, limits), eras: Eras::Both }
    }

    /// Sets the eras that the endpoint serves, which discovery reports.
    #[must_use]
    pub fn serving(mut self, eras: Eras) -> Self {
        self.eras = eras;
        self
    }

    /// The background loops.
    pub fn loops(&self) -> &Loops {
        &self.pool.loops
    }

    /// How many sessions there are towards servers, used or not.
    pub fn sessions(&self) -> usize {
        self.pool.sessions()
    }

    /// Takes no more requests, ends listens, and closes every idle session. A session in use is closed when its request
    /// ends.
    ///
    /// # Cancel safety
    /// Sessions that have begun to close go on closing.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    async fn answer(self, call: Call) -> Reply {
        let Call { request, context } = call;
        match &request.method {
            Method::Discover => self.discover(&context).await,
            Method::Listen => listen_feed::listen(&self.pool, &request, &context).await,
            Method::TasksGet | Method::TasksUpdate | Method::TasksCancel => {
                self.initialized(&context).await?;
                match self.pool.has_tasks(context.route()) {
                    // The runtime finds our own tasks before a request gets here.
                    true => Err(RpcError::of(Reason::TaskNotFound, "There is no such task")),
                    false => Err(not_found(&request.method)),
                }
            }
            method if validate::is_gone(method) => Err(not_found(method)),
            _ => self.call(&request, &context).await,
        }
    }

    /// The server's `initialize` result.
    async fn initialized(&self, context: &CallContext) -> Reply {
        let key = PoolKey::of(context);
        if let Some(initialized) = self.pool.known(&key) {
            return Ok(initialized);
        }
        let lease = self.pool.lease(&key, Which::Any).await.map_err(|error| not_leased(&error))?;
        let initialized = lease.session().initialized.clone();
        lease.release();
        Ok(initialized)
    }

    async fn discover(&self, context: &CallContext) -> Reply {
        let initialized = self.initialized(context).await?;
        handshake::discover_result(&initialized, era::served(self.eras), Feeds::Open)
    }

    async fn call(&self, request: &Request, context: &CallContext) -> Reply {
        // The runtime has already opened our own request states. Any other belongs to a call that is gone, perhaps of
        // another process, and would run that call a second time.
        if questions::may_be_asked(&request.method)
            && request_state::brought(request.params.as_ref()).map_err(|error| error.to_rpc())?.is_some()
        {
            return Err(request_state::invalid().to_rpc());
        }
        let key = PoolKey::of(context);
        let series = Arc::new(Mutex::new(Series::default()));
        let lease = self.pool.lease(&key, Which::Any).await.map_err(|error| not_leased(&error))?;
        let (reply, pooled, lease) = carry_out(lease, request, context, &series).await?;
        if !may_repeat(&lease, request, context, &reply) {
            lease.end(context);
            return translated(request, &pooled, key.relayed, reply);
        }
        drop(lease);
        tracing::info!(request = ?request.id, method = %request.method, "the request runs again in another session");
        // A new session: the server may have forgotten all the others.
        let lease = self.pool.lease(&key, Which::New).await.map_err(|error| not_leased(&error))?;
        series.lock().restart();
        let (reply, pooled, lease) = carry_out(lease, request, context, &series).await?;
        lease.end(context);
        translated(request, &pooled, key.relayed, reply)
    }
}

/// Sends a request to the server of a session, and follows the task if the server makes one of it. If this future is
/// dropped before the answer, the session is closed.
async fn carry_out(
    lease: Lease,
    request: &Request,
    context: &CallContext,
    series: &Arc<Mutex<Series>>,
) -> Result<(Reply, Arc<PooledRequest>, Lease), RpcError> {
    let token = lease.next_token();
    let (params, taken) = request::to_legacy(&request.method, request.params.as_ref(), Some(&token))?;
    // A request without params is sent without params.
    let params = request.params.is_some().then_some(params);
    let session = Arc::clone(lease.session());
    if taken.level.is_some() {
        session.log_everything().await;
    }
    lease.watch().await;
    let pooled = Arc::new(PooledRequest::new(
        &session,
        context,
        taken.token.map(|own| (token, own)),
        Arc::clone(series),
    ));
    let task_support = &lease.pool.task_support;
    let mut mode = task_support.mode(&lease, request, context).await;
    let mut reply = send(&lease, request, params.as_ref(), &pooled, mode).await;
    let is_tool = session.has_tasks() && request.method == Method::ToolsCall;
    if is_tool && reply.as_ref().is_err_and(is_not_found) {
        // The tool's task support may have changed, so that it needs another mode.
        task_support.forget(context.route());
        let known = std::mem::replace(&mut mode, task_support.mode(&lease, request, context).await);
        if known != mode {
            reply = send(&lease, request, params.as_ref(), &pooled, mode).await;
        }
    }
    let created = reply.as_ref().ok().filter(|_| mode == CallMode::Task).and_then(tasks::created);
    let (reply, lease) = match created {
        Some(created) => legacy_task::run(lease, &pooled, created).await?,
        None => (reply, lease),
    };
    Ok((reply, pooled, lease))
}

/// Sends a request in this mode.
async fn send(
    lease: &Lease,
    request: &Request,
    params: Option<&RawJson>,
    pooled: &Arc<PooledRequest>,
    mode: CallMode,
) -> Reply {
    let params = match (mode, params) {
        (CallMode::Task, Some(params)) => Some(tasks::augmented(params, lease.pool.limits.task_ttl)?),
        (_, params) => params.cloned(),
    };
    let request = Request { id: request.id.clone(), method: request.method.clone(), params };
    lease.session().call(request, pooled).await
}

/// Whether a request may be sent again: the server is gone, and the request was refused or is read-only.
fn may_repeat(lease: &Lease, request: &Request, context: &CallContext, reply: &Reply) -> bool {
    let Err(error) = reply else { return false };
    let is_lost = error.is(Reason::BackendUnavailable) && lease.session().client.is_lost();
    is_lost && !context.is_cancelled() && (error.is_refused() || repeat(&request.method) == Repeat::Safe)
}

/// The server's answer, translated for a modern client.
fn translated(request: &Request, pooled: &PooledRequest, relayed: Relayed, reply: Reply) -> Reply {
    match (reply, pooled.lacking()) {
        (Ok(result), Some(lacking)) if is_error(&result) => Err(lacking),
        (Ok(result), _) => Ok(result::to_modern(&request.method, &result)),
        (Err(_), Some(lacking)) => Err(lacking),
        (Err(error), None) => match questions::url_elicitations(&error) {
            Some(asked) if questions::may_be_asked(&request.method) => {
                if let Some(question) = questions::declined(&asked, request.params.as_ref()) {
                    return questions::abandoned(&request.method, question, "the user does not want to");
                }
                match asked.iter().find(|question| !relayed.allows(question)) {
                    // Without a request state: the next attempt runs the same request from the start.
                    None => Ok(questions::input_required(&asked, None)),
                    Some(question) => Err(codes::missing_capability(
                        "The server needs a client that can send its user to a page",
                        &Relayed::needed_by(question).object(),
                    )),
                }
            }
            _ => Err(told(request.params.as_ref(), &error)),
        },
    }
}

/// The error when no session could be leased: no server has taken the request.
fn not_leased(error: &RpcError) -> RpcError {
    told(None, error).not_taken()
}

fn told(params: Option<&RawJson>, error: &RpcError) -> RpcError {
    codes::to_modern(params, error)
}

/// Whether a tool result has `isError`.
fn is_error(result: &RawJson) -> bool {
    #[derive(Deserialize)]
    struct ErrorFlag {
        #[serde(rename = "isError", default)]
        is_error: bool,
    }
    result.read::<ErrorFlag>().is_ok_and(|flag| flag.is_error)
}

fn not_found(method: &Method) -> RpcError {
    RpcError::of(Reason::MethodNotFound, format!("Method not found: {method}"))
}

fn is_not_found(error: &RpcError) -> bool {
    error.code() == i64::from(Reason::MethodNotFound.code())
}

impl Responder for ExchangesOnSessions {
    fn respond(&self, call: Call) -> BoxFuture<Reply> {
        Box::pin(self.clone().answer(call))
    }

    // `true` where the server makes no tasks: calls never become tasks there, and clients are not told that they could.
    fn keeps_tasks(&self, route: &Route) -> bool {
        !self.pool.has_tasks(route)
    }

    fn server_info(&self) -> Option<RawJson> {
        self.pool.server_info()
    }

    fn forget(&self, principal: &Principal) {
        self.pool.forget(principal);
    }

    fn close(&self) -> BoxFuture<()> {
        let pool = Arc::clone(&self.pool);
        Box::pin(async move { pool.close().await })
    }

    fn begin(&self, fanout: Fanout) {
        self.pool.begin(fanout);
    }
}

impl std::fmt::Debug for ExchangesOnSessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExchangesOnSessions").field("sessions", &self.sessions()).finish_non_exhaustive()
    }
}
