//! All exchanges of a process: admitted, carried out, waiting, ended.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tenure_protocol::modern::capability;
use tenure_protocol::modern::meta::Level;
use tenure_protocol::modern::result::Caching;
use tenure_protocol::modern::validate::{Checked, Streams};
use tenure_protocol::translate::notifications::Filter;
use tenure_protocol::{Eras, Error, Method, Reason, Request};
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use super::limits::ExchangeLimits;
use crate::backend::{Call, Responder};
use crate::budget::{Resource, Share, Taken};
use crate::call::{CallContext, Caller, Fanout, Listener, News, Stage};
use crate::exchange::attempt::{Answer, Run, Source};
use crate::exchange::call::{Attempt, End, Origin, Work};
use crate::exchange::finish;
use crate::exchange::hand_over::{Admission, Hints};
use crate::exchange::header_schemas::Catalog;
use crate::exchange::request_state::{self, Bound, Brought, Held, Opened};
use crate::id::Route;
use crate::kept::KeptCalls;
use crate::port::clock::Clock;
use crate::port::seal::Seal;
use crate::supervise::Loops;
use crate::task::Tasks;

/// All exchanges of a process, as one of its endpoints sees them. Cheap to clone.
#[derive(Clone)]
pub struct Exchanges(pub(super) Arc<Inner>, pub(super) Route);

/// What exchanges are made of.
#[expect(missing_debug_implementations, reason = "its parts are ports without one")]
pub struct Parts {
    /// The server behind.
    pub responder: Arc<dyn Responder>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Bounds and timeouts.
    pub limits: ExchangeLimits,
    /// Seals what clients carry from one attempt to the next.
    pub seal: Arc<dyn Seal>,
    /// News to all who use the server.
    pub fanout: Fanout,
    /// What the endpoint serves.
    pub eras: Eras,
    /// What becomes of the caching that the server allows.
    pub caching: Caching,
}

pub(super) struct Inner {
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
    /// Attempts that are being answered, listens among them.
    pub(super) running: AtomicUsize,
    /// Listens alone.
    pub(super) listening: AtomicUsize,
    pub(super) numbers: AtomicU64,
    /// Tells this process from others, in which other calls wait.
    pub(super) process: u64,
    /// Attempts that had to wait for something, by the number of the call and their turn, and calls that became tasks,
    /// by that of the attempt that made one and a mark.
    pub(super) listed: Mutex<HashMap<(u64, u64), Weak<Work>>>,
    /// Woken when nothing is running any more, and from the beginning of the end whenever less is.
    pub(super) idle: Notify,
    pub(super) parked: Mutex<HashMap<u128, Arc<Work>>>,
    pub(super) tasks: TaskTracker,
    pub(super) loops: Loops,
    kept_tasks: OnceLock<Tasks>,
    pub(super) kept_calls: OnceLock<Arc<KeptCalls<Work>>>,
    /// Another process has the socket already, and follows.
    pub(super) is_followed: AtomicBool,
    /// Which tools may be called twice, as far as their servers were asked because this process leaves.
    pub(super) hints: Mutex<Hints>,
}

/// Everything is taken.
pub(super) const OPEN: u8 = 0;
/// Calls that may not be carried out twice are not begun any more, if their clients can come back; everything else is.
pub(super) const FINISHING: u8 = 1;
/// Calls whose clients can come back are not begun any more; everything else is taken.
pub(super) const LEAVING: u8 = 2;
/// Clients are told to come back; nothing else is taken.
pub(super) const LEFT: u8 = 3;
/// Nothing is taken.
const DRAINING: u8 = 4;
/// Nothing is taken, and what is left ends.
const STOPPING: u8 = 5;

/// How much is going on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tallies {
    /// Attempts that are being answered now, listens among them.
    pub running: usize,
    /// Calls that wait for their client to come back with answers.
    pub parked: usize,
    /// Attempts since the start.
    pub begun: u64,
}

impl Exchanges {
    /// Starts the runtime. Must be called within a tokio runtime.
    pub fn start(parts: Parts) -> Self {
        parts.responder.begin(parts.fanout.clone());
        let inner = Arc::new(Inner {
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
            kept_calls: OnceLock::new(),
            is_followed: AtomicBool::new(false),
            hints: Mutex::default(),
        });
        let listener: Weak<dyn Listener> = Arc::downgrade(&(Arc::clone(&inner) as Arc<dyn Listener>));
        parts.fanout.add(listener);
        let route = parts.fanout.route().clone();
        Self(inner, route)
    }

