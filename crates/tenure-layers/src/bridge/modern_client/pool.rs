//! The pool of sessions that exchanges use towards servers.
//!
//! A session belongs to an endpoint, a principal through a client, and a set of client capabilities, and is leased to one request at a
//! time. The pool leases the most recently used session first, so that the others go idle and are closed. The number of
//! sessions is limited: every lease holds a permit, and at the limit the pool closes the session that has been idle
//! longest before it opens a new one. A session whose request was not answered is not used again, since its server may still send
//! messages about that request.
//!
//! In: requests that need a session. Out: a [`Lease`] on one that was idle, or that `pooled_session` opens.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use tenure_protocol::translate::capabilities::Relayed;
use tenure_protocol::{RawJson, Reason, RpcError};
use tenure_session::backend::Backend;
use tenure_session::call::{CallContext, Fanout, NewsListener};
use tenure_session::id::{Principal, Route};
use tenure_session::supervise::Loops;
use tenure_session::task::TaskLimits;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::bridge::modern_client::listen_feed::ListenFeed;
use crate::bridge::modern_client::listens::Listens;
use crate::bridge::modern_client::pooled_client::PooledClient;
use crate::bridge::modern_client::pooled_session::PooledSession;
use crate::bridge::modern_client::task_support::TaskSupportCache;

/// Who may use a session towards a server after the request that it was opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reuse {
    /// Later requests of the same principal. All anonymous callers are one principal.
    #[default]
    Principal,
    /// No other request: each request gets a session of its own.
    Request,
}

/// The bounds of the sessions that are kept for exchanges.
#[derive(Clone, Debug)]
pub struct PoolLimits {
    /// Who may use a session again.
    pub reuse: Reuse,
    /// Sessions in all; at most half of them are used for listening.
    pub max: usize,
    /// A session that is idle for this long is closed.
    pub idle: Duration,
    /// How long a request waits for a session when all are in use; then it is refused.
    pub wait: Duration,
    /// The longest a server may take for `initialize`.
    pub open_timeout: Duration,
    /// How long we ask servers to keep the tasks that they make of calls.
    pub task_ttl: Duration,
}

impl Default for PoolLimits {
    fn default() -> Self {
        Self {
            reuse: Reuse::Principal,
            max: 64,
            idle: Duration::from_secs(60),
            wait: Duration::from_secs(10),
            open_timeout: Duration::from_secs(60),
            task_ttl: TaskLimits::default().max_ttl,
        }
    }
}

/// What a session must match to serve a request.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct PoolKey {
    pub(super) route: Route,
    pub(super) principal: Principal,
    /// Two principals are equal whatever their clients are, and a server may tell sessions of clients apart, by the tokens
    /// that they are opened with.
    pub(super) client: Option<Box<str>>,
    pub(super) relayed: Relayed,
}

impl PoolKey {
    pub(super) fn of(context: &CallContext) -> Self {
        let principal = &context.caller().principal;
        Self {
            route: context.route().clone(),
            principal: principal.clone(),
            client: principal.client().map(Into::into),
            relayed: Relayed::of_exchange(&context.capabilities()),
        }
    }

    /// The key of a session that only listens: its client declares no capabilities.
    pub(super) fn to_listen(context: &CallContext) -> Self {
        Self { relayed: Relayed::default(), ..Self::of(context) }
    }
}

/// Which session a request may get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Which {
    Any,
    /// A session that is opened for the request.
    New,
}

pub(super) struct Pool {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) limits: PoolLimits,
    fanout: OnceLock<Fanout>,
    /// One permit for every session that is leased.
    leases: Arc<Semaphore>,
    /// One permit for every session that listens, so that listens leave room for calls.
    pub(super) feeding: Arc<Semaphore>,
    pub(super) listens: Arc<Listens>,
    pub(super) feeds: Mutex<HashMap<(Route, Principal), Weak<ListenFeed>>>,
    pub(super) task_support: TaskSupportCache,
    state: Mutex<PoolState>,
    /// The tasks that close sessions, and the sweep for idle ones.
    pub(super) tasks: TaskTracker,
    pub(super) over: CancellationToken,
    pub(super) loops: Loops,
    numbers: AtomicU64,
}

#[derive(Default)]
struct PoolState {
    /// Idle sessions; the one that was used last is at the end.
    idle: Vec<IdleSession>,
    /// Every session, by its number. Not the `PooledSession` itself: the last reference must not be dropped under this
    /// lock, since the drop takes it.
    all: HashMap<u64, KnownSession>,
    /// The sweep for idle sessions is running.
    is_swept: bool,
    server: ServerIdentity,
    /// Endpoints whose server declared tasks in its last `initialize` result.
    with_tasks: HashSet<Route>,
}

struct IdleSession {
    session: Arc<PooledSession>,
    since: Instant,
}

struct KnownSession {
    client: Arc<PooledClient>,
    initialized: RawJson,
}

