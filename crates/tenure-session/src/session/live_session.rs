//! One session: its state behind a short lock, and the view of it that operators get.
//!
//! Also takes the client's notifications, and keeps the session's entry in the deadline queue up to date.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tenure_protocol::params::{self, LogLevel};
use tenure_protocol::{Error, Method, Notification, RawJson, Reason, RequestId, Revision, RpcError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backend::Link;
use crate::call::{Collect, Granted};
use crate::counts::CountGuard;
use crate::figures::SessionFigures;
use crate::id::{NodeId, Position, Principal, Route, SessionId, SessionKey, StreamId};
use crate::port::clock::Time;
use crate::port::observer::Happened;
use crate::port::store::{Epoch, Keep, KeptEvents, Version};
use crate::record::EndCause;
use crate::session::ask::Ask;
use crate::session::attached::{ReaderInfo, attached};
use crate::session::claim::{Claimant, Claimed, elsewhere};
use crate::session::deadline::Due;
use crate::session::drain::{DrainStage, ToolHints};
use crate::session::event_id::{EventId, EventNames, EventSecret};
use crate::session::phase::{Phase, Step};
use crate::session::relink;
use crate::session::rules::{self, NotificationDecision};
use crate::session::sessions::SessionRuntime;
use crate::session::share::SessionCharge;
use crate::session::stream::{EventStream, Outbox};
use crate::settings::IdleTtl;
use crate::settings::Settings;
use crate::single_flight::Attempt;
use crate::usable_until::UsableUntil;

/// Longest time between two checks of a session, however far away its next deadline is.
const MAX_REST: Duration = Duration::from_secs(24 * 60 * 60);

/// Delay of the next check of a session that is due, while this node may not act.
const UNCONFIRMED_AGAIN: Duration = Duration::from_secs(1);

/// One legacy-era conversation between a client and a server.
pub struct Session {
    pub(super) id: SessionId,
    pub(super) key: SessionKey,
    pub(super) names: EventNames,
    pub(super) label: Box<str>,
    pub(super) owner: Principal,
    pub(super) route: Route,
    pub(super) created: Time,
    /// The epoch with which it was woken. Questions to the client carry it.
    pub(super) epoch: Epoch,
    /// The epoch that writes carry: that of the last claim.
    pub(super) fence: AtomicU64,
    /// A claim of this object had no answer, and may have worked.
    pub(super) claim_in_doubt: AtomicBool,
    /// Who claimed it.
    pub(super) by: Claimant,
    last_used: AtomicU64,
    /// The last use that is in the record, or is being written to it.
    saved_use: AtomicU64,
    /// The idle time in force in ms; `u64::MAX` means no limit. A copy from `SessionState::settings`, because every use
    /// reads it.
    pub(super) idle_ms: AtomicU64,
    /// The client has sent nothing since `initialize`; see `handshake_ttl`. Changed only under the state lock.
    pub(super) is_unheard: AtomicBool,
    /// Position of the last delivered event of the standalone stream, as the record has it.
    pub(super) saved_delivery: AtomicU64,
    pub(super) inner: Arc<SessionRuntime>,
    /// A task that writes the record holds the permit, so that writes do not overtake each other.
    pub(super) writing: tokio::sync::Semaphore,
    /// The link was lost, and there is no new one yet, or the new server does not yet know the log level and the
    /// subscriptions. Changed only under the state lock.
    pub(super) unlinked: AtomicBool,
    /// The warning about a missing protocol version was logged.
    noted_unversioned: AtomicBool,
    /// Until when its owner's credentials are good. Its streams end then; see `tenure-transport`.
    usable_until: UsableUntil,
    /// Read when something asks for it: it never changes.
    client_name: OnceLock<Option<Box<str>>>,
    /// What was counted of it. Locked last, and for a moment only.
    pub(super) figures: Mutex<Option<Box<SessionFigures>>>,
    pub(super) state: Mutex<SessionState>,
}

/// The requests that ended with a session, or with the process.
#[derive(Debug)]
pub(super) struct Settled {
    pub(super) error: RpcError,
    /// Their numbers. A request that its client withdrew before is not among them, and gets no answer.
    pub(super) calls: Vec<u64>,
}

pub(super) struct SessionState {
    pub(super) phase: Phase,
    pub(super) revision: Revision,
    pub(super) link: Option<Arc<dyn Link>>,
    /// Number of the current link, and of the last lost link.
    pub(super) link_number: u64,
    pub(super) link_lost: u64,
    /// A task is opening a link in place of a lost one.
    pub(super) relinking: Option<Attempt<relink::RelinkOutcome>>,
    pub(super) initialize: RawJson,
    pub(super) initialize_result: RawJson,
    pub(super) end: Option<EndCause>,
    /// The process stops and leaves open requests to the next process: no more events go on a stream here.
    pub(super) left: bool,
    /// Another node has the session, or may have it: nothing of it is shown or written here.
    pub(super) is_given_up: bool,
    /// Which tools may be called twice; asked for only during a shutdown.
    pub(super) hints: ToolHints,
    /// The requests that the session itself has given up, and the error for them.
    pub(super) settled: Option<Settled>,
    /// Requests that an operator has cancelled before they became streams, by their numbers: their connections take the error.
    pub(super) cancelled: Vec<(u64, RpcError)>,
    /// Requests of the client that wait for their answer.
    pub(super) calls: HashMap<RequestId, InFlight, RandomState>,
    pub(super) next_call: u64,
    /// Backend futures that exist, including those of cancelled requests; at most `max_pending`.
    pub(super) running: usize,
    /// The number of `UseGuard`s.
    pub(super) guards: usize,
    /// Requests of the server that wait for the client's answer.
    pub(super) asks: HashMap<u64, Ask, RandomState>,
    pub(super) next_ask: u64,
    pub(super) streams: HashMap<StreamId, EventStream, RandomState>,
    /// Request streams that wait for a response.
    pub(super) open_streams: usize,
    pub(super) next_stream: u32,
    pub(super) next_reader: u64,
    pub(super) outbox: Outbox,
    pub(super) kept: KeptEvents,
    /// The log lacks events, ends or notes of some stream; see `backlog`.
    pub(super) log_lags: bool,
    /// Time of the next attempt to write the backlog, on the monotonic clock.
    pub(super) log_again: Option<Instant>,
    /// Some note is outdated, and the next append renews it.
    pub(super) renew_notes: bool,
    /// The last append failed; the error is logged once, not for each event.
    pub(super) unlogging: bool,
    pub(super) trimming: bool,
    /// No trim before this time, because the last one failed. Monotonic clock, because trims bound the log.
    pub(super) trim_again: Option<Instant>,
    pub(super) log_level: Option<LogLevel>,
    pub(super) subscriptions: BTreeSet<Box<str>>,
    /// The node of a cluster at which its client heard of all changes so far.
    pub(super) heard_at: Option<NodeId>,
    pub(super) settings: Settings,
    pub(super) version: Version,
    /// A task is about to write the record.
    pub(super) saving: bool,
    pub(super) unsaved: bool,
    pub(super) count_guard: Option<CountGuard>,
    /// Memory that is charged to the client that created or woke the session.
    pub(super) charge: Option<Box<SessionCharge>>,
    /// The session's entry in the deadline queue.
    pub(super) due: Option<Instant>,
    pub(super) requests: u64,
    pub(super) errors: u64,
}

/// A request of the client that waits for its answer.
pub(super) struct InFlight {
    /// Distinguishes two requests that use the same id one after the other.
    pub(super) number: u64,
    pub(super) method: Method,
    /// For the note in the log, if the request becomes a stream.
    pub(super) params: Option<RawJson>,
    /// Those of its caller, for the note and for when it runs again.
    pub(super) scopes: Granted,
    pub(super) started: Time,
    pub(super) stream: Option<StreamId>,
    pub(super) waiter: Option<Waker>,
    pub(super) cancel: Option<CancellationToken>,
    pub(super) progressed: Option<Time>,
    /// The same time on the monotonic clock, which the request timeout uses.
    pub(super) quiet_since: Option<Instant>,
    /// Highest progress value that the client has received.
    pub(super) progress_floor: Option<f64>,
    /// The request runs a second time.
    pub(super) is_again: bool,
    /// It arrived while the process was stopping.
    pub(super) is_late: bool,
    /// It was noted for the next process and not sent to the server.
    pub(super) is_held: bool,
    /// Whether its client can come back for the answer.
    pub(super) collect: Collect,
    /// Open questions to the client; the request timeout is paused while there are any.
    pub(super) asking: usize,
    /// Bytes of all messages that the server has sent about it.
    pub(super) said_bytes: usize,
}

/// A request in flight, as operators see it.
#[derive(Clone, Debug)]
pub struct CallInfo {
    /// The client's id for it.
    pub id: RequestId,
    /// Its method.
    pub method: Method,
    /// The tool, if one was called.
    pub tool: Option<String>,
    /// When it arrived.
    pub started: Time,
    /// When the server last reported progress or received an answer to a question.
    pub progressed: Option<Time>,
    /// Questions to the client that it waits for.
    pub asking: usize,
    /// The stream that its answer comes on, if it became one.
    pub stream: Option<StreamId>,
    /// Whether a client reads that stream.
    pub is_read: bool,
}

/// A session, as operators see it.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// The name in logs.
    pub label: String,
    /// The hashed id.
    pub key: SessionKey,
    /// The principal that owns it.
    pub owner: Principal,
    /// The name that its client gave itself.
    pub client: Option<Box<str>>,
    /// The endpoint at which it was created.
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
    /// Those readers, by their streams.
    pub attached: Vec<ReaderInfo>,
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
    /// Its own metadata and idle time.
    pub settings: Settings,
    /// The tool that was called last.
    pub last_tool: Option<Box<str>>,
    /// The address that its last request came from.
    pub remote: Option<SocketAddr>,
    /// The transport of its last request.
    pub transport: Option<Box<str>>,
}

