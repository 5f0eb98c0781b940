//! The two wrappers around a server that hold calls to their limits.
//!
//! A request that passes at once is handed on as it is: a few atomics, and nothing is allocated unless it takes a slot. One that has
//! to wait does so in its own future, so it counts as running, and ends when it is withdrawn. Room that a wrapper took for a request that
//! it refuses itself is given back. A request that the inner wrapper refuses was a call all the same: it counts for its caller.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_protocol::{Error, Method, Notification, Reason, Reply, RpcError, params};
use tenure_session::backend::{Backend, Call, Link, Open, Opened, Responder};
use tenure_session::port::BoxFuture;
use tenure_session::rate::{Quotas, RateCell, Sharers, Stopwatch, Ticks};
use tenure_session::{Principal, forward_link, forward_responder};

use super::fair::FairQueue;
use super::principals::{self, OfPrincipal, PrincipalLimits, Principals, of_notifications};
use super::settings::CallLimitSettings;
use super::tools::ToolLimits;
use super::verdict::{Reserved, refused, slot};

/// Limits of calls, with all that is remembered for them. Cheap to clone.
#[derive(Clone)]
pub struct CallLimits(Arc<Inner>);

struct Inner {
    settings: CallLimitSettings,
    principals: Principals,
    tools: ToolLimits,
    quotas: OnceLock<Quotas>,
    /// Principals and tools are limited in all nodes together; a session has one node.
    nodes: Sharers,
    clock: Stopwatch,
    sessions: AtomicU64,
    dropped: AtomicU64,
}

impl CallLimits {
    /// These limits.
    pub fn new(settings: CallLimitSettings) -> Self {
        let (principals, tools) = (Principals::new(), ToolLimits::new(&settings));
        Self(Arc::new(Inner {
            settings,
            principals,
            tools,
            quotas: OnceLock::new(),
            nodes: Sharers::default(),
            clock: Stopwatch::start(),
            sessions: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }))
    }

    /// How many nodes divide the rates of principals and tools; one until that is set.
    pub fn nodes(&self) -> &Sharers {
        &self.0.nodes
    }

    /// Counts the calls of a day and of a month here. Called once, before the first call.
    #[must_use]
    pub fn with_quotas(self, quotas: Quotas) -> Self {
        drop(self.0.quotas.set(quotas));
        self
    }

    /// Puts the limits of callers in front of a server. Without limits it returns the server itself.
    pub fn in_front(&self, backend: Arc<dyn Backend>) -> Arc<dyn Backend> {
        match self.0.settings.limits_callers() {
            true => Arc::new(Limited { inner: backend, guard: Guard::Callers(Arc::clone(&self.0)) }),
            false => backend,
        }
    }

    /// Puts the limits of tools and of this server right in front of the server. Without limits it returns the server itself.
    pub fn in_front_of_server(&self, backend: Arc<dyn Backend>, name: Option<&str>) -> Arc<dyn Backend> {
        let settings = &self.0.settings;
        let most = settings.of_server(name);
        if most.is_none() && !settings.limits_tools() {
            return backend;
        }
        let queue = most.map(|most| FairQueue::new(most, settings.queue).weighing(&settings.grants));
        let server = OfServer { limits: Arc::clone(&self.0), name: name.map(Box::from), queue };
        Arc::new(Limited { inner: backend, guard: Guard::Server(Arc::new(server)) })
    }

