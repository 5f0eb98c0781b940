//! One session: its state behind a short lock, and what others may read of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tenure_protocol::params::{self, LogLevel};
use tenure_protocol::{Error, Method, Notification, RawJson, Reason, RequestId, Revision, RpcError};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backend::Link;
use crate::call::Collect;
use crate::counts::Seat;
use crate::id::{Position, Principal, Route, SessionId, SessionKey, StreamId};
use crate::port::clock::Time;
use crate::port::store::{Epoch, Keep, Kept, Version};
use crate::record::End;
use crate::session::ask::Ask;
use crate::session::deadline::Due;
use crate::session::drain::{Hints, Stage};
use crate::session::event_id::{EventId, EventNames, EventSecret};
use crate::session::idle_ttl::IdleTtl;
use crate::session::phase::{Phase, Step};
use crate::session::relink;
use crate::session::rules::{self, Heard};
use crate::session::sessions::Inner;
use crate::session::settings::Settings;
use crate::session::share::Held;
use crate::session::stream::{Outbox, Stream};

/// The longest that a session is left alone, however far its next deadline is.
const MAX_REST: Duration = Duration::from_secs(24 * 60 * 60);

/// One legacy-era conversation between a client and a server.
pub struct Session {
    pub(super) id: SessionId,
    pub(super) key: SessionKey,
    pub(super) names: EventNames,
    pub(super) label: Box<str>,
    pub(super) owner: Principal,
    pub(super) route: Route,
    pub(super) created: Time,
    pub(super) epoch: Epoch,
    last_used: AtomicU64,
    /// The last use that was written down, or is about to be.
    saved_use: AtomicU64,
    /// The idle time in force in ms, `u64::MAX` for none. Follows `State::settings`, and is here because every use looks at it.
    pub(super) idle_ms: AtomicU64,
    /// Nothing was heard of the client since `initialize`; see `handshake`. Changed under the lock of the state only.
    pub(super) is_unheard: AtomicBool,
    /// Up to where events of the standalone stream were delivered, as it was last written down.
    pub(super) saved_delivery: AtomicU64,
    pub(super) inner: Arc<Inner>,
    /// Taken by whoever writes the record, so that writes do not overtake each other.
    pub(super) writing: tokio::sync::Semaphore,
    /// The link was lost, and there is no other yet, or its server does not know yet what the last one knew.
    /// Changed under the lock of the state only.
    pub(super) unlinked: AtomicBool,
    /// It was noted that the client does not say its revision.
    noted_unversioned: AtomicBool,
    pub(super) state: Mutex<State>,
}

pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) revision: Revision,
    pub(super) link: Option<Arc<dyn Link>>,
    /// The number of the link, and of the last one that was lost.
    pub(super) link_number: u64,
    pub(super) link_lost: u64,
    /// Another link is being opened in place of one that was lost.
    pub(super) relinking: Option<watch::Receiver<relink::Outcome>>,
    pub(super) initialize: RawJson,
    pub(super) initialize_result: RawJson,
    pub(super) end: Option<End>,
    /// The process stops, and what is open is left to the next one: nothing more is put on a stream here.
    pub(super) left: bool,
    /// Which tools may be called twice, as far as a stop has asked.
    pub(super) hints: Hints,
    /// What is answered to requests that were given up on from our side.
    pub(super) settled: Option<RpcError>,
    /// Requests of the client that wait for their answer.
    pub(super) calls: HashMap<RequestId, InFlight, RandomState>,
    pub(super) next_call: u64,
    /// Backend futures that exist, also of requests that were withdrawn; bounded by `max_pending`.
    pub(super) running: usize,
    /// Requests of the server that wait for the client's answer.
    pub(super) asks: HashMap<u64, Ask, RandomState>,
    pub(super) next_ask: u64,
    pub(super) streams: HashMap<StreamId, Stream, RandomState>,
    /// Request streams that wait for a response.
    pub(super) open_streams: usize,
    pub(super) next_stream: u32,
    pub(super) next_reader: u64,
    pub(super) outbox: Outbox,
    pub(super) kept: Kept,
    /// The log lacks something of some stream; see `backlog`.
    pub(super) log_lags: bool,
    /// When the log is tried again, by a clock that cannot be set.
    pub(super) log_again: Option<Instant>,
    /// Some note is out of date, and the next append renews it.
    pub(super) renew_notes: bool,
    /// The last events could not be logged; said once, not for each.
    pub(super) unlogging: bool,
    pub(super) trimming: bool,
    /// No trim before this: the last one failed. By a clock that cannot be set, since the log is bounded by trims.
    pub(super) trim_again: Option<Instant>,
    pub(super) log_level: Option<LogLevel>,
    pub(super) subscriptions: BTreeSet<Box<str>>,
    pub(super) settings: Settings,
    pub(super) version: Version,
    /// A task is about to write the record.
    pub(super) saving: bool,
    pub(super) unsaved: bool,
    pub(super) seat: Option<Seat>,
    /// What it takes from the share of the client that began or woke it.
    pub(super) held: Option<Box<Held>>,
    /// Where the session stands in the deadline queue.
    pub(super) due: Option<Instant>,
    pub(super) requests: u64,
    pub(super) errors: u64,
}