impl Session {
    pub(super) fn new(
        inner: Arc<SessionRuntime>,
        (id, secret): (SessionId, Option<EventSecret>),
        (owner, route): (Principal, Route),
        claimed: Claimed,
        created: Time,
        state: SessionState,
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
            epoch: claimed.epoch,
            fence: AtomicU64::new(claimed.epoch.0),
            claim_in_doubt: AtomicBool::new(false),
            by: claimed.by,
            last_used: AtomicU64::new(now.0),
            saved_use: AtomicU64::new(now.0),
            idle_ms: AtomicU64::new(in_force(state.settings.ttl, &inner)),
            is_unheard: AtomicBool::new(false),
            saved_delivery: AtomicU64::new(state.delivered()),
            inner,
            writing: tokio::sync::Semaphore::new(1),
            unlinked: AtomicBool::new(false),
            noted_unversioned: AtomicBool::new(false),
            usable_until: UsableUntil::default(),
            client_name: OnceLock::new(),
            figures: Mutex::default(),
            state: Mutex::new(state),
        })
    }

    /// The secret id, for the owner.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// The hash of its id.
    pub fn key(&self) -> &SessionKey {
        &self.key
    }

    /// Until when the credentials that its owner has shown are good. The transport notes and asks it.
    pub fn usable_until(&self) -> &UsableUntil {
        &self.usable_until
    }

    /// The event-id scheme of this session.
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

    /// Tells the observer what happened to the session. The caller holds no lock.
    pub(super) fn tell_observer(&self, what: Happened<'_>) {
        let name = (&*self.label, &self.key);
        self.inner.hub.observer.tell_of(name, &self.owner, self.route.name(), what);
    }

    /// The name that the client gave itself.
    pub fn client_name(&self) -> Option<&str> {
        self.client_name.get_or_init(|| client_name(&self.state.lock().initialize)).as_deref()
    }

    /// Whether the session belongs to this principal at this endpoint.
    pub(super) fn is_of(&self, principal: &Principal, route: &Route) -> bool {
        self.owner.is_same_client(principal) && self.route == *route
    }

    /// Whether it has ended here.
    pub fn is_over(&self) -> bool {
        let state = self.state.lock();
        state.end.is_some() || state.is_given_up
    }

    /// Checks that it is still this node's.
    ///
    /// # Errors
    /// When it was given up: another node has it, or may have it.
    pub fn check_is_here(&self) -> Result<(), Error> {
        if self.state.lock().is_given_up { Err(elsewhere()) } else { Ok(()) }
    }

    /// The negotiated revision.
    pub fn revision(&self) -> Revision {
        self.state.lock().revision
    }

    /// Logs a warning if the client's revision requires `MCP-Protocol-Version`, which the client does not send. Once
    /// per session, not for each request.
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

    /// Restarts the idle time. The record is updated from time to time, not on every use.
    pub fn touch(self: &Arc<Self>) {
        self.used_now();
        if self.is_unheard() {
            self.hear_of_client(&mut self.state.lock());
        } else if self.use_lags() {
            self.save(&mut self.state.lock());
        }
    }

    /// Whether the last use in the record is too old.
    fn use_lags(&self) -> bool {
        let idle = self.idle_ms.load(Ordering::Relaxed);
        idle != u64::MAX
            && self.last_used().0 >= self.saved_use.load(Ordering::Relaxed).saturating_add(idle / 8)
    }

    /// The idle time in force, after which an unused session expires.
    pub(crate) fn idle_ttl(&self) -> Option<Duration> {
        match self.idle_ms.load(Ordering::Relaxed) {
            u64::MAX => None,
            ms => Some(Duration::from_millis(ms)),
        }
    }

    /// Puts an idle time from the settings into force.
    pub(super) fn set_idle_ttl(&self, ttl: IdleTtl) {
        self.idle_ms.store(in_force(ttl, &self.inner), Ordering::Relaxed);
    }

    /// Restarts the idle time. The next write of the record includes it.
    pub(super) fn used_now(&self) {
        self.last_used.store(self.inner.clock.now().0, Ordering::Relaxed);
    }

    /// The last use, for a caller that writes it to the record now.
    pub(super) fn use_to_save(&self) -> Time {
        let last = self.last_used();
        self.saved_use.store(last.0, Ordering::Relaxed);
        last
    }

    pub(super) fn last_used(&self) -> Time {
        Time(self.last_used.load(Ordering::Relaxed))
    }

    /// The session as operators see it.
    pub fn info(&self) -> SessionInfo {
        // Before the lock, which it takes itself.
        let client = self.client_name().map(Box::from);
        let (last_tool, remote, transport) = self.last_request();
        let state = self.state.lock();
        SessionInfo {
            label: self.label.to_string(),
            key: self.key,
            owner: self.owner.clone(),
            client,
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
            attached: attached(&state.streams),
            events: state.kept.events,
            subscriptions: state.subscriptions.iter().map(|uri| uri.to_string()).collect(),
            log_level: state.log_level,
            requests: state.requests,
            errors: state.errors,
            settings: state.settings.clone(),
            last_tool,
            remote,
            transport,
        }
    }

    /// Takes a notification from the client.
    ///
    /// # Errors
    /// When the session has ended.
    pub fn notification(self: &Arc<Self>, notification: Notification) -> Result<(), Error> {
        if !self.may_act() {
            return Err(elsewhere());
        }
        self.take_notification(notification)
    }

    /// As `notification`, for a caller that has asked whether this node may act.
    pub(super) fn take_notification(self: &Arc<Self>, notification: Notification) -> Result<(), Error> {
        let mut state = self.state.lock();
        self.check_alive(&state)?;
        self.hear_of_client(&mut state);
        let heard = rules::admit_notification(state.phase, &notification);
        let link = match heard {
            NotificationDecision::Initialized => {
                let fresh = state.phase != Phase::Initialized;
                state.step(Step::InitializedSaid, self.inner.limits.gate);
                if fresh {
                    self.save(&mut state);
                }
                state.link.clone()
            }
            NotificationDecision::Cancel(id) => {
                self.withdraw(&mut state, &id);
                None
            }
            NotificationDecision::Forward => state.link.clone(),
            NotificationDecision::Ignore(why) => {
                tracing::debug!(session = %self.label, method = %notification.method, why, "ignored a notification");
                None
            }
        };
        drop(state);
        // A cancelled request may have ended its stream.
        self.flush();
        if let Some(link) = link {
            self.tell(link.as_ref(), notification);
        }
        Ok(())
    }

    pub(super) fn check_alive(&self, state: &SessionState) -> Result<(), Error> {
        match state.end {
            None if state.is_given_up => Err(elsewhere()),
            // It is being given to the other nodes.
            None if state.left && self.inner.roster.is_some() => Err(elsewhere()),
            None => Ok(()),
            Some(end) => Err(Error::new(end.reason(), "Session has ended")),
        }
    }

    /// Removes a request that the client has cancelled.
    fn withdraw(self: &Arc<Self>, state: &mut SessionState, id: &RequestId) {
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
        // If the last check panicked after it had added an entry, there are two, and both would stay for ever.
        if let Some(due) = state.due.take() {
            self.inner.deadlines.remove(due, Due::Session(self.id));
        }
        if state.end.is_some() || state.is_given_up {
            return;
        }
        // Running requests and open streams count as use: a client that only listens must not lose its session. A last
        // use in the future means that the clock was set back; without a correction the session would live too long.
        let has_reader = state.streams.values().any(|stream| stream.reader.is_some());
        let is_used = state.running > 0 || state.guards > 0 || has_reader;
        if is_used || self.last_used() > now {
            self.last_used.store(now.0, Ordering::Relaxed);
        }
        let limits = &self.inner.limits;
        let idle = self.idle_ttl().is_some_and(|ttl| now >= self.last_used().after(ttl));
        let old = limits.max_lifetime.is_some_and(|age| now >= self.created.after(age));
        if (idle || old) && !self.may_act() {
            // Another node may have it, and know of later uses.
            let again = Instant::now() + UNCONFIRMED_AGAIN;
            state.due = Some(again);
            self.inner.deadlines.add(again, Due::Session(self.id));
            return;
        }
        if idle || old {
            drop(state);
            tracing::debug!(session = %self.label, idle, old, "session expired");
            // A tracked task writes the tombstone.
            drop(self.inner.end(self, EndCause::Expired));
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
        if tired && self.inner.stage() == DrainStage::Open {
            self.fall_asleep();
        }
    }

    /// Enters the session into the deadline queue at its next possible deadline.
    pub(super) fn schedule(&self, state: &mut SessionState, now: Time) {
        if state.is_given_up {
            return;
        }
        let limits = &self.inner.limits;
        let idle = self.idle_ttl().map(|ttl| self.last_used().after(ttl));
        let old = limits.max_lifetime.map(|age| self.created.after(age));
        let stale = state.kept.oldest.filter(|_| !state.trimming);
        let at = |instant: Instant| now.after(instant - Instant::now());
        let stale = stale.map(|oldest| oldest.after(limits.event_ttl).max(state.trim_again.map_or(now, at)));
        let lags = state.log_again.map(at);
        let tired = limits.dormant_after.map(|quiet| match self.last_used().after(quiet) {
            // It was due, but the session could not go dormant.
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
    /// Restarts the timeout: the server reported progress, or the client answered a question.
    pub(super) fn goes_on(&mut self, now: Time) {
        self.progressed = Some(now);
        self.quiet_since = Some(Instant::now());
    }

    /// Whether the client has received this progress already, from an earlier run of the request.
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

impl SessionState {
    pub(super) fn new(initialize: RawJson, revision: Revision, count_guard: CountGuard) -> Self {
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
            is_given_up: false,
            hints: ToolHints::Unknown,
            settled: None,
            cancelled: Vec::new(),
            calls: HashMap::default(),
            next_call: 0,
            running: 0,
            guards: 0,
            asks: HashMap::default(),
            next_ask: 0,
            streams: HashMap::default(),
            open_streams: 0,
            next_stream: 1,
            next_reader: 0,
            outbox: Outbox::default(),
            kept: KeptEvents::default(),
            log_lags: false,
            log_again: None,
            renew_notes: false,
            unlogging: false,
            trimming: false,
            trim_again: None,
            log_level: None,
            subscriptions: BTreeSet::new(),
            heard_at: None,
            settings: Settings::default(),
            version: Version(0),
            saving: false,
            unsaved: false,
            count_guard: Some(count_guard),
            charge: None,
            due: None,
            requests: 0,
            errors: 0,
        }
    }

    /// Position of the last event of the standalone stream that a reader has delivered.
    pub(super) fn delivered(&self) -> u64 {
        self.streams.get(&StreamId::STANDALONE).map_or(0, |stream| stream.delivered.0)
    }

    /// Applies a step to the phase; an impossible step changes nothing.
    pub(super) fn step(&mut self, step: Step, gate: crate::limits::Gate) {
        if let Some(phase) = self.phase.after(step, gate) {
            self.phase = phase;
        }
    }

    /// Whether the client declared in `initialize` that it can answer `method`.
    pub(super) fn client_can(&self, method: &Method) -> bool {
        #[derive(serde::Deserialize)]
        struct DeclaredCapabilities {
            #[serde(default)]
            capabilities: serde_json::Map<String, serde_json::Value>,
        }
        let capability = match method {
            Method::SamplingCreateMessage => "sampling",
            Method::ElicitationCreate => "elicitation",
            Method::RootsList => "roots",
            _ => return true,
        };
        self.initialize
            .read::<DeclaredCapabilities>()
            .is_ok_and(|params| params.capabilities.contains_key(capability))
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("label", &self.label).finish_non_exhaustive()
    }
}

/// The idle time in force in ms; `u64::MAX` means no limit.
fn in_force(ttl: IdleTtl, inner: &SessionRuntime) -> u64 {
    let ttl = ttl.in_force(&inner.limits);
    ttl.map_or(u64::MAX, |ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
}

/// The name of the client in the params of `initialize`.
fn client_name(initialize: &RawJson) -> Option<Box<str>> {
    #[derive(serde::Deserialize)]
    struct Introduction {
        #[serde(rename = "clientInfo")]
        client: Named,
    }
    #[derive(serde::Deserialize)]
    struct Named {
        name: Box<str>,
    }
    initialize.read::<Introduction>().ok().map(|said| said.client.name)
}

/// The error for a session that has ended.
pub(super) fn ended_error(end: EndCause) -> Error {
    let how = match end {
        EndCause::Deleted => "Session was deleted",
        EndCause::Expired => "Session has expired",
        EndCause::Revoked => "Session was revoked by an operator",
    };
    Error::new(end.reason(), how)
}

/// The error for an unknown session.
pub(super) fn unknown_error() -> Error {
    Error::new(Reason::SessionNotFound, "Session not found or expired")
}