    /// The remaining calls of principals: of one, or of those that called lately, at most `limit`.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn show(&self, principal: Option<&Principal>, limit: usize) -> Vec<PrincipalLimits> {
        let Inner { settings, principals, quotas, clock, .. } = &*self.0;
        let named = match principal {
            Some(principal) => vec![principal.clone()],
            None => principals.table.some(limit).into_iter().map(|(principal, _)| principal).collect(),
        };
        let mut shown = Vec::with_capacity(named.len());
        for principal in named {
            shown.push(principals::left(settings, principals, quotas.get(), (&principal, clock.now())).await);
        }
        shown.sort_by(|one, other| one.principal.cmp(&other.principal));
        shown
    }

    /// Forgets callers without counts, and writes the counts of quotas.
    ///
    /// # Cancel safety
    /// As for [`Quotas::flush`].
    pub async fn tend(&self) {
        let now = self.0.clock.now();
        self.0.principals.table.sweep(now);
        self.0.tools.sweep(now);
        if let Some(quotas) = self.0.quotas.get()
            && let Err(error) = quotas.flush().await
        {
            tracing::warn!(%error, "the counts of quotas could not be written; trying again");
        }
    }

    /// How many principals are remembered.
    pub fn count(&self) -> usize {
        self.0.principals.table.count()
    }

    /// How many notifications were dropped.
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for CallLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallLimits").field("principals", &self.count()).finish_non_exhaustive()
    }
}

/// A server with limits in front of it.
struct Limited<S: ?Sized> {
    inner: Arc<S>,
    guard: Guard,
}

/// Which limits a wrapper holds calls to.
#[derive(Clone)]
enum Guard {
    Callers(Arc<Inner>),
    Server(Arc<OfServer>),
}

struct OfServer {
    limits: Arc<Inner>,
    name: Option<Box<str>>,
    queue: Option<FairQueue>,
}

/// The counters of one session.
#[derive(Default)]
struct OfSession {
    number: u64,
    requests: RateCell,
    notifications: RateCell,
    /// Its principal, so that it need not be looked up for every request.
    principal: Mutex<Option<(Principal, Arc<OfPrincipal>)>>,
}

impl Backend for Limited<dyn Backend> {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let (opening, guard) = (self.inner.open(open), self.guard.clone());
        Box::pin(async move {
            let Opened { link, result } = opening.await?;
            let number = guard.limits().sessions.fetch_add(1, Ordering::Relaxed) + 1;
            let session = Arc::new(OfSession { number, ..OfSession::default() });
            Ok(Opened { link: Box::new(LimitedLink { inner: link.into(), guard, session }), result })
        })
    }

    fn responder(self: Arc<Self>) -> Option<Arc<dyn Responder>> {
        let inner = Arc::clone(&self.inner).responder()?;
        Some(Arc::new(Limited { inner, guard: self.guard.clone() }))
    }
}

struct LimitedLink {
    inner: Arc<dyn Link>,
    guard: Guard,
    session: Arc<OfSession>,
}

impl Link for LimitedLink {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        let inner = Arc::clone(&self.inner);
        self.guard.call(Some(&self.session), call, move |call| inner.call(call))
    }

    fn notify(&self, notification: Notification) {
        if self.guard.lets_through(&self.session, &notification) {
            self.inner.notify(notification);
        }
    }

    forward_link!(inner);
}

impl Responder for Limited<dyn Responder> {
    fn respond(&self, call: Call) -> BoxFuture<Reply> {
        let inner = Arc::clone(&self.inner);
        self.guard.call(None, call, move |call| inner.respond(call))
    }

    forward_responder!(inner);
}

/// The origin of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// A client's.
    Clients,
    /// A client's that was admitted once already, and runs again.
    Again,
    /// One that nothing limits.
    Free,
}

pub(super) fn whose(call: &Call) -> Whose {
    let is_free = call.context.is_our_own()
        || matches!(call.request.method, Method::Ping | Method::Initialize | Method::Discover);
    match call.context.caller().transport {
        _ if is_free => Whose::Free,
        "wake" | "task" => Whose::Again,
        _ => Whose::Clients,
    }
}

impl Guard {
    fn limits(&self) -> &Arc<Inner> {
        match self {
            Self::Callers(limits) => limits,
            Self::Server(server) => &server.limits,
        }
    }

    fn call(
        &self,
        session: Option<&Arc<OfSession>>,
        call: Call,
        pass: impl FnOnce(Call) -> BoxFuture<Reply> + Send + 'static,
    ) -> BoxFuture<Reply> {
        match (self, whose(&call)) {
            (_, Whose::Free) | (Self::Callers(_), Whose::Again) => pass(call),
            (Self::Callers(limits), Whose::Clients) => limits.caller(session, call, pass),
            (Self::Server(server), whose) => {
                server.call(session.map(|session| session.number), whose, call, pass)
            }
        }
    }