/// A request of the client that waits for its answer.
pub(super) struct InFlight {
    /// Tells two requests apart that use the same id one after the other.
    pub(super) number: u64,
    pub(super) method: Method,
    /// For the note in the log, should the request become a stream.
    pub(super) params: Option<RawJson>,
    pub(super) started: Time,
    pub(super) stream: Option<StreamId>,
    pub(super) waiter: Option<Waker>,
    pub(super) cancel: Option<CancellationToken>,
    pub(super) progressed: Option<Time>,
    /// The same by a clock that cannot be set: the time that a request may take goes by it.
    pub(super) quiet_since: Option<Instant>,
    /// The client has heard of progress up to here.
    pub(super) progress_floor: Option<f64>,
    /// The request is run once more.
    pub(super) is_again: bool,
    /// It came while the process was stopping.
    pub(super) is_late: bool,
    /// It was noted for the next process and not sent to the server.
    pub(super) is_held: bool,
    /// Whether its client can come back for the answer.
    pub(super) collect: Collect,
    /// Questions to the client that this request waits for; its own time does not run meanwhile.
    pub(super) asking: usize,
    /// Bytes of the messages about it so far.
    pub(super) said_bytes: usize,
}

/// What others may know of a request in flight.
#[derive(Clone, Debug)]
pub struct CallInfo {
    /// The client's id for it.
    pub id: RequestId,
    /// What was asked.
    pub method: Method,
    /// The tool, if one was called.
    pub tool: Option<String>,
    /// When.
    pub started: Time,
    /// When the server last reported progress, or got an answer to a question.
    pub progressed: Option<Time>,
    /// Questions to the client that it waits for.
    pub asking: usize,
    /// The stream that its answer comes on, if it became one.
    pub stream: Option<StreamId>,
    /// Whether somebody reads that stream.
    pub is_read: bool,
}

/// What operators see of a session.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// The name in logs.
    pub label: String,
    /// The hashed id.
    pub key: SessionKey,
    /// Whom it answers to.
    pub owner: Principal,
    /// The endpoint it was begun at.
    pub route: Route,
    /// The negotiated revision.
    pub revision: Revision,
    /// Its phase.
    pub phase: Phase,
    /// When it was created.
    pub created: Time,
    /// When it was last used.
    pub last_used: Time,
    /// Its version in the store.
    pub version: Version,
    /// Requests in flight.
    pub calls: Vec<CallInfo>,
    /// Streams with a reader attached.
    pub readers: usize,
    /// Events kept for resumption.
    pub events: usize,
    /// Resources the client watches.
    pub subscriptions: Vec<String>,
    /// The log level it asked for.
    pub log_level: Option<LogLevel>,
    /// Requests so far.
    pub requests: u64,
    /// Requests that ended in an error.
    pub errors: u64,
    /// What was set for it alone.
    pub settings: Settings,
}

impl Session {
    pub(super) fn new(
        inner: Arc<Inner>,
        (id, secret): (SessionId, Option<EventSecret>),
        (owner, route): (Principal, Route),
        epoch: Epoch,
        created: Time,
        state: State,
    ) -> Arc<Self> {
        let now = inner.clock.now();
        let key = id.key();
        let label = key.label().into_boxed_str();
        Arc::new(Self {
            id,
            key,
            names: EventNames::new(&key, secret),
            label,
            owner,
            route,
            created,
            epoch,
            last_used: AtomicU64::new(now.0),
            saved_use: AtomicU64::new(now.0),
            idle_ms: AtomicU64::new(in_force(state.settings.ttl, &inner)),
            is_unheard: AtomicBool::new(false),
            saved_delivery: AtomicU64::new(state.delivered()),
            inner,
            writing: tokio::sync::Semaphore::new(1),
            unlinked: AtomicBool::new(false),
            noted_unversioned: AtomicBool::new(false),
            state: Mutex::new(state),
        })
    }