    /// The same for another endpoint.
    #[must_use]
    pub fn on(&self, route: Route) -> Self {
        Self(Arc::clone(&self.0), route)
    }

    /// Lets calls become tasks that are kept here, unless the server keeps its own. Said once, before the first
    /// request; the tasks stop with the exchanges.
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

    /// What runs in the background.
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
    pub async fn request(&self, checked: Checked, caller: Caller) -> Answer {
        match self.admit(checked, caller) {
            Ok(run) => run.answer().await,
            Err(error) => Answer::Refused(error),
        }
    }

    fn admit(&self, checked: Checked, caller: Caller) -> Result<Run, Error> {
        let (inner, route) = (&self.0, &self.1);
        let Checked { mut request, meta, params: headers, streams } = checked;
        // Incremented before the stage is read, so that an end which sets the stage and then reads the count sees this
        // request.
        let running = Running::new(inner, &request.method, caller.share())?;
        let stage = inner.stage.load(Ordering::SeqCst);
        let may_ask = Work::may_ask(&request.method);
        let is_held = match inner.admission(stage, &request, route, &caller.principal, streams) {
            Admission::Begin => false,
            Admission::Hold => true,
            Admission::Refuse => return Err(finish::draining()),
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
            return Err(Error::new(Reason::InvalidParams, "The log level is none that is known"));
        }
        let mut attempt = Attempt { meta, streams, responses: None, used: Vec::new() };
        let mut recovers = None;
        if may_ask {
            attempt.responses = finish::responses(request.params.as_ref());
            if let Some(state) = request_state::brought(request.params.as_ref())? {
                let bound = Bound::new(&request, route, &principal);
                match bound.open(&*inner.seal, &state, inner.clock.now()) {
                    Opened::Holds(Held::Parked(parked))
                        if parked.process == inner.process && stage != LEFT =>
                    {
                        return inner.resume(parked.name, attempt, request, running);
                    }
                    Opened::Holds(Held::Parked(parked)) => {
                        recovers = Some(parked);
                        request.params = finish::with_brought(request.params.as_ref(), &Brought::default());
                    }
                    Opened::Holds(Held::Again(brought)) => {
                        request.params = finish::with_brought(request.params.as_ref(), &brought);
                        attempt.responses = finish::responses(request.params.as_ref());
                    }
                    Opened::Holds(Held::Text(text)) => {
                        let params = request.params.as_ref();
                        request.params = params.map(|params| finish::with_state(params, &text));
                    }
                    Opened::Foreign if inner.responder.keeps_request_states() => {}
                    Opened::Foreign | Opened::Spent => return Err(request_state::invalid()),
                }
            }
        }
        let number = inner.numbers.fetch_add(1, Ordering::Relaxed);
        let world = (inner.fanout.on(route.clone()), Arc::clone(&inner.limits), inner.clock.now());
        let asked = request.clone();
        let origin = Origin { recovers, is_resumed: false, is_held };
        let work = Work::new(number, (request.clone(), caller.clone()), attempt, world, origin);
        let source = if is_held {
            Source::Elsewhere
        } else if recovers.is_some() {
            Source::Here(Box::pin(Arc::clone(inner).recover(Arc::clone(&work))))
        } else {
            let context = CallContext::staged(Arc::clone(&work) as Arc<dyn Stage>, &request, caller);
            let call = Call { request, context };
            let started = std::panic::catch_unwind(AssertUnwindSafe(|| inner.respond(&work, call)));
            started.map_or(Source::Nobody, Source::Here)
        };
        Ok(Run::new(inner, work, asked, (1, source), running))
    }

    /// Takes nothing new, and ends listens and calls that wait for a client. Others go on.
    pub fn drain(&self) {
        let _ = self.0.stage.compare_exchange(OPEN, DRAINING, Ordering::SeqCst, Ordering::SeqCst);
        for work in self.0.listed() {
            if work.is_listen() {
                work.end(End::Leave);
            }
        }
        let parked = std::mem::take(&mut *self.0.parked.lock());
        for work in parked.into_values() {
            // One whose client is back is answered like any other.
            if work.state.lock().parked_until.is_some() {
                work.close();
            }
        }
    }

