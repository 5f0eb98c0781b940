//! Owns all exchanges of a process: admits requests, starts their calls, and drains and stops them.
//!
//! In: checked requests with their callers. Out: an [`ExchangeAnswer`] for each.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tenure_protocol::modern::capability;
use tenure_protocol::modern::meta::Level;
use tenure_protocol::modern::result::Caching;
use tenure_protocol::modern::validate::{Checked, StreamSupport};
use tenure_protocol::translate::notifications::Filter;
use tenure_protocol::{Eras, Error, Method, Reason, Request};
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use super::limits::ExchangeLimits;
use crate::backend::{Call, Responder};
use crate::budget::{Resource, Share, Taken};
use crate::call::{CallContext, Caller, Client, Fanout, News, NewsListener};
use crate::cluster::Roster;
use crate::exchange::attempt::{ExchangeAnswer, Run, Source};
use crate::exchange::call::{ActiveCall, CallOrigin, ClientAttempt, ForcedEnd};
use crate::exchange::finish;
use crate::exchange::hand_over::{ExchangeAdmission, RepeatHints};
use crate::exchange::header_schemas::Catalog;
use crate::exchange::request_state::{self, Bound, Brought, OpenedState, SealedContent};
use crate::id::Route;
use crate::kept::KeptCalls;
use crate::port::clock::Clock;
use crate::port::seal::Seal;
use crate::supervise::Loops;
use crate::task::Tasks;

/// All exchanges of a process, for one of its endpoints. Cheap to clone.
#[derive(Clone)]
pub struct Exchanges(pub(super) Arc<ExchangesInner>, pub(super) Route);

/// The parts that [`Exchanges`] are made of.
#[expect(missing_debug_implementations, reason = "its parts are ports without one")]
pub struct ExchangeParts {
    /// The server.
    pub responder: Arc<dyn Responder>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Bounds and timeouts.
    pub limits: ExchangeLimits,
    /// Seals the data that clients carry from one attempt to the next.
    pub seal: Arc<dyn Seal>,
    /// Distributes news to all clients of the server.
    pub fanout: Fanout,
    /// The eras that the endpoint serves.
    pub eras: Eras,
    /// How the server's caching hints are passed on.
    pub caching: Caching,
}

pub(super) struct ExchangesInner {
    pub(super) responder: Arc<dyn Responder>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) limits: Arc<ExchangeLimits>,
    pub(super) seal: Arc<dyn Seal>,
    pub(super) eras: Eras,
    pub(super) caching: Caching,
    pub(super) catalog: Catalog,
    pub(super) fanout: Fanout,
    /// One of the stages below.
    pub(super) stage: AtomicU8,
    /// Running attempts, including listens.
    pub(super) running: AtomicUsize,
    /// Running listens.
    pub(super) listening: AtomicUsize,
    pub(super) numbers: AtomicU64,
    /// A random number for this process, to recognize the states of its own parked calls.
    pub(super) process: u64,
    /// Attempts that had to wait at least once, by the number and the generation of their call, and calls that became
    /// tasks, by the same pair with a mark.
    pub(super) listed: Mutex<HashMap<(u64, u64), Weak<ActiveCall>>>,
    /// Notified when the last attempt ends, and during a drain or stop whenever the number of attempts falls.
    pub(super) idle: Notify,
    pub(super) parked: Mutex<HashMap<u128, Arc<ActiveCall>>>,
    pub(super) tasks: TaskTracker,
    pub(super) loops: Loops,
    kept_tasks: OnceLock<Tasks>,
    /// The nodes that share the store; not set if this process is the only one.
    pub(super) roster: OnceLock<Roster>,
    pub(super) kept_calls: OnceLock<Arc<KeptCalls<ActiveCall>>>,
    /// Another process has the socket already, and takes over.
    pub(super) is_followed: AtomicBool,
    /// The tools that may be called twice. The servers are asked only when this process leaves.
    pub(super) hints: Mutex<RepeatHints>,
}