    /// The secret id, for the owner.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// How its events are named.
    pub fn event_names(&self) -> EventNames {
        self.names
    }

    /// The id of the event at `position` of `stream`.
    pub(super) fn event_id(&self, stream: StreamId, position: Position) -> EventId {
        EventId::new(&self.names, stream, position)
    }

    /// The name to use in logs.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Whether the session answers to this caller at this endpoint.
    pub(super) fn is_of(&self, principal: &Principal, route: &Route) -> bool {
        self.owner == *principal && self.route == *route
    }

    /// Whom the session answers to.
    pub fn owner(&self) -> &Principal {
        &self.owner
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.state.lock().end.is_some()
    }

    /// The negotiated revision.
    pub fn revision(&self) -> Revision {
        self.state.lock().revision
    }

    /// Notes in the log that the client does not say which revision it speaks, though its revision asks for it. Said
    /// once, not for each request.
    pub fn note_unversioned(&self) {
        if self.noted_unversioned.load(Ordering::Relaxed) {
            return;
        }
        let revision = self.revision();
        if revision.names_itself() && !self.noted_unversioned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                session = %self.label, revision = revision.as_str(),
                "the client sends no MCP-Protocol-Version; the revision of its session is assumed"
            );
        }
    }

    /// Counts as use now: the idle clock starts anew. That is written down now and then, not each time.
    pub fn touch(self: &Arc<Self>) {
        self.used_now();
        if self.is_unheard() {
            self.hear_of_client(&mut self.state.lock());
        } else if self.use_lags() {
            self.save(&mut self.state.lock());
        }
    }

    /// Whether the record is too far behind the use of the session.
    fn use_lags(&self) -> bool {
        let idle = self.idle_ms.load(Ordering::Relaxed);
        idle != u64::MAX
            && self.last_used().0 >= self.saved_use.load(Ordering::Relaxed).saturating_add(idle / 8)
    }

    /// The time in force after which it expires if nobody uses it.
    pub(crate) fn idle_ttl(&self) -> Option<Duration> {
        match self.idle_ms.load(Ordering::Relaxed) {
            u64::MAX => None,
            ms => Some(Duration::from_millis(ms)),
        }
    }

    /// The settings say this from now on.
    pub(super) fn set_idle_ttl(&self, ttl: IdleTtl) {
        self.idle_ms.store(in_force(ttl, &self.inner), Ordering::Relaxed);
    }

    /// The idle clock starts anew, and whoever writes the record next writes that down.
    pub(super) fn used_now(&self) {
        self.last_used.store(self.inner.clock.now().0, Ordering::Relaxed);
    }

    /// The last use, which is about to be written down.
    pub(super) fn use_to_save(&self) -> Time {
        let last = self.last_used();
        self.saved_use.store(last.0, Ordering::Relaxed);
        last
    }

    pub(super) fn last_used(&self) -> Time {
        Time(self.last_used.load(Ordering::Relaxed))
    }

    /// What operators see.
    pub fn info(&self) -> SessionInfo {
        let state = self.state.lock();
        SessionInfo {
            label: self.label.to_string(),
            key: self.key,
            owner: self.owner.clone(),
            route: self.route.clone(),
            revision: state.revision,
            phase: state.phase,
            created: self.created,
            last_used: self.last_used(),
            version: state.version,
            calls: state
                .calls
                .iter()
                .map(|(id, call)| CallInfo {
                    id: id.clone(),
                    method: call.method.clone(),
                    tool: match call.method {
                        Method::ToolsCall => params::tool_name(call.params.as_ref()),
                        _ => None,
                    },
                    started: call.started,
                    progressed: call.progressed,
                    asking: call.asking,
                    stream: call.stream,
                    is_read: call
                        .stream
                        .and_then(|stream| state.streams.get(&stream))
                        .is_some_and(|stream| stream.reader.is_some()),
                })
                .collect(),
            readers: state.streams.values().filter(|stream| stream.reader.is_some()).count(),
            events: state.kept.events,
            subscriptions: state.subscriptions.iter().map(|uri| uri.to_string()).collect(),
            log_level: state.log_level,
            requests: state.requests,
            errors: state.errors,
            settings: state.settings.clone(),
        }
    }

    /// Takes a notification from the client.
    ///
    /// # Errors
    /// When the session is over.
    pub fn notification(self: &Arc<Self>, notification: Notification) -> Result<(), Error> {
        let mut state = self.state.lock();
        self.check_alive(&state)?;
        self.hear_of_client(&mut state);
        let heard = rules::hear(state.phase, &notification);
        let link = match heard {
            Heard::Initialized => {
                let fresh = state.phase != Phase::Initialized;
                state.step(Step::InitializedSaid, self.inner.limits.gate);
                if fresh {
                    self.save(&mut state);
                }
                state.link.clone()
            }
            Heard::Cancel(id) => {
                self.withdraw(&mut state, &id);
                None
            }
            Heard::Forward => state.link.clone(),
            Heard::Ignore(why) => {
                tracing::debug!(session = %self.label, method = %notification.method, why, "ignored a notification");
                None
            }
        };
        drop(state);
        // A request that was withdrawn may have ended its stream.
        self.flush();
        if let Some(link) = link {
            self.tell(link.as_ref(), notification);
        }
        Ok(())
    }

    pub(super) fn check_alive(&self, state: &State) -> Result<(), Error> {
        match state.end {
            None => Ok(()),
            Some(end) => Err(Error::new(end.reason(), "Session has ended")),
        }
    }

    /// The client withdraws a request: nobody waits for its answer any more.
    fn withdraw(self: &Arc<Self>, state: &mut State, id: &RequestId) {
        let Some(call) = state.calls.remove(id) else {
            tracing::debug!(session = %self.label, request = ?id, "cancellation of a request that is not in flight");
            return;
        };
        tracing::debug!(session = %self.label, request = ?id, method = %call.method, "request cancelled by its client");
        if let Some(cancel) = call.cancel {
            cancel.cancel();
        }
        if let Some(stream) = call.stream {
            self.close_share(state, stream, id);
        }
        if let Some(waiter) = call.waiter {
            waiter.wake();
        }
    }

    /// Called when the session's entry in the deadline queue comes up.
    pub(super) fn look_at_deadline(self: &Arc<Self>) {
        let now = self.inner.clock.now();
        let mut state = self.state.lock();
        // There is another entry if the last look panicked after it had made one; two would go on side by side for ever.
        if let Some(due) = state.due.take() {
            self.inner.deadlines.remove(due, Due::Session(self.id));
        }
        if state.end.is_some() {
            return;
        }
        // Work in progress and open streams are use: a quiet client that listens must not lose its session. A use that
        // lies ahead was before the clock was set back; the session would stay for as long as that.
        let is_used = state.running > 0 || state.streams.values().any(|stream| stream.reader.is_some());
        if is_used || self.last_used() > now {
            self.last_used.store(now.0, Ordering::Relaxed);
        }
        let limits = &self.inner.limits;
        let idle = self.idle_ttl().is_some_and(|ttl| now >= self.last_used().after(ttl));
        let old = limits.max_lifetime.is_some_and(|age| now >= self.created.after(age));
        if idle || old {
            drop(state);
            tracing::debug!(session = %self.label, idle, old, "session expired");
            // Its tombstone follows by itself.
            drop(self.inner.end(self, End::Expired));
            return;
        }
        let stale = state.kept.oldest.is_some_and(|oldest| now >= oldest.after(limits.event_ttl));
        let tired = limits.dormant_after.is_some_and(|quiet| now >= self.last_used().after(quiet));
        if self.use_lags() {
            self.save(&mut state);
        }
        if state.log_again.is_some_and(|again| Instant::now() >= again) {
            self.catch_log_up(&mut state);
        }
        self.schedule(&mut state, now);
        drop(state);
        self.flush();
        if stale {
            self.trim();
        }
        if tired && self.inner.stage() == Stage::Open {
            self.fall_asleep();
        }
    }

    /// Enters the session into the deadline queue at the next moment something may be due.
    pub(super) fn schedule(&self, state: &mut State, now: Time) {
        let limits = &self.inner.limits;
        let idle = self.idle_ttl().map(|ttl| self.last_used().after(ttl));
        let old = limits.max_lifetime.map(|age| self.created.after(age));
        let stale = state.kept.oldest.filter(|_| !state.trimming);
        let at = |instant: Instant| now.after(instant - Instant::now());
        let stale = stale.map(|oldest| oldest.after(limits.event_ttl).max(state.trim_again.map_or(now, at)));
        let lags = state.log_again.map(at);
        let tired = limits.dormant_after.map(|quiet| match self.last_used().after(quiet) {
            // It was due and could not be done.
            due if due <= now => now.after(quiet),
            due => due,
        });
        let Some(next) = [idle, old, stale, tired, lags].into_iter().flatten().min() else {
            return;
        };
        let next = Instant::now() + next.since(now).clamp(Duration::from_millis(1), MAX_REST);
        if state.due.is_some_and(|due| due <= next) {
            return;
        }
        if let Some(due) = state.due {
            self.inner.deadlines.remove(due, Due::Session(self.id));
        }
        state.due = Some(next);
        self.inner.deadlines.add(next, Due::Session(self.id));
    }

    pub(crate) fn keep(&self) -> Keep {
        let limits = &self.inner.limits;
        Keep {
            events: limits.max_session_events,
            bytes: limits.max_session_event_bytes,
            since: self.inner.clock.now().before(limits.event_ttl),
        }
    }
}