/// The `serverInfo` of the servers behind the pool.
#[derive(Default)]
enum ServerIdentity {
    #[default]
    Unknown,
    One(RawJson),
    /// Several differ, so the origin of a result is unknown.
    Several,
}

impl Pool {
    pub(super) fn new(backend: Arc<dyn Backend>, mut limits: PoolLimits) -> Arc<Self> {
        // A semaphore cannot have more permits; this many are as good as no limit.
        limits.max = limits.max.min(Semaphore::MAX_PERMITS);
        let max = limits.max;
        Arc::new(Self {
            backend,
            limits,
            fanout: OnceLock::new(),
            leases: Arc::new(Semaphore::new(max)),
            feeding: Arc::new(Semaphore::new(max / 2)),
            listens: Arc::default(),
            feeds: Mutex::default(),
            task_support: TaskSupportCache::default(),
            state: Mutex::default(),
            tasks: TaskTracker::new(),
            over: CancellationToken::new(),
            loops: Loops::default(),
            numbers: AtomicU64::new(0),
        })
    }

    pub(super) fn begin(&self, fanout: Fanout) {
        let listens: Arc<dyn NewsListener> = Arc::clone(&self.listens) as _;
        fanout.add(Arc::downgrade(&listens));
        // Set once; if `begin` is called again, the first fanout stays.
        drop(self.fanout.set(fanout));
    }

    pub(super) fn fanout(&self, route: &Route) -> Fanout {
        self.fanout.get().map_or_else(|| Fanout::new(route.clone()), |fanout| fanout.on(route.clone()))
    }

    pub(super) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn sessions(&self) -> usize {
        self.state.lock().all.len()
    }

    pub(super) fn server_info(&self) -> Option<RawJson> {
        match &self.state.lock().server {
            ServerIdentity::One(server) => Some(server.clone()),
            ServerIdentity::Unknown | ServerIdentity::Several => None,
        }
    }

    /// Whether the server at an endpoint makes tasks of calls, as its last session declared.
    pub(super) fn has_tasks(&self, route: &Route) -> bool {
        self.state.lock().with_tasks.contains(route)
    }

    /// The `initialize` result of any open session with this key, if sessions may be shared.
    pub(super) fn known(&self, key: &PoolKey) -> Option<RawJson> {
        if self.limits.reuse == Reuse::Request {
            return None;
        }
        let state = self.state.lock();
        let known = state.all.values().find(|known| known.client.key == *key && !known.client.is_lost());
        known.map(|known| known.initialized.clone())
    }