/// Every request is accepted.
pub(super) const OPEN: u8 = 0;
/// A call that must not run twice is held if its client can come back; all other requests are accepted.
pub(super) const FINISHING: u8 = 1;
/// Calls whose clients can come back are held; other calls are refused; other requests are accepted.
pub(super) const LEAVING: u8 = 2;
/// Calls whose clients can come back are held, and `tasks/get` is accepted; all other requests are refused.
pub(super) const LEFT: u8 = 3;
/// Every request is refused.
const DRAINING: u8 = 4;
/// Every request is refused, and the remaining calls are ended.
const STOPPING: u8 = 5;

/// The numbers of exchanges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExchangeTallies {
    /// Running attempts, including listens.
    pub running: usize,
    /// Calls that wait for their client to come back with answers.
    pub parked: usize,
    /// Attempts since the start.
    pub begun: u64,
}

impl Exchanges {
    /// Starts the runtime. Must be called within a tokio runtime.
    pub fn start(parts: ExchangeParts) -> Self {
        parts.responder.begin(parts.fanout.clone());
        let inner = Arc::new(ExchangesInner {
            responder: parts.responder,
            clock: parts.clock,
            limits: Arc::new(parts.limits),
            seal: parts.seal,
            eras: parts.eras,
            caching: parts.caching,
            catalog: Catalog::default(),
            fanout: parts.fanout.clone(),
            stage: AtomicU8::new(OPEN),
            running: AtomicUsize::new(0),
            listening: AtomicUsize::new(0),
            numbers: AtomicU64::new(0),
            process: random(),
            listed: Mutex::default(),
            idle: Notify::new(),
            parked: Mutex::default(),
            tasks: TaskTracker::new(),
            loops: Loops::default(),
            kept_tasks: OnceLock::new(),
            roster: OnceLock::new(),
            kept_calls: OnceLock::new(),
            is_followed: AtomicBool::new(false),
            hints: Mutex::default(),
        });
        let listener: Weak<dyn NewsListener> = Arc::downgrade(&(Arc::clone(&inner) as Arc<dyn NewsListener>));
        parts.fanout.add(listener);
        let route = parts.fanout.route().clone();
        Self(inner, route)
    }

    /// The same exchanges for another endpoint.
    #[must_use]
    pub fn on(&self, route: Route) -> Self {
        Self(Arc::clone(&self.0), route)
    }

    /// Lets calls become tasks that are kept here, unless the server keeps its own. Called once, before the first
    /// request. The tasks stop together with the exchanges.
    #[must_use]
    pub fn with_tasks(self, tasks: Tasks) -> Self {
        let inner = Arc::downgrade(&self.0);
        tasks.carried_on_by(move |live| {
            if let Some(inner) = inner.upgrade() {
                inner.carry_on(live);
            }
        });
        self.0.loops.include(tasks.loops());
        drop(self.0.kept_tasks.set(tasks));
        self
    }

    /// The background loops.
    pub fn loops(&self) -> &Loops {
        &self.0.loops
    }

    /// Which eras the endpoint serves.
    pub fn eras(&self) -> Eras {
        self.0.eras
    }

    /// Answers a request.
    ///
    /// # Cancel safety
    /// Dropping it withdraws the request.
    pub async fn request(&self, checked: Checked, caller: Caller) -> ExchangeAnswer {
        match self.admit(checked, caller) {
            Ok(run) => run.answer().await,
            Err(error) => ExchangeAnswer::Refused(error),
        }
    }