impl InFlight {
    /// Something was heard of it, or its client answered a question: its time runs anew.
    pub(super) fn goes_on(&mut self, now: Time) {
        self.progressed = Some(now);
        self.quiet_since = Some(Instant::now());
    }

    /// Whether the client has already heard of this progress, before the request was run once more.
    pub(super) fn repeats_progress(&mut self, params: Option<&RawJson>) -> bool {
        let Some(value) = params::progress_value(params) else { return false };
        let heard = self.progress_floor.is_some_and(|floor| value <= floor);
        if self.is_again && heard {
            return true;
        }
        self.progress_floor = Some(value);
        false
    }
}

impl State {
    pub(super) fn new(initialize: RawJson, revision: Revision, seat: Seat) -> Self {
        Self {
            phase: Phase::Initializing,
            revision,
            link: None,
            link_number: 0,
            link_lost: 0,
            relinking: None,
            initialize,
            initialize_result: RawJson::EMPTY_OBJECT,
            end: None,
            left: false,
            hints: Hints::Unknown,
            settled: None,
            calls: HashMap::default(),
            next_call: 0,
            running: 0,
            asks: HashMap::default(),
            next_ask: 0,
            streams: HashMap::default(),
            open_streams: 0,
            next_stream: 1,
            next_reader: 0,
            outbox: Outbox::default(),
            kept: Kept::default(),
            log_lags: false,
            log_again: None,
            renew_notes: false,
            unlogging: false,
            trimming: false,
            trim_again: None,
            log_level: None,
            subscriptions: BTreeSet::new(),
            settings: Settings::default(),
            version: Version(0),
            saving: false,
            unsaved: false,
            seat: Some(seat),
            held: None,
            due: None,
            requests: 0,
            errors: 0,
        }
    }