    /// A session for one request.
    ///
    /// # Cancel safety
    /// A request that waits loses its place in the queue; a session that is being opened is given up.
    pub(super) async fn lease(self: &Arc<Self>, key: &PoolKey, which: Which) -> Result<Lease, RpcError> {
        let permit = match Arc::clone(&self.leases).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let waiting = Arc::clone(&self.leases).acquire_owned();
                let waited = tokio::time::timeout(self.limits.wait, waiting).await;
                waited.map_err(|_| full())?.map_err(|_| over())?
            }
        };
        let session = match self.take(key, which) {
            Some(session) => session,
            None => PooledSession::open(self, key).await?,
        };
        Ok(Lease { pool: Arc::clone(self), session: Some(session), permit: Some(permit), is_answered: false })
    }

    /// Takes an idle session. If none fits, it closes one where that is needed to make room for a new one.
    fn take(&self, key: &PoolKey, which: Which) -> Option<Arc<PooledSession>> {
        let (found, closing) = {
            let mut state = self.state.lock();
            let fits = |idle: &IdleSession| idle.session.client.key == *key && !idle.session.client.is_lost();
            let found = match which {
                Which::Any => state.idle.iter().rposition(fits),
                Which::New => None,
            };
            let found = found.map(|at| state.idle.remove(at).session);
            let leased = self.limits.max.saturating_sub(self.leases.available_permits());
            let closing = match found {
                // This caller's permit has no session yet, so a sum above the limit means that one is idle.
                None if leased + state.idle.len() > self.limits.max && !state.idle.is_empty() => {
                    Some(state.idle.remove(0))
                }
                _ => None,
            };
            (found, closing)
        };
        // Dropped outside the lock, which the drop takes too.
        drop(closing);
        found
    }

    /// Enters a session that was just opened.
    pub(super) fn opened(&self, session: &Arc<PooledSession>) {
        let mut state = self.state.lock();
        let known =
            KnownSession { client: Arc::clone(&session.client), initialized: session.initialized.clone() };
        state.all.insert(session.client.number, known);
        let route = &session.client.key.route;
        if !session.has_tasks() {
            state.with_tasks.remove(route);
        } else if !state.with_tasks.contains(route) {
            state.with_tasks.insert(route.clone());
        }
        let Some(server) = session.server_info() else { return };
        state.server = match std::mem::take(&mut state.server) {
            ServerIdentity::Unknown => ServerIdentity::One(server),
            ServerIdentity::One(known) if known == server => ServerIdentity::One(known),
            ServerIdentity::One(_) | ServerIdentity::Several => ServerIdentity::Several,
        };
    }

    /// Removes a session that has ended.
    pub(super) fn closed(&self, number: u64) {
        let known = self.state.lock().all.remove(&number);
        drop(known);
    }

    /// Closes the sessions of a principal: idle ones now, and one that is leased when its request has noticed.
    pub(super) fn forget(&self, principal: &Principal) {
        let clients: Vec<_> = {
            let state = self.state.lock();
            let known = state.all.values().map(|known| &known.client);
            known.filter(|client| client.key.principal == *principal).cloned().collect()
        };
        // Outside the lock, which they take too.
        clients.iter().for_each(|client| client.lose());
    }

    /// Drops an idle session whose link is lost. A request that leases it notices the loss itself.
    pub(super) fn lost(&self, number: u64) {
        let lost = {
            let mut state = self.state.lock();
            let at = state.idle.iter().position(|idle| idle.session.client.number == number);
            at.map(|at| state.idle.remove(at))
        };
        drop(lost);
    }

    fn give_back(self: &Arc<Self>, session: Arc<PooledSession>, permit: Option<OwnedSemaphorePermit>) {
        let mut state = self.state.lock();
        // Checked under the lock: `lost` and `close` set their flag before they take it, so either this check sees the
        // flag or they find the session in `idle`.
        if session.client.is_lost() || self.over.is_cancelled() {
            drop(state);
            return;
        }
        state.idle.push(IdleSession { session, since: Instant::now() });
        // Dropped under the lock: the request that gets the permit must find this session idle.
        drop(permit);
        if !std::mem::replace(&mut state.is_swept, true) {
            let (pool, over) = (Arc::downgrade(self), self.over.clone());
            match tokio::runtime::Handle::try_current() {
                Ok(runtime) => {
                    let sweep = move || sweep(Weak::clone(&pool), over.clone());
                    let kept = self.loops.keep("sweep of idle bridge sessions", self.over.clone(), sweep);
                    drop(self.tasks.spawn_on(kept, &runtime));
                }
                // Without a runtime the process is ending.
                Err(_) => state.is_swept = false,
            }
        }
    }

    /// Closes the sessions that were idle for too long. Returns when the next one is due.
    fn close_old(&self) -> Option<Instant> {
        let now = Instant::now();
        let (old, next) = {
            let mut state = self.state.lock();
            let young = state.idle.iter().position(|idle| idle.since + self.limits.idle > now);
            let young = young.unwrap_or(state.idle.len());
            let old: Vec<_> = state.idle.drain(..young).collect();
            let next = state.idle.first().map(|idle| idle.since + self.limits.idle);
            state.is_swept = next.is_some();
            (old, next)
        };
        drop(old);
        next
    }

    pub(super) async fn close(&self) {
        self.leases.close();
        self.feeding.close();
        self.over.cancel();
        let idle = std::mem::take(&mut self.state.lock().idle);
        drop(idle);
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.over.cancel();
    }
}

async fn sweep(pool: Weak<Pool>, over: CancellationToken) {
    while let Some(next) = pool.upgrade().and_then(|pool| pool.close_old()) {
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            () = over.cancelled() => return,
        }
    }
}

/// The use of a session by one request. If the lease is dropped without a release, the session is closed.
pub(super) struct Lease {
    pub(super) pool: Arc<Pool>,
    /// `None` only while the lease is dropped.
    session: Option<Arc<PooledSession>>,
    permit: Option<OwnedSemaphorePermit>,
    is_answered: bool,
}

impl Lease {
    pub(super) fn session(&self) -> &Arc<PooledSession> {
        self.session.as_ref().expect("it is there until the lease is dropped")
    }

    /// A token for progress that no other request has.
    pub(super) fn next_token(&self) -> RawJson {
        RawJson::trusted(self.pool.next_number().to_string())
    }

    /// Subscribes this session to the resources that its principal watches, but only to those that the server has
    /// agreed to before: a call must not wait for a subscription of another client.
    pub(super) async fn watch(&self) {
        let session = self.session();
        if self.pool.limits.reuse == Reuse::Principal
            && (self.pool.listens.somebody_watches() || session.watches_something())
        {
            session.watch(|| self.pool.listens.agreed(&session.client.key)).await;
        }
    }

    /// Ends the request. After a cancellation the session is closed and not used again: the reply may be our own, and the
    /// server may still be at work.
    pub(super) fn end(self, context: &CallContext) {
        if !context.is_cancelled() {
            self.release();
        }
    }

    /// Gives the session back for other requests, since this one was answered.
    pub(super) fn release(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        session.client.leave();
        let pool = &self.pool;
        if self.is_answered && pool.limits.reuse == Reuse::Principal {
            pool.give_back(session, self.permit.take());
        }
    }
}

fn full() -> RpcError {
    RpcError::of(Reason::TooManyRequests, "All sessions with the server are in use; try again later")
}

pub(super) fn over() -> RpcError {
    RpcError::of(Reason::Draining, "The server is shutting down")
}