    fn admit(&self, checked: Checked, caller: Caller) -> Result<Run, Error> {
        let (inner, route) = (&self.0, &self.1);
        let Checked { mut request, meta, params: headers, streams } = checked;
        // Incremented before the stage is read, so that a drain which sets the stage and then reads the count sees this
        // request.
        let running = RunningGuard::new(inner, &request.method, caller.share())?;
        let stage = inner.stage.load(Ordering::SeqCst);
        let may_ask = ActiveCall::may_ask(&request.method);
        let is_held = match inner.admission(stage, &request, route, &caller.principal, streams) {
            ExchangeAdmission::Begin => false,
            ExchangeAdmission::Hold => true,
            // A parked call goes on until the end of the stop.
            ExchangeAdmission::Refuse if stage < LEFT && self.has_parked(&request, &caller.principal) => {
                false
            }
            ExchangeAdmission::Refuse => return Err(finish::draining()),
        };
        if let Some(needed) = capability::of_request(&request) {
            meta.capabilities.require(&[needed])?;
        }
        let principal = caller.principal.clone();
        match request.method {
            Method::ToolsCall => {
                if let Some(headers) = &headers {
                    inner.catalog.check(&request, route, &principal, headers)?;
                }
            }
            Method::Listen => inner.check_listen(&request, streams)?,
            _ => {}
        }
        if meta.level == Some(Level::Unknown) {
            return Err(Error::new(Reason::InvalidParams, "The log level is unknown"));
        }
        let mut attempt = ClientAttempt { meta, streams, responses: None, used: Vec::new() };
        let mut recovers = None;
        if may_ask {
            attempt.responses = finish::responses(request.params.as_ref());
            if let Some(state) = request_state::brought(request.params.as_ref())? {
                let bound = Bound::new(&request, route, &principal);
                match bound.open(&*inner.seal, &state, inner.clock.now()) {
                    OpenedState::Holds(SealedContent::Parked(parked))
                        if parked.process == inner.process && stage != LEFT =>
                    {
                        return inner.resume(parked.name, attempt, request, running);
                    }
                    OpenedState::Holds(SealedContent::Parked(parked)) => {
                        recovers = Some(parked);
                        request.params = finish::with_brought(request.params.as_ref(), &Brought::default());
                    }
                    OpenedState::Holds(SealedContent::Again(brought)) => {
                        request.params = finish::with_brought(request.params.as_ref(), &brought);
                        attempt.responses = finish::responses(request.params.as_ref());
                    }
                    OpenedState::Holds(SealedContent::Text(text)) => {
                        let params = request.params.as_ref();
                        request.params = params.map(|params| finish::with_state(params, &text));
                    }
                    OpenedState::Foreign
                        if inner.responder.keeps_request_states() && principal.name().is_none() => {}
                    OpenedState::Foreign | OpenedState::Spent => return Err(request_state::invalid()),
                }
            }
        }
        let number = inner.numbers.fetch_add(1, Ordering::Relaxed);
        let world = (inner.fanout.on(route.clone()), Arc::clone(&inner.limits), inner.clock.now());
        let asked = request.clone();
        let origin = CallOrigin { recovers, is_resumed: false, is_held };
        let work = ActiveCall::new(number, (request.clone(), caller.clone()), attempt, world, origin);
        let source = if is_held {
            Source::Elsewhere
        } else if recovers.is_some() {
            Source::Here(Box::pin(Arc::clone(inner).recover(Arc::clone(&work))))
        } else {
            let context = CallContext::new(Arc::clone(&work) as Arc<dyn Client>, &request, caller);
            let call = Call { request, context };
            let started = std::panic::catch_unwind(AssertUnwindSafe(|| inner.respond(&work, call)));
            started.map_or(Source::Panicked, Source::Here)
        };
        Ok(Run::new(inner, work, asked, (1, source), running))
    }

    /// Refuses new requests, and ends listens and calls that wait for a client. Other calls go on.
    pub fn drain(&self) {
        let _ = self.0.stage.compare_exchange(OPEN, DRAINING, Ordering::SeqCst, Ordering::SeqCst);
        for work in self.0.listed() {
            if work.is_listen() {
                work.end(ForcedEnd::Leave);
            }
        }
        let parked = std::mem::take(&mut *self.0.parked.lock());
        for work in parked.into_values() {
            // If its client has come back, the call goes on like any other.
            if work.state.lock().parked_until.is_some() {
                work.close();
            }
        }
    }

