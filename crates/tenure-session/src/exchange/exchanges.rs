//! All exchanges of a process: admitted, carried out, waiting, ended.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::answers;
use super::capability;
use super::catalog::Catalog;
use super::ladder::Checked;
use super::limits::ExchangeLimits;
use super::meta::Level;
use super::results::Caching;
use super::run::{Answer, Run, Source, panicked};
use super::states::{self, Bound, Held};
use super::work::{Attempt, End, Work};
use crate::bridge::rules::news::Filter;
use crate::call::{CallContext, Caller, Fanout, Listener, News, Stage};
use crate::error::{Error, Reason, RpcError};
use crate::id::Route;
use crate::message::Request;
use crate::method::Method;
use crate::port::BoxFuture;
use crate::port::backend::{Call, Reply};
use crate::port::clock::Clock;
use crate::port::responder::Responder;
use crate::port::seal::Seal;
use crate::protocol::Eras;
use crate::task::Tasks;

/// All exchanges of a process, as one of its endpoints sees them. Cheap to clone.
#[derive(Clone)]
pub struct Exchanges(Arc<Inner>, Route);

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
    fanout: Fanout,
    /// One of the stages below.
    stage: AtomicU8,
    running: AtomicUsize,
    numbers: AtomicU64,
    /// Those that had to wait for something, and those that became tasks.
    listed: Mutex<HashMap<(u64, As), Weak<Work>>>,
    /// Woken when the last of those is gone.
    idle: Notify,
    parked: Mutex<HashMap<u128, Arc<Work>>>,
    pub(super) tasks: TaskTracker,
    kept_tasks: OnceLock<Tasks>,
}

/// What a call is listed as; it can be both for a moment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum As {
    Attempt,
    Task,
}

