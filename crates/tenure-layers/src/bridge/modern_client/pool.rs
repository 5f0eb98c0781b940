//! Sessions towards servers that are kept for exchanges, and who may use which.
//!
//! A session belongs to an endpoint, a principal and a set of client capabilities, and is leased to one request at a
//! time. The one that was used last is used first, so that the others grow old and are closed. There are never more
//! than a limit: whoever leases holds a permit, and before a new session is opened at the limit, the oldest that
//! nobody uses is closed. A session whose request was not answered is not used again, since its server may still
//! speak about that request.
//!
//! In: requests that need a session. Out: [`Lease`], and `slot` to open one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use tenure_protocol::translate::capabilities::Relayed;
use tenure_protocol::{RawJson, Reason, RpcError};
use tenure_session::backend::Backend;
use tenure_session::call::{CallContext, Fanout, Listener};
use tenure_session::id::{Principal, Route};
use tenure_session::supervise::Loops;
use tenure_session::task::TaskLimits;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::bridge::modern_client::listen_feed::Feed;
use crate::bridge::modern_client::listens::Listens;
use crate::bridge::modern_client::pooled_client::Seat;
use crate::bridge::modern_client::pooled_session::Slot;
use crate::bridge::modern_client::task_support::Supports;

/// Who may use a session towards a server after the request that it was opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reuse {
    /// Later requests of the same principal. All callers without a name are one.
    #[default]
    Principal,
    /// Nobody: each request gets a session of its own.
    Request,
}

/// The bounds of the sessions that are kept for exchanges.
#[derive(Clone, Debug)]
pub struct PoolLimits {
    /// Who may use a session again.
    pub reuse: Reuse,
    /// Sessions in all; at most half of them are used for listening.
    pub max: usize,
    /// A session that nobody uses for this long is closed.
    pub idle: Duration,
    /// How long a request waits for a session when all are in use; then it is refused.
    pub wait: Duration,
    /// The longest a server may take for `initialize`.
    pub open_timeout: Duration,
    /// How long servers are asked to keep the tasks that they make of calls.
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

/// Whom a session serves.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key {
    pub(super) route: Route,
    pub(super) principal: Principal,
    pub(super) relayed: Relayed,
}

impl Key {
    pub(super) fn of(context: &CallContext) -> Self {
        Self {
            route: context.route().clone(),
            principal: context.caller().principal.clone(),
            relayed: Relayed::of_exchange(&context.capabilities()),
        }
    }

    /// Of a session that only listens, and whose client therefore can do nothing.
    pub(super) fn to_listen(context: &CallContext) -> Self {
        Self { relayed: Relayed::default(), ..Self::of(context) }
    }
}

/// Which session a request may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Which {
    Any,
    /// One that is opened for it.
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
    pub(super) feeds: Mutex<HashMap<(Route, Principal), Weak<Feed>>>,
    pub(super) supports: Supports,
    state: Mutex<State>,
    /// Closes sessions, and looks for those to close.
    pub(super) tasks: TaskTracker,
    pub(super) over: CancellationToken,
    pub(super) loops: Loops,
    numbers: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Sessions that nobody uses, the one used last at the end.
    idle: Vec<Idle>,
    /// Every session there is, by its number. Not the slots themselves: the last hold on one must not be here, since
    /// its end takes the lock.
    all: HashMap<u64, Known>,
    /// A task looks for idle sessions to close.
    is_swept: bool,
    server: Named,
    /// Endpoints whose server has tasks, by what it said last.
    with_tasks: HashSet<Route>,
}

struct Idle {
    slot: Arc<Slot>,
    since: Instant,
}

struct Known {
    seat: Arc<Seat>,
    initialized: RawJson,
}

/// What the servers behind call themselves.
#[derive(Default)]
enum Named {
    #[default]
    Nobody,
    One(RawJson),
    /// Several, so that nobody can say which of them a result comes from.
    Several,
}