    /// Waits until all calls have ended, or the deadline; then ends the remaining calls with an error. Returns how many
    /// calls were interrupted.
    ///
    /// # Cancel safety
    /// Can be called again.
    pub async fn shut_down(&self, grace: Duration) -> usize {
        self.drain();
        let idle = async {
            loop {
                let idle = self.0.idle.notified();
                tokio::pin!(idle);
                // Registered before the count is read, so that the last end is not missed.
                idle.as_mut().enable();
                if self.0.running.load(Ordering::SeqCst) == 0 && self.0.listed.lock().is_empty() {
                    return;
                }
                idle.await;
            }
        };
        drop(tokio::time::timeout(grace, idle).await);
        // Attempts that are not listed yet see the stage when they begin to wait.
        self.0.stage.store(STOPPING, Ordering::SeqCst);
        let mut left = self.0.listed();
        left.retain(|work| work.end(ForcedEnd::Interrupt));
        self.0.stop_tasks().await;
        self.0.stop_noting().await;
        left.len()
    }

    /// Closes the server's responder. Called after everything is shut down, sessions too, because they may use the same
    /// server.
    ///
    /// # Cancel safety
    /// As for [`Responder::close`].
    pub async fn close(&self) {
        if tokio::time::timeout(Duration::from_secs(5), self.0.responder.close()).await.is_err() {
            tracing::warn!("the servers did not end in time");
        }
    }

    /// The numbers of exchanges.
    pub fn tallies(&self) -> ExchangeTallies {
        ExchangeTallies {
            running: self.0.running.load(Ordering::Relaxed),
            parked: self.0.parked.lock().len(),
            begun: self.0.numbers.load(Ordering::Relaxed),
        }
    }
}

impl std::fmt::Debug for Exchanges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchanges").field("tallies", &self.tallies()).finish_non_exhaustive()
    }
}

impl ExchangesInner {
    pub(super) fn listed(&self) -> Vec<Arc<ActiveCall>> {
        self.listed.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Waits until the background tasks have ended.
    pub(super) async fn stop_tasks(&self) {
        self.tasks.close();
        if tokio::time::timeout(Duration::from_secs(5), self.tasks.wait()).await.is_err() {
            tracing::warn!(tasks = self.tasks.len(), "exchanges were still running at shutdown");
        }
        if let Some(tasks) = self.kept_tasks.get() {
            tasks.stop().await;
        }
    }

    /// Waits until the notes of calls are in the store.
    pub(super) async fn stop_noting(&self) {
        if let Some(calls) = self.kept_calls.get() {
            calls.stop(Duration::from_secs(5)).await;
        }
    }

    /// Adds a call that has to wait to the list, so that a drain or stop can end it.
    pub(super) fn list(self: &Arc<Self>, work: &Arc<ActiveCall>, generation: u64) -> ListGuard {
        let place = (work.number, generation);
        self.listed.lock().insert(place, Arc::downgrade(work));
        if self.stage.load(Ordering::SeqCst) != OPEN {
            self.idle.notify_waiters();
        }
        ListGuard { inner: Arc::clone(self), place }
    }

    /// Adds a call that an attempt turns into a task to the list.
    pub(super) fn list_task(self: &Arc<Self>, work: &Arc<ActiveCall>, generation: u64) -> ListGuard {
        const TASK: u64 = 1 << 63;
        self.list(work, generation | TASK)
    }

    /// The tasks that are kept here, if tasks are enabled.
    pub(super) fn tasks(&self) -> Option<&Tasks> {
        self.kept_tasks.get().filter(|tasks| tasks.limits().max > 0)
    }

    /// The tasks that are kept here, if the server does not keep its own.
    pub(super) fn kept_tasks(&self, route: &Route) -> Option<&Tasks> {
        self.tasks().filter(|_| !self.responder.keeps_tasks(route))
    }

    /// Whether calls at an endpoint can become tasks that are kept here.
    pub(super) fn may_keep_tasks(&self, route: &Route) -> bool {
        self.tasks().is_some_and(|tasks| tasks.limits().after.is_some()) || self.kept_tasks(route).is_some()
    }

    /// Ends a call that was added to the list while a drain or stop ended all listed calls. Returns whether it did.
    pub(super) fn ends(&self, work: &ActiveCall) -> bool {
        match self.stage.load(Ordering::SeqCst) {
            DRAINING if work.is_listen() => work.end(ForcedEnd::Leave),
            STOPPING => work.end(ForcedEnd::Interrupt),
            LEFT => work.end(self.end_at_leaving(work)),
            _ => false,
        }
    }

    fn check_listen(&self, request: &Request, streams: StreamSupport) -> Result<(), Error> {
        if streams == StreamSupport::No {
            // Without a stream the listen could not report anything.
            return Err(Error::new(Reason::NotAcceptable, "Accept must list text/event-stream"));
        }
        let broken = |_| Error::new(Reason::InvalidParams, "notifications is missing or cannot be read");
        let filter = Filter::read(request.params.as_ref()).map_err(broken)?;
        let limit = self.limits.max_subscriptions;
        if filter.uris.len() + filter.tasks.len() > limit {
            let message = format!("A listen may watch {limit} resources and tasks");
            return Err(Error::new(Reason::TooManySubscriptions, message).with("limit", limit));
        }
        Ok(())
    }
}

impl NewsListener for ExchangesInner {
    fn resource_updated(&self, _: &Route, _: &str) {}