const OPEN: u8 = 0;
const DRAINING: u8 = 1;
const STOPPING: u8 = 2;

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
            numbers: AtomicU64::new(0),
            listed: Mutex::default(),
            idle: Notify::new(),
            parked: Mutex::default(),
            tasks: TaskTracker::new(),
            kept_tasks: OnceLock::new(),
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
        drop(self.0.kept_tasks.set(tasks));
        self
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
        if inner.stage.load(Ordering::Relaxed) != OPEN {
            return Err(answers::draining());
        }
        let running = Running::new(inner)?;
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
            Method::Listen => inner.check_listen(&request)?,
            _ => {}
        }
        if meta.level == Some(Level::Unknown) {
            return Err(Error::new(Reason::InvalidParams, "The log level is none that is known"));
        }
        let asked = request.clone();
        let mut attempt = Attempt { meta, streams, responses: None };
        if Work::may_ask(&request.method) {
            attempt.responses = answers::responses(request.params.as_ref());
            if let Some(state) = states::brought(request.params.as_ref())? {
                let bound = Bound::new(&request, route, &principal);
                match bound.open(&*inner.seal, &state, inner.clock.now()) {
                    Some(Held::Parked(name)) => return inner.resume(name, attempt, asked, running),
                    Some(Held::Text(text)) => {
                        let params = request.params.as_ref();
                        request.params = params.map(|params| answers::with_state(params, &text));
                    }
                    None if inner.responder.keeps_request_states() => {}
                    None => return Err(states::invalid()),
                }
            }
        }
        let number = inner.numbers.fetch_add(1, Ordering::Relaxed);
        let world = (inner.fanout.on(route.clone()), Arc::clone(&inner.limits), inner.clock.now());
        let work = Work::new(number, (request.method.clone(), principal), attempt, world);
        let context = CallContext::staged(Arc::clone(&work) as Arc<dyn Stage>, &request, caller);
        let call = Call { request, context };
        let started = std::panic::catch_unwind(AssertUnwindSafe(|| inner.respond(&work, call)));
        let source = started.map_or(Source::Nobody, Source::Here);
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
                if self.0.listed.lock().is_empty() {
                    return;
                }
                idle.await;
            }
        };
        // In time or not: one may have slipped in just before the door closed.
        drop(tokio::time::timeout(grace, idle).await);
        self.0.stage.store(STOPPING, Ordering::SeqCst);
        let left = self.0.listed();
        for work in &left {
            work.end(End::Interrupt);
        }
        self.0.tasks.close();
        if tokio::time::timeout(Duration::from_secs(5), self.0.tasks.wait()).await.is_err() {
            tracing::warn!(tasks = self.0.tasks.len(), "exchanges were still running at shutdown");
        }
        if let Some(tasks) = self.0.kept_tasks.get() {
            tasks.stop().await;
        }
        left.len()
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
    fn listed(&self) -> Vec<Arc<Work>> {
        self.listed.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Enters a call that has to wait, so that it can be ended from outside.
    pub(super) fn list(self: &Arc<Self>, work: &Arc<Work>) -> Listed {
        self.list_as(work, As::Attempt)
    }

    /// Enters a call that has become a task.
    pub(super) fn list_task(self: &Arc<Self>, work: &Arc<Work>) -> Listed {
        self.list_as(work, As::Task)
    }

    fn list_as(self: &Arc<Self>, work: &Arc<Work>, what: As) -> Listed {
        let key = (work.number, what);
        self.listed.lock().insert(key, Arc::downgrade(work));
        Listed { inner: Arc::clone(self), key }
    }

    /// The tasks that are kept here, if the server does not keep its own.
    pub(super) fn kept_tasks(&self, route: &Route) -> Option<&Tasks> {
        self.kept_tasks.get().filter(|tasks| tasks.limits().max > 0 && !self.responder.keeps_tasks(route))
    }

    /// Ends a call that was listed while all were ended, and says whether it did.
    pub(super) fn ends(&self, work: &Work) -> bool {
        match self.stage.load(Ordering::SeqCst) {
            DRAINING if work.is_listen() => work.end(End::Leave),
            STOPPING => work.end(End::Interrupt),
            _ => return false,
        }
        true
    }

    fn check_listen(&self, request: &Request) -> Result<(), Error> {
        let broken = |_| Error::new(Reason::InvalidParams, "notifications is missing or cannot be read");
        let filter = Filter::read(request.params.as_ref()).map_err(broken)?;
        let limit = self.limits.max_subscriptions;
        if filter.uris.len() + filter.tasks.len() > limit {
            let message = format!("A listen may watch {limit} resources and tasks");
            return Err(Error::new(Reason::TooManySubscriptions, message).with("limit", limit));
        }
        Ok(())
    }

    /// Goes on with a call that waited.
    fn resume(
        self: &Arc<Self>,
        name: u128,
        attempt: Attempt,
        request: Request,
        running: Running,
    ) -> Result<Run, Error> {
        let work = self.parked.lock().get(&name).cloned().ok_or_else(states::invalid)?;
        let turn = work.resume(attempt).ok_or_else(states::invalid)?;
        Ok(Run::new(self, work, request, (turn, Source::Elsewhere), running))
    }

    /// Lets a call wait for its client's next attempt. Returns the state that the attempt has to bring.
    pub(super) fn park(&self, work: &Arc<Work>, request: &Request) -> Result<String, Error> {
        let name = *work.park.get_or_init(|| {
            let mut bytes = [0; 16];
            getrandom::fill(&mut bytes).expect("the system gives random bytes");
            u128::from_le_bytes(bytes)
        });
        {
            let mut parked = self.parked.lock();
            if self.stage.load(Ordering::SeqCst) != OPEN {
                return Err(answers::draining());
            }
            let limit = self.limits.max_parked;
            if parked.len() >= limit && !parked.contains_key(&name) {
                let message = "Too many calls wait for answers of their clients; try again later";
                return Err(Error::new(Reason::TooManyRequests, message).with("limit", limit));
            }
            parked.insert(name, Arc::clone(work));
        }
        let bound = Bound::new(request, work.fanout.route(), &work.principal);
        let expires = self.clock.now().after(self.limits.ask_timeout);
        bound.seal(&*self.seal, &Held::Parked(name), expires)
    }

    pub(super) fn unpark(&self, work: &Work) {
        if let Some(name) = work.park.get() {
            self.parked.lock().remove(name);
        }
    }

    /// Carries a call out whose attempt has ended.
    pub(super) fn go_on(self: &Arc<Self>, work: &Arc<Work>, reply: BoxFuture<Reply>) {
        let (inner, work, over) = (Arc::clone(self), Arc::clone(work), work.cancellation());
        self.tasks.spawn(async move {
            let mut reply = AssertUnwindSafe(reply).catch_unwind();
            let carried_out = async {
                tokio::select! {
                    task = work.became() => return Some((task, None)),
                    reply = &mut reply => {
                        let reply = reply.unwrap_or_else(|_| Err(panicked(&work)));
                        if let Some((task, reply)) = work.settle(reply) {
                            return Some((task, Some(reply)));
                        }
                    }
                    () = abandoned(&work) => {
                        tracing::debug!(exchange = %work.label(), method = %work.method, "its client did not come back");
                        work.give_up();
                        // The server should hear it before it is cut off.
                        drop(tokio::time::timeout(LAST_WORDS, &mut reply).await);
                        return None;
                    }
                }
                // The answer waits for the client too.
                abandoned(&work).await;
                None
            };
            let became = tokio::select! {
                became = carried_out => became,
                () = over.cancelled() => None,
            };
            if let Some((task, replied)) = became {
                let label = Arc::clone(&work);
                let reply: BoxFuture<Reply> = match replied {
                    Some(reply) => Box::pin(std::future::ready(reply)),
                    None => Box::pin(reply.map(move |reply| reply.unwrap_or_else(|_| Err(panicked(&label))))),
                };
                return inner.carried_out(work, task, reply).await;
            }
            inner.unpark(&work);
            // For an attempt that came at the last moment.
            drop(work.settle(Err(RpcError::of(Reason::TimedOut, "The client came back too late"))));
            work.close();
        });
    }
}

/// What a server has to end a call whose client did not come back.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(1);

/// Resolves when a call has waited for its client for too long.
async fn abandoned(work: &Work) {
    loop {
        let until = work.state.lock().parked_until;
        match until {
            Some(until) if until <= Instant::now() => return,
            Some(until) => tokio::time::sleep_until(until).await,
            None => tokio::time::sleep(work.limits.ask_timeout).await,
        }
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

/// An attempt as long as it is being answered.
pub(super) struct Running(Arc<Inner>);

impl Running {
    fn new(inner: &Arc<Inner>) -> Result<Self, Error> {
        let running = inner.running.fetch_add(1, Ordering::Relaxed);
        let guard = Self(Arc::clone(inner));
        let limit = inner.limits.max_running;
        if running >= limit {
            let message = "Too many requests are being answered; try again later";
            return Err(Error::new(Reason::TooManyRequests, message).with("limit", limit));
        }
        Ok(guard)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A call as long as it stands in the list.
pub(super) struct Listed {
    inner: Arc<Inner>,
    key: (u64, As),
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut listed = self.inner.listed.lock();
        listed.remove(&self.key);
        if listed.is_empty() {
            self.inner.idle.notify_waiters();
        }
    }
}