impl Pool {
    pub(super) fn new(backend: Arc<dyn Backend>, mut limits: PoolLimits) -> Arc<Self> {
        // More permits than a semaphore can have are as good as no limit.
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
            supports: Supports::default(),
            state: Mutex::default(),
            tasks: TaskTracker::new(),
            over: CancellationToken::new(),
            loops: Loops::default(),
            numbers: AtomicU64::new(0),
        })
    }

    pub(super) fn begin(&self, fanout: Fanout) {
        let listens: Arc<dyn Listener> = Arc::clone(&self.listens) as _;
        fanout.add(Arc::downgrade(&listens));
        // Said once; should it be said again, the first stays.
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
            Named::One(server) => Some(server.clone()),
            Named::Nobody | Named::Several => None,
        }
    }

    /// Whether the server at an endpoint makes tasks of calls, as far as is known.
    pub(super) fn has_tasks(&self, route: &Route) -> bool {
        self.state.lock().with_tasks.contains(route)
    }

    /// What the server of a session like this said to `initialize`, if there is one and it may be shared.
    pub(super) fn known(&self, key: &Key) -> Option<RawJson> {
        if self.limits.reuse == Reuse::Request {
            return None;
        }
        let state = self.state.lock();
        let known = state.all.values().find(|known| known.seat.key == *key && !known.seat.is_lost());
        known.map(|known| known.initialized.clone())
    }

    /// A session for one request.
    ///
    /// # Cancel safety
    /// Whoever waits loses its place; a session that is being opened is given up.
    pub(super) async fn lease(self: &Arc<Self>, key: &Key, which: Which) -> Result<Lease, RpcError> {
        let permit = match Arc::clone(&self.leases).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let waiting = Arc::clone(&self.leases).acquire_owned();
                let waited = tokio::time::timeout(self.limits.wait, waiting).await;
                waited.map_err(|_| full())?.map_err(|_| over())?
            }
        };
        let slot = match self.take(key, which) {
            Some(slot) => slot,
            None => Slot::open(self, key).await?,
        };
        Ok(Lease { pool: Arc::clone(self), slot: Some(slot), permit: Some(permit), is_answered: false })
    }

    /// A session that nobody uses. If there is none, there is room for a new one afterwards.
    fn take(&self, key: &Key, which: Which) -> Option<Arc<Slot>> {
        let (found, closing) = {
            let mut state = self.state.lock();
            let fits = |idle: &Idle| idle.slot.seat.key == *key && !idle.slot.seat.is_lost();
            let found = match which {
                Which::Any => state.idle.iter().rposition(fits),
                Which::New => None,
            };
            let found = found.map(|at| state.idle.remove(at).slot);
            let leased = self.limits.max.saturating_sub(self.leases.available_permits());
            let closing = match found {
                // Whoever holds a permit has no session yet, so one is idle if there are too many.
                None if leased + state.idle.len() > self.limits.max && !state.idle.is_empty() => {
                    Some(state.idle.remove(0))
                }
                _ => None,
            };
            (found, closing)
        };
        // Not under the lock, which its end takes too.
        drop(closing);
        found
    }

    /// A session is there.
    pub(super) fn opened(&self, slot: &Arc<Slot>) {
        let mut state = self.state.lock();
        let known = Known { seat: Arc::clone(&slot.seat), initialized: slot.initialized.clone() };
        state.all.insert(slot.seat.number, known);
        let route = &slot.seat.key.route;
        if !slot.has_tasks() {
            state.with_tasks.remove(route);
        } else if !state.with_tasks.contains(route) {
            state.with_tasks.insert(route.clone());
        }
        let Some(server) = slot.server_info() else { return };
        state.server = match std::mem::take(&mut state.server) {
            Named::Nobody => Named::One(server),
            Named::One(known) if known == server => Named::One(known),
            Named::One(_) | Named::Several => Named::Several,
        };
    }

    /// A session is gone for good.
    pub(super) fn closed(&self, number: u64) {
        let known = self.state.lock().all.remove(&number);
        drop(known);
    }

    /// The link of a session is lost. If somebody uses it, they find out by themselves.
    pub(super) fn lost(&self, number: u64) {
        let lost = {
            let mut state = self.state.lock();
            let at = state.idle.iter().position(|idle| idle.slot.seat.number == number);
            at.map(|at| state.idle.remove(at))
        };
        drop(lost);
    }

    fn give_back(self: &Arc<Self>, slot: Arc<Slot>, permit: Option<OwnedSemaphorePermit>) {
        let mut state = self.state.lock();
        // Under the lock, which whoever ends it takes afterwards: it is either seen here or found there.
        if slot.seat.is_lost() || self.over.is_cancelled() {
            drop(state);
            return;
        }
        state.idle.push(Idle { slot, since: Instant::now() });
        // Still under the lock: whoever gets it finds the session idle and not in use.
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

    /// Closes what was idle for long, and says when there is more to close.
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

/// A session for as long as one request takes. Dropped without being released, it is closed.
pub(super) struct Lease {
    pub(super) pool: Arc<Pool>,
    /// Until it is dropped.
    slot: Option<Arc<Slot>>,
    permit: Option<OwnedSemaphorePermit>,
    is_answered: bool,
}

impl Lease {
    pub(super) fn slot(&self) -> &Arc<Slot> {
        self.slot.as_ref().expect("it is there until the lease is dropped")
    }

    /// A token for progress that no other request has.
    pub(super) fn next_token(&self) -> RawJson {
        RawJson::trusted(self.pool.next_number().to_string())
    }

    /// Has the server tell of what its principal watches, as far as it is known to take that: nobody's call waits for
    /// what somebody else would like to hear.
    pub(super) async fn watch(&self) {
        let slot = self.slot();
        if self.pool.limits.reuse == Reuse::Principal
            && (self.pool.listens.somebody_watches() || slot.watches_something())
        {
            slot.watch(|| self.pool.listens.agreed(&slot.seat.key)).await;
        }
    }

    /// The request has ended. If it was withdrawn, the answer may not be the server's.
    pub(super) fn end(self, context: &CallContext) {
        if !context.is_cancelled() {
            self.release();
        }
    }

    /// The request was answered, and the session can be used by another.
    pub(super) fn release(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else { return };
        slot.seat.leave();
        let pool = &self.pool;
        if self.is_answered && pool.limits.reuse == Reuse::Principal {
            pool.give_back(slot, self.permit.take());
        }
    }
}

fn full() -> RpcError {
    RpcError::of(Reason::TooManyRequests, "All sessions with the server are in use; try again later")
}

pub(super) fn over() -> RpcError {
    RpcError::of(Reason::Draining, "The server is shutting down")
}