    /// Whether a notification is passed on. It cannot be answered, so it is dropped beyond its limit.
    fn lets_through(&self, session: &OfSession, notification: &Notification) -> bool {
        let Self::Callers(limits) = self else { return true };
        if matches!(notification.method, Method::Cancelled | Method::Initialized) {
            return true;
        }
        let (settings, now) = (&limits.settings, limits.clock.now());
        let is_within = settings
            .session
            .is_none_or(|rate| session.notifications.check(&of_notifications(rate), now, 1).is_ok());
        // A session that has not called anything has not told its principal, and has its own limit.
        let principal = session.principal.lock().as_ref().map(|(_, principal)| Arc::clone(principal));
        let is_within = is_within
            && principal.is_none_or(|principal| {
                let rate = principal.rate.map(of_notifications).map(|rate| rate.among(limits.nodes.count()));
                rate.is_none_or(|rate| principal.notifications.check(&rate, now, 1).is_ok())
            });
        if !is_within {
            limits.dropped.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(method = %notification.method, "dropped a notification beyond the limit");
        }
        is_within
    }
}

impl Inner {
    fn principal(
        &self,
        session: Option<&Arc<OfSession>>,
        principal: &Principal,
        now: Ticks,
    ) -> Arc<OfPrincipal> {
        let Some(session) = session else { return self.principals.of(&self.settings, principal, now) };
        let mut known = session.principal.lock();
        match &*known {
            Some((name, found)) if name == principal => Arc::clone(found),
            _ => {
                let found = self.principals.of(&self.settings, principal, now);
                *known = Some((principal.clone(), Arc::clone(&found)));
                found
            }
        }
    }

    fn caller(
        self: &Arc<Self>,
        session: Option<&Arc<OfSession>>,
        call: Call,
        pass: impl FnOnce(Call) -> BoxFuture<Reply> + Send + 'static,
    ) -> BoxFuture<Reply> {
        let (settings, now) = (&self.settings, self.clock.now());
        let principal = &call.context.caller().principal;
        let own = self.principal(session, principal, now);
        let wait = match reserve(settings, &own, session.map(Arc::as_ref), (now, self.nodes.count())) {
            Ok(wait) => wait,
            Err(error) => return refuse(settings, &call, &error),
        };
        let is_listen = call.request.method == Method::Listen;
        let queue = own.queue.as_ref().filter(|_| !is_listen);
        let quotas = self.quotas.get().filter(|_| call.request.method == Method::ToolsCall);
        if wait.is_zero() {
            let slot = queue.map(FairQueue::enter_now);
            // Counted last, so that a call which is refused elsewhere is not counted.
            let day = match &slot {
                Some(None) => None,
                Some(Some(_)) | None => quotas.map_or(Some(Ok(())), |quotas| quotas.count_now(principal)),
            };
            match (slot.flatten(), day) {
                (_, Some(Err(error))) => return refuse(settings, &call, &error),
                (None, Some(Ok(()))) => return pass(call),
                (Some(slot), Some(Ok(()))) => return holding(slot, pass(call)),
                (_, None) => {}
            }
        }
        let (limits, queue, number) =
            (Arc::clone(self), queue.cloned(), session.map_or(0, |session| session.number));
        let (principal, is_counted) = (principal.clone(), quotas.is_some());
        let admitted = async move {
            tokio::time::sleep(wait).await;
            let patience = limits.settings.max_wait.saturating_sub(wait);
            let slot = match &queue {
                Some(queue) => Some(slot(queue, (&principal, number), Some(patience), "principal").await?),
                None => None,
            };
            if let Some(quotas) = limits.quotas.get().filter(|_| is_counted) {
                quotas.count(&principal).await?;
            }
            Ok(slot)
        };
        when(admitted, settings, call, pass)
    }
}