    /// Waits until nothing is going on, or the deadline; then answers what is left with an error. Returns how many
    /// requests had to be interrupted.
    ///
    /// # Cancel safety
    /// Can be called again.
    pub async fn shut_down(&self, grace: Duration) -> usize {
        self.drain();
        let idle = async {
            loop {
                let idle = self.0.idle.notified();
                tokio::pin!(idle);
                // Registered before the count is read, so that the last one's end is not missed.
                idle.as_mut().enable();
                if self.0.running.load(Ordering::SeqCst) == 0 && self.0.listed.lock().is_empty() {
                    return;
                }
                idle.await;
            }
        };
        drop(tokio::time::timeout(grace, idle).await);
        // Those that are not listed now find out when they begin to wait.
        self.0.stage.store(STOPPING, Ordering::SeqCst);
        let mut left = self.0.listed();
        left.retain(|work| work.end(End::Interrupt));
        self.0.stop_tasks().await;
        self.0.stop_noting().await;
        left.len()
    }

    /// Lets the server behind go of what it keeps for requests to come. To be said when everything is shut down,
    /// sessions too: they may use the same server.
    ///
    /// # Cancel safety
    /// What has begun to end goes on ending.
    pub async fn close(&self) {
        if tokio::time::timeout(Duration::from_secs(5), self.0.responder.close()).await.is_err() {
            tracing::warn!("servers behind did not end in time");
        }
    }

    /// How much is going on.
    pub fn tallies(&self) -> Tallies {
        Tallies {
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

impl Inner {
    pub(super) fn listed(&self) -> Vec<Arc<Work>> {
        self.listed.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Waits until what runs in the background has ended.
    pub(super) async fn stop_tasks(&self) {
        self.tasks.close();
        if tokio::time::timeout(Duration::from_secs(5), self.tasks.wait()).await.is_err() {
            tracing::warn!(tasks = self.tasks.len(), "exchanges were still running at shutdown");
        }
        if let Some(tasks) = self.kept_tasks.get() {
            tasks.stop().await;
        }
    }

    /// Waits until what is to be noted of calls is in the store.
    pub(super) async fn stop_noting(&self) {
        if let Some(calls) = self.kept_calls.get() {
            calls.stop(Duration::from_secs(5)).await;
        }
    }

    /// Enters a call that has to wait, so that it can be ended from outside.
    pub(super) fn list(self: &Arc<Self>, work: &Arc<Work>, turn: u64) -> Listed {
        let place = (work.number, turn);
        self.listed.lock().insert(place, Arc::downgrade(work));
        if self.stage.load(Ordering::SeqCst) != OPEN {
            self.idle.notify_waiters();
        }
        Listed { inner: Arc::clone(self), place }
    }

    /// Enters a call of which an attempt makes a task.
    pub(super) fn list_task(self: &Arc<Self>, work: &Arc<Work>, turn: u64) -> Listed {
        const TASK: u64 = 1 << 63;
        self.list(work, turn | TASK)
    }

    /// The tasks that are kept here, if there are any.
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

    /// Ends a call that was listed while all were ended, and says whether it did.
    pub(super) fn ends(&self, work: &Work) -> bool {
        match self.stage.load(Ordering::SeqCst) {
            DRAINING if work.is_listen() => work.end(End::Leave),
            STOPPING => work.end(End::Interrupt),
            LEFT => work.end(self.end_at_leaving(work)),
            _ => false,
        }
    }

    fn check_listen(&self, request: &Request, streams: Streams) -> Result<(), Error> {
        if streams == Streams::No {
            // It would never hear anything, nor that it never will.
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

impl Listener for Inner {
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

/// An attempt as long as it is being answered.
pub(super) struct Running {
    inner: Arc<Inner>,
    is_listen: bool,
    _taken: Option<Taken>,
}

impl Running {
    /// Listens are counted apart from calls: they last, and a peer with many of them must not keep calls out.
    pub(super) fn new(inner: &Arc<Inner>, method: &Method, share: Option<Share>) -> Result<Self, Error> {
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

impl Drop for Running {
    fn drop(&mut self) {
        self.inner.running.fetch_sub(1, Ordering::SeqCst);
        self.inner.listening.fetch_sub(usize::from(self.is_listen), Ordering::SeqCst);
        if self.inner.stage.load(Ordering::SeqCst) != OPEN {
            self.inner.idle.notify_waiters();
        }
    }
}

/// An attempt as long as it stands in the list.
pub(super) struct Listed {
    inner: Arc<Inner>,
    place: (u64, u64),
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut listed = self.inner.listed.lock();
        listed.remove(&self.place);
        if listed.is_empty() {
            self.inner.idle.notify_waiters();
        }
    }
}