    fn list_changed(&self, route: &Route, news: News) {
        if news == News::Tools {
            self.catalog.forget(route);
        }
    }
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("the system gives random bytes");
    u64::from_le_bytes(bytes)
}

/// Counts a running attempt. Dropped when the attempt ends.
pub(super) struct RunningGuard {
    inner: Arc<ExchangesInner>,
    is_listen: bool,
    _taken: Option<Taken>,
}

impl RunningGuard {
    /// Listens are counted separately from calls: they last long, and a peer with many listens must not block calls.
    pub(super) fn new(
        inner: &Arc<ExchangesInner>,
        method: &Method,
        share: Option<Share>,
    ) -> Result<Self, Error> {
        let is_listen = *method == Method::Listen;
        let running = inner.running.fetch_add(1, Ordering::SeqCst);
        let listening = inner.listening.fetch_add(usize::from(is_listen), Ordering::SeqCst);
        let mut guard = Self { inner: Arc::clone(inner), is_listen, _taken: None };
        let (resource, before, limit) = match is_listen {
            true => (Resource::Listens, listening, inner.limits.max_listens),
            false => (Resource::Calls, running.saturating_sub(listening), inner.limits.max_running),
        };
        if before >= limit {
            let message = "Too many requests are being answered; try again later";
            return Err(Error::new(Reason::TooManyRequests, message).with("limit", limit));
        }
        if let Some(share) = share {
            let taken = share.take(resource, 1);
            guard._taken = Some(taken.map_err(|_| {
                let message = "As many of your requests are being answered as may be; try again later";
                Error::new(Reason::TooManyRequests, message)
            })?);
        }
        Ok(guard)
    }
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.inner.running.fetch_sub(1, Ordering::SeqCst);
        self.inner.listening.fetch_sub(usize::from(self.is_listen), Ordering::SeqCst);
        if self.inner.stage.load(Ordering::SeqCst) != OPEN {
            self.inner.idle.notify_waiters();
        }
    }
}

/// Keeps an attempt in the list. Dropping it removes the attempt.
pub(super) struct ListGuard {
    inner: Arc<ExchangesInner>,
    place: (u64, u64),
}

impl Drop for ListGuard {
    fn drop(&mut self) {
        let mut listed = self.inner.listed.lock();
        listed.remove(&self.place);
        if listed.is_empty() {
            self.inner.idle.notify_waiters();
        }
    }
}