    /// The position of the last event of the standalone stream that some reader was given.
    pub(super) fn delivered(&self) -> u64 {
        self.streams.get(&StreamId::STANDALONE).map_or(0, |stream| stream.delivered.0)
    }

    /// Moves the phase on; a step that is not possible here changes nothing.
    pub(super) fn step(&mut self, step: Step, gate: crate::limits::Gate) {
        if let Some(phase) = self.phase.after(step, gate) {
            self.phase = phase;
        }
    }

    /// Whether the client said at `initialize` that it can answer `method`.
    pub(super) fn client_can(&self, method: &Method) -> bool {
        #[derive(serde::Deserialize)]
        struct Params {
            #[serde(default)]
            capabilities: serde_json::Map<String, serde_json::Value>,
        }
        let capability = match method {
            Method::SamplingCreateMessage => "sampling",
            Method::ElicitationCreate => "elicitation",
            Method::RootsList => "roots",
            _ => return true,
        };
        self.initialize.read::<Params>().is_ok_and(|params| params.capabilities.contains_key(capability))
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("label", &self.label).finish_non_exhaustive()
    }
}

/// The idle time in force in ms, `u64::MAX` for none.
fn in_force(ttl: IdleTtl, inner: &Inner) -> u64 {
    let ttl = ttl.in_force(&inner.limits);
    ttl.map_or(u64::MAX, |ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
}

/// The error of a session that is over.
pub(super) fn ended_error(end: End) -> Error {
    let how = match end {
        End::Deleted => "Session was deleted",
        End::Expired => "Session has expired",
        End::Revoked => "Session was revoked by an operator",
    };
    Error::new(end.reason(), how)
}

/// The error of a session nobody knows.
pub(super) fn unknown_error() -> Error {
    Error::new(Reason::SessionNotFound, "Session not found or expired")
}