impl OfServer {
    fn call(
        self: &Arc<Self>,
        session: Option<u64>,
        whose: Whose,
        call: Call,
        pass: impl FnOnce(Call) -> BoxFuture<Reply> + Send + 'static,
    ) -> BoxFuture<Reply> {
        let Inner { settings, tools, clock, nodes, .. } = &*self.limits;
        let principal = &call.context.caller().principal;
        let (mut queues, mut wait) = (Vec::new(), Duration::ZERO);
        if call.request.method == Method::ToolsCall && whose == Whose::Clients && settings.limits_tools() {
            let (now, name) = (clock.now(), params::tool_name(call.request.params.as_ref()));
            let path = tools.path(settings, (self.name.as_deref(), name.as_deref()), principal, now);
            wait = match tools.reserve(&path, (now, nodes.count()), settings) {
                Ok(reserved) => reserved.wait,
                Err(error) => return refuse(settings, &call, &error),
            };
            queues = path.queues;
        }
        if call.request.method != Method::Listen {
            queues.extend(self.queue.clone().map(|queue| (queue, "backend")));
        }
        if wait.is_zero() {
            let slots: Option<Vec<_>> = queues.iter().map(|(queue, _)| queue.enter_now()).collect();
            match slots {
                Some(slots) if slots.is_empty() => return pass(call),
                Some(slots) => return holding(slots, pass(call)),
                None => {}
            }
        }
        let (principal, max_wait) = (principal.clone(), settings.max_wait);
        let admitted = async move {
            let until = tokio::time::Instant::now() + max_wait;
            tokio::time::sleep(wait).await;
            let mut slots = Vec::with_capacity(queues.len());
            for (queue, per) in &queues {
                let left = until.saturating_duration_since(tokio::time::Instant::now());
                // A request that runs again was admitted before; it waits as long as its own time allows.
                let patience = (whose == Whose::Clients).then_some(left);
                slots.push(slot(queue, (&principal, session.unwrap_or_default()), patience, per).await?);
            }
            Ok(slots)
        };
        when(admitted, settings, call, pass)
    }
}

/// Takes room for a request of a caller. Returns how long it has to wait for it.
fn reserve(
    settings: &CallLimitSettings,
    principal: &OfPrincipal,
    session: Option<&OfSession>,
    (now, nodes): (Ticks, u32),
) -> Result<Duration, Error> {
    let mut reserved = Reserved::default();
    if let Some(rate) = &principal.rate {
        reserved.take(&principal.requests, (*rate, nodes), now, settings.max_wait, "principal")?;
    }
    if let (Some(rate), Some(session)) = (&settings.session, session) {
        reserved.take(&session.requests, (*rate, 1), now, settings.max_wait, "session")?;
    }
    Ok(reserved.wait)
}

fn refuse(settings: &CallLimitSettings, call: &Call, error: &Error) -> BoxFuture<Reply> {
    let reply = refused(error, call, settings.over_limit);
    Box::pin(std::future::ready(reply))
}

/// Holds slots as long as a call runs.
fn holding<S: Send + 'static>(slots: S, reply: BoxFuture<Reply>) -> BoxFuture<Reply> {
    Box::pin(async move {
        let reply = reply.await;
        drop(slots);
        reply
    })
}

/// Passes a call on when it is admitted, unless its client withdraws it meanwhile.
fn when<S: Send + 'static>(
    admitted: impl Future<Output = Result<S, Error>> + Send + 'static,
    settings: &CallLimitSettings,
    call: Call,
    pass: impl FnOnce(Call) -> BoxFuture<Reply> + Send + 'static,
) -> BoxFuture<Reply> {
    let (withdrawn, over_limit) = (call.context.cancellation(), settings.over_limit);
    Box::pin(async move {
        match withdrawn.run_until_cancelled(admitted).await {
            Some(Ok(slots)) => {
                let reply = pass(call).await;
                drop(slots);
                reply
            }
            Some(Err(error)) => refused(&error, &call, over_limit),
            None => Err(RpcError::of(Reason::Cancelled, "The request was withdrawn")),
        }
    })
}
