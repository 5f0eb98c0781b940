//! Wakes a dormant session: opens a new link, replays the handshake and restores the state.
//!
//! The owner's next request wakes the session. Wakes are single-flight: the first request starts a task, the others
//! wait for it, and it goes on if they all disconnect. At the end the task writes the record with the version that it
//! read at the start, so a session that was ended meanwhile does not come back. If a step fails, the record stays as it
//! was and the next request tries again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tenure_protocol::params::{self, LogLevel};
use tenure_protocol::{Error, Kind, Method, RawJson, Reason, Revision, message};

use crate::backend::{Open, Opening};
use crate::budget::Share;
use crate::call::{Fanout, Origin};
use crate::figures::TimelineEvent;
use crate::id::{NodeId, Position, Principal, Route, SessionId, SessionKey, StreamId};
use crate::port::clock::Time;
use crate::port::observer::{Happened, SessionMove};
use crate::port::store::{Expected, RecordKey, StoreError, Version};
use crate::record::{EndCause, SessionRecord, StoredSession, UnreadableRecord};
use crate::session::claim::{ClaimGuard, NotClaimed, TRIES, elsewhere};
use crate::session::deadline::Due;
use crate::session::drain::{DrainStage, draining};
use crate::session::event_id::EventSecret;
use crate::session::link::not_started;
use crate::session::live_session::{Session, SessionState, ended_error, unknown_error};
use crate::session::news::changing_lists;
use crate::session::phase::Phase;
use crate::session::recover::{OpenRequest, OpenStream};
use crate::session::sessions::{SessionRuntime, store_failed};
use crate::session::share::SessionCharge;
use crate::session::stream::EventStream;
use crate::settings::{IdleTtl, Settings};
use crate::single_flight::{Attempt, Attempting};

/// How many stream numbers are skipped: more than a session uses between two syncs of a disk.
const STREAM_LEAP: u32 = 1 << 10;

/// The result of a wake.
type WakeOutcome = Result<Arc<Session>, Arc<Error>>;

/// Sessions that are being woken, and those that are being ended or given back while they are not in memory: one step at
/// a time with each.
#[derive(Default)]
pub(super) struct Waking(Mutex<HashMap<SessionKey, Flight, RandomState>>);

/// The one step that is under way with a session that is not in memory.
struct Flight {
    work: FlightWork,
    /// The session was ended meanwhile, so the wake must fail.
    doomed: Option<EndCause>,
}

/// All requests for the session wait for it.
#[derive(Clone)]
enum FlightWork {
    Wake(Attempt<WakeOutcome>),
    /// It is ended, or given back.
    Held(Attempt<()>),
}

impl FlightWork {
    async fn wait_until_over(self) {
        match self {
            Self::Wake(attempt) => drop(attempt.outcome().await),
            Self::Held(attempt) => drop(attempt.outcome().await),
        }
    }
}

/// Keeps a session that is not in memory from being woken, ended or given back here by another task. Drop lets the
/// requests that wait look again.
pub(super) struct DormantHold {
    inner: Arc<SessionRuntime>,
    key: SessionKey,
    _over: Attempting<()>,
}

impl Drop for DormantHold {
    fn drop(&mut self) {
        self.inner.waking.0.lock().remove(&self.key);
        self.inner.stir();
    }
}

impl Waking {
    pub(super) fn contains(&self, key: &SessionKey) -> bool {
        self.0.lock().contains_key(key)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Runs `act` under the lock, so that no woken session enters the registry meanwhile.
    pub(super) fn while_no_wake_ends(&self, act: impl FnOnce()) {
        let _waking = self.0.lock();
        act();
    }
}

impl SessionRuntime {
    /// Holds a dormant session. `None` if it is in memory, or if another task has it.
    pub(super) fn try_hold(self: &Arc<Self>, key: SessionKey) -> Option<DormantHold> {
        let mut waking = self.waking.0.lock();
        if waking.contains_key(&key) || self.awake_by_key(&key).is_some() {
            return None;
        }
        let (over, attempt) = Attempting::begin();
        waking.insert(key, Flight { work: FlightWork::Held(attempt), doomed: None });
        Some(DormantHold { inner: Arc::clone(self), key, _over: over })
    }

    /// Waits until no task wakes, ends or gives back the session here.
    pub(super) async fn no_flight(&self, key: &SessionKey) {
        let work = self.waking.0.lock().get(key).map(|flight| flight.work.clone());
        if let Some(work) = work {
            work.wait_until_over().await;
        }
    }

    /// Called after a tombstone has replaced the record of a dormant session. A wake that is under way will fail. If
    /// the session has been woken since, it ends, and this returns true.
    pub(super) fn tombstone_written(self: &Arc<Self>, key: &SessionKey, end: EndCause) -> bool {
        let woken = {
            let mut waking = self.waking.0.lock();
            // Check the registry first: a session that was just woken stays in `waking` for a moment.
            let woken = self.awake_by_key(key);
            if let (None, Some(flight)) = (&woken, waking.get_mut(key)) {
                flight.doomed = Some(end);
            }
            woken
        };
        let Some(session) = woken else { return false };
        // This writes a second tombstone over the first one, which is harmless.
        drop(self.end(&session, end));
        true
    }
}

/// A session that is not in memory.
pub(super) struct Dormant {
    pub(super) key: SessionKey,
    pub(super) version: Version,
    pub(super) record: Box<SessionRecord>,
}

impl Dormant {
    pub(super) fn owner(&self) -> Principal {
        self.record.owner()
    }
}

/// Finds a session that the registry did not have, and wakes it.
pub(super) async fn find(
    inner: &Arc<SessionRuntime>,
    id: SessionId,
    principal: &Principal,
    route: &Route,
    share: Option<Share>,
) -> Result<Arc<Session>, Error> {
    // In a cluster only a node that may act can say that there is no such session.
    inner.confirmed().await?;
    let mut share = share;
    let attempt = loop {
        // Check before starting a task, so that an unknown id costs only one read of the store.
        dormant(inner, id.key(), principal, route).await?;
        if inner.stage() >= DrainStage::Holding {
            return Err(draining());
        }
        match wake_once(inner, id, principal, &mut share) {
            WakeLookup::Awake(session) if session.is_of(principal, route) => return Ok(session),
            WakeLookup::Awake(_) => return Err(unknown_error()),
            WakeLookup::Waking(attempt) => break attempt,
            WakeLookup::Held => inner.no_flight(&id.key()).await,
        }
    };
    match attempt.outcome().await {
        Some(Ok(session)) => Ok(session),
        Some(Err(error)) => Err(error.again()),
        None => Err(Error::new(Reason::Internal, "The session could not be woken")),
    }
}

/// The error for a live session of another owner. Reads the record first: the answer then takes as long, and fails in the
/// same way, as for an unknown id.
pub(super) async fn not_theirs(inner: &Arc<SessionRuntime>, key: SessionKey) -> Error {
    match inner.store.get(RecordKey::session(key)).await {
        Ok(_) => unknown_error(),
        Err(error) => store_failed(error),
    }
}

/// Reads a dormant session of this principal.
pub(super) async fn dormant(
    inner: &Arc<SessionRuntime>,
    key: SessionKey,
    principal: &Principal,
    route: &Route,
) -> Result<Dormant, Error> {
    let record = inner.store.get(RecordKey::session(key)).await.map_err(store_failed)?;
    let Some(record) = record else { return Err(unknown_error()) };
    let (version, deadline) = (record.version, record.deadline);
    match StoredSession::decode(&record.value) {
        Ok(StoredSession::Tombstone(tombstone)) if tombstone.owner().is_same_client(principal) => {
            Err(ended_error(tombstone.end))
        }
        Ok(StoredSession::Session(record))
            if record.owner().is_same_client(principal) && record.route.as_deref() == route.name() =>
        {
            let deadline = crate::settings::due(&record, deadline, &inner.limits);
            let dormant = Dormant { key, version, record };
            // A session that is being woken is in use, however long that takes.
            if deadline.is_none_or(|deadline| inner.clock.now() < deadline) || inner.waking.contains(&key) {
                return Ok(dormant);
            }
            // The sweep has not removed it yet. If the store fails here, the sweep does it later.
            drop(inner.end_dormant(&dormant, EndCause::Expired).await);
            Err(ended_error(EndCause::Expired))
        }
        Ok(_) => Err(unknown_error()),
        Err(UnreadableRecord::Newer(newer)) if !newer.may_be_of(principal, route) => Err(unknown_error()),
        Err(error) => Err(unreadable(key, error)),
    }
}

/// The error for a session whose record cannot be read.
pub(super) fn unreadable(key: SessionKey, error: UnreadableRecord) -> Error {
    let what = match &error {
        UnreadableRecord::Newer(_) => {
            tracing::warn!(session = ?key, %error, "a session's record cannot be read");
            "The session was written by a newer version of the server, which this node cannot read"
        }
        UnreadableRecord::Broken(_) => {
            tracing::error!(session = ?key, %error, "a session's record cannot be read");
            "The session cannot be read"
        }
    };
    Error::new(Reason::StoreUnavailable, what).caused_by(error)
}

/// Reads a dormant session of any principal.
pub(super) async fn any_dormant(inner: &SessionRuntime, key: SessionKey) -> Result<Option<Dormant>, Error> {
    let record = inner.store.get(RecordKey::session(key)).await.map_err(store_failed)?;
    let Some(record) = record else { return Ok(None) };
    match StoredSession::decode(&record.value) {
        Ok(StoredSession::Session(session)) => {
            Ok(Some(Dormant { key, version: record.version, record: session }))
        }
        Err(error @ UnreadableRecord::Newer(_)) => Err(unreadable(key, error)),
        Ok(StoredSession::Tombstone(_)) | Err(UnreadableRecord::Broken(_)) => Ok(None),
    }
}

/// The error for a session that ended after the caller had found it.
async fn how_it_ended(inner: &SessionRuntime, key: SessionKey) -> Error {
    match inner.store.get(RecordKey::session(key)).await {
        Ok(Some(record)) => match StoredSession::decode(&record.value) {
            Ok(StoredSession::Tombstone(tombstone)) => ended_error(tombstone.end),
            _ => unknown_error(),
        },
        Ok(None) => unknown_error(),
        Err(error) => store_failed(error),
    }
}

/// A session found in the registry, or the wake to wait for.
enum WakeLookup {
    Awake(Arc<Session>),
    Waking(Attempt<WakeOutcome>),
    /// It is being ended or given back: look again after that.
    Held,
}

fn wake_once(
    inner: &Arc<SessionRuntime>,
    id: SessionId,
    asking: &Principal,
    share: &mut Option<Share>,
) -> WakeLookup {
    let mut waking = inner.waking.0.lock();
    // Checked under the lock: a finished wake enters its session into the registry before it leaves `waking`.
    if let Some(session) = inner.awake(&id) {
        return WakeLookup::Awake(session);
    }
    let key = id.key();
    if let Some(flight) = waking.get(&key) {
        return match &flight.work {
            FlightWork::Wake(attempt) => WakeLookup::Waking(attempt.clone()),
            FlightWork::Held(_) => WakeLookup::Held,
        };
    }
    let share = share.take();
    let (attempting, attempt) = Attempting::begin();
    waking.insert(key, Flight { work: FlightWork::Wake(attempt.clone()), doomed: None });
    let guard = WakingGuard { inner: Arc::clone(inner), key };
    let (began, asking) = (inner.hub.observer.stopwatch(), asking.clone());
    inner.tasks.spawn(async move {
        let waking = async {
            // Only in a cluster, where a lost node leaves thousands of sessions that are requested at once. Elsewhere a server that hangs
            // would delay the sessions of others.
            let _turn = match guard.inner.roster {
                Some(_) => guard.inner.wakes.acquire().await.ok(),
                None => None,
            };
            wake_in_tries(&guard.inner, id, share).await
        };
        let woken = tokio::select! {
            woken = waking => woken,
            () = guard.inner.stop.cancelled() => Err(draining()),
        };
        let woken = woken.map_err(|error| {
            let is_of_client = matches!(
                error.reason(),
                Reason::TooManySessions | Reason::TooManySessionsOfPrincipal | Reason::TooMuchHeld
            );
            let is_over = matches!(error.kind(), Kind::NotFound | Kind::Gone);
            if !is_of_client && !is_over && error.reason() != Reason::Draining {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(session = %id.key().label(), %error, cause, "a session could not be woken");
            }
            Arc::new(error)
        });
        if let Some(began) = began {
            tell_woken(&guard, &woken, &asking, began.elapsed());
        }
        drop(guard);
        attempting.done(woken);
    });
    WakeLookup::Waking(attempt)
}

/// Tells the observer how a wake went.
fn tell_woken(guard: &WakingGuard, woken: &WakeOutcome, asking: &Principal, took: Duration) {
    match woken {
        Ok(session) => session.tell_observer(Happened::Woken { took }),
        Err(error) => {
            let (label, reason) = (guard.key.label(), error.reason());
            let what = Happened::NotWoken { reason, took };
            guard.inner.hub.observer.tell_of((&label, &guard.key), asking, None, what);
        }
    }
}

/// Removes a session from `waking` when its wake is done, also after a panic.
struct WakingGuard {
    inner: Arc<SessionRuntime>,
    key: SessionKey,
}

impl Drop for WakingGuard {
    fn drop(&mut self) {
        self.inner.waking.0.lock().remove(&self.key);
        self.inner.stir();
    }
}

/// Why a wake failed.
enum WakeFailure {
    /// Another writer came first, or the outcome of a write is unknown: another try may work.
    Again(Error),
    Failed(Error),
}

impl From<Error> for WakeFailure {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

async fn wake_in_tries(
    inner: &Arc<SessionRuntime>,
    id: SessionId,
    share: Option<Share>,
) -> Result<Arc<Session>, Error> {
    let mut tries = 0;
    loop {
        match wake(inner, id, share.as_ref()).await {
            Ok(session) => return Ok(session),
            Err(WakeFailure::Failed(error)) => return Err(error),
            Err(WakeFailure::Again(error)) => {
                tries += 1;
                if tries >= TRIES {
                    return Err(error);
                }
                tracing::debug!(session = %id.key().label(), %error, "a wake begins anew");
            }
        }
    }
}

async fn wake(
    inner: &Arc<SessionRuntime>,
    id: SessionId,
    share: Option<&Share>,
) -> Result<Arc<Session>, WakeFailure> {
    let key = id.key();
    let Some(dormant) = any_dormant(inner, key).await? else {
        return Err(how_it_ended(inner, key).await.into());
    };
    let broken = |what: &'static str| Error::new(Reason::StoreUnavailable, what);
    let changed_meanwhile = || broken("The session has changed while it was being woken; try again");
    // First: if the server is known to be a different one, the wake is refused without starting it.
    inner.check_known_server(key, &dormant.record)?;
    // Charge the client before the session is claimed and a server started.
    let charge =
        share.map(|share| SessionCharge::take(share, dormant.record.initialize.get().len())).transpose()?;
    let claimed = match inner.claim(key).await {
        Ok(claimed) => claimed,
        Err(NotClaimed::Elsewhere) => return Err(elsewhere().into()),
        Err(NotClaimed::Again(error)) => {
            // The session may have ended between the two reads: then say how.
            if any_dormant(inner, key).await?.is_none() {
                return Err(how_it_ended(inner, key).await.into());
            }
            return Err(WakeFailure::Again(changed_meanwhile().caused_by(error)));
        }
        Err(NotClaimed::Failed(error)) => return Err(error.into()),
    };
    let claim = ClaimGuard::new(inner, key, claimed.epoch);
    let owner = dormant.owner();
    let record = &dormant.record;
    let revision =
        Revision::parse(&record.revision).ok_or_else(|| broken("The session's record is damaged"))?;
    let phase = Phase::parse(&record.phase).ok_or_else(|| broken("The session's record is damaged"))?;
    let survey = inner.store.survey(key).await.map_err(store_failed)?;
    let initialize = RawJson::of(&record.initialize);
    let mut state = SessionState::new(initialize.clone(), revision, inner.counts.guard_of(key, &owner));
    state.charge_to(charge);
    state.phase = phase;
    state.log_level = record.log_level.as_deref().and_then(LogLevel::parse);
    state.subscriptions = record.subscriptions.iter().map(|uri| uri.as_str().into()).collect();
    // A node that was lost may have told it of other changes than the record says.
    let is_as_recorded = claimed.moved() != Some(SessionMove::TakenOver);
    state.heard_at = record.heard_at.as_deref().and_then(NodeId::parse).filter(|_| is_as_recorded);
    state.settings = Settings { metadata: record.metadata.clone(), ttl: IdleTtl::of_ms(record.ttl_ms) };
    // Also from the record: numbers skipped at an earlier wake stay skipped, even if no stream followed.
    let recorded = u32::try_from(record.next_stream).unwrap_or(u32::MAX);
    state.next_stream = survey.next_stream.max(recorded).max(1);
    let may_lose = inner.store.capabilities().durability.may_lose();
    if may_lose && claimed.from.is_none_or(|node| node != claimed.by.node) {
        // A power failure may have lost streams of the last process whose numbers a client knows. How many numbers are
        // skipped depends on the epoch, so that two losses skip to different numbers. A store on
        // disk leaves out 2^20 epochs at each start, so the bits above change from loss to loss.
        let width = u32::try_from((claimed.epoch.0 >> 20) & 0xff).unwrap_or(0) + 1;
        state.next_stream = state.next_stream.saturating_add(STREAM_LEAP * width);
    }
    state.kept = survey.kept;
    for known in &survey.streams {
        state.streams.insert(known.stream, EventStream::of_log(known.last, known.ended));
    }
    if let Some(standalone) = state.streams.get_mut(&StreamId::STANDALONE) {
        standalone.delivered = Position(record.delivered).min(standalone.last);
    }
    let belongs = (owner, Route::from(record.route.as_deref()));
    let secret = record.event_secret.as_deref().and_then(EventSecret::parse);
    let session =
        Session::new(Arc::clone(inner), (id, secret), belongs, claimed, Time(record.created), state);
    session.figures.lock().clone_from(&record.figures);
    let guard = WakeGuard(Some(Arc::clone(&session)));
    let reopened = OpenStream::read(&session, survey.streams).await.map_err(store_failed)?;
    let open = Open {
        params: initialize,
        revision,
        opening: Opening::Wake,
        route: session.route.clone(),
        outlet: session.next_outlet(),
        fanout: Fanout::within(Arc::clone(&inner.hub), session.route.clone()),
    };
    let (result, answered) = inner.open_link(&session, open).await.map_err(not_started)?;
    // Check before the server learns anything about the session.
    inner.check_server(key, record, &result)?;
    if answered != revision {
        tracing::warn!(session = %session.label, %revision, %answered, "the server now speaks another revision");
    }
    // Not earlier: if the server does not start, the session stays dormant and its requests stay held.
    match OpenStream::begin_held(&session, &reopened).await {
        Ok(()) => {}
        Err(error @ (StoreError::Fenced | StoreError::Unknown)) => {
            return Err(WakeFailure::Again(store_failed(error)));
        }
        Err(error) => return Err(store_failed(error).into()),
    }
    let changed = params::changed_lists(&RawJson::of(&record.initialize_result), &result);
    session.greet().await;
    // Before the record is written, so that it says so.
    session.note(TimelineEvent::Woken);
    let moved = claimed.moved().filter(|_| inner.roster.is_some());
    if moved == Some(SessionMove::TakenOver) {
        session.note(TimelineEvent::TakenOver);
    }
    let (value, deadline) = {
        let mut state = session.state.lock();
        state.initialize_result = result;
        session.record(&state, &state.settings)
    };
    let written =
        inner.store.put(RecordKey::session(key), value, Expected::Version(dormant.version), deadline).await;
    match written {
        Ok(version) => session.state.lock().version = version,
        // The session may have ended during the wake: then say how.
        Err(error @ (StoreError::Conflict { .. } | StoreError::Unknown)) => {
            crate::session::wake::dormant(inner, key, &session.owner, &session.route).await?;
            return Err(WakeFailure::Again(changed_meanwhile().caused_by(error)));
        }
        Err(error) => return Err(store_failed(error).into()),
    }
    // A session that this node does not own must not answer from memory.
    if inner.roster.is_some() {
        let owner = inner.store.owner(key).await.map_err(store_failed)?;
        if owner.is_none_or(|(node, epoch)| node != claimed.by.node || epoch < session.fence()) {
            return Err(WakeFailure::Again(changed_meanwhile()));
        }
    }
    let resumed = session.enter_registry(reopened)?;
    guard.woke();
    drop(claim.keep());
    session.check_term();
    if let Some(how) = moved {
        session.tell_observer(Happened::Moved { how });
    }
    session.catch_up(resumed, &changed, Time(dormant.record.last_used));
    Ok(session)
}

impl Session {
    /// Puts the session into the registry, unless it was ended meanwhile.
    fn enter_registry(self: &Arc<Self>, reopened: Vec<OpenStream>) -> Result<Vec<OpenRequest>, Error> {
        let inner = &self.inner;
        let waking = inner.waking.0.lock();
        if let Some(end) = waking.get(&self.key).and_then(|flight| flight.doomed) {
            return Err(ended_error(end));
        }
        // Under the lock that `drain` takes when it leaves open requests to the next process.
        if inner.stage() == DrainStage::Left {
            return Err(draining());
        }
        let resumed = {
            let mut state = self.state.lock();
            for uri in &state.subscriptions {
                inner.watchers.add(uri, self.id);
            }
            // The handshake may have scheduled a deadline that passed before the session could be found; `catch_up`
            // schedules a new one.
            if let Some(due) = state.due.take() {
                inner.deadlines.remove(due, Due::Session(self.id));
            }
            self.reopen(&mut state, reopened)
        };
        inner.live.insert(self.id, Arc::clone(self));
        drop(waking);
        inner.woken.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(session = %self.label, requests = resumed.len(), "session woken");
        Ok(resumed)
    }

    /// Sends the notifications that the client may have missed, and resumes its open requests.
    fn catch_up(self: &Arc<Self>, resumed: Vec<OpenRequest>, changed: &[Method], last_used: Time) {
        let inner = &self.inner;
        self.touch();
        let (initialized, subscriptions, may_have_changed) = {
            let mut state = self.state.lock();
            self.schedule(&mut state, inner.clock.now());
            // The next write of the record says so: at the latest when the session sleeps.
            let heard_at = std::mem::replace(&mut state.heard_at, self.hears_at());
            let may_have_changed = match heard_at == state.heard_at {
                true => Vec::new(),
                false => changing_lists(&state.initialize_result),
            };
            (state.phase == Phase::Initialized, state.subscriptions.clone(), may_have_changed)
        };
        if initialized {
            let mut missed: Vec<Method> = may_have_changed;
            for method in inner.news.since(&self.route, last_used).chain(changed.iter().cloned()) {
                if !missed.contains(&method) {
                    missed.push(method);
                }
            }
            for method in missed {
                self.announce(message::write_notification(&method, None));
            }
            // No server could report updates while the session slept: tell the client that every resource it watches may
            // have changed.
            for uri in subscriptions {
                let params = RawJson::of(&serde_json::json!({ "uri": &*uri }));
                self.announce(message::write_notification(&Method::ResourceUpdated, Some(&params)));
            }
        }
        self.resume_requests(resumed);
    }

    pub(super) fn announce(self: &Arc<Self>, body: bytes::Bytes) {
        if let Err(error) = self.emit_now(&Origin::Unasked, body) {
            tracing::debug!(session = %self.label, %error, "could not send a notification to the client of a woken session");
        }
    }
}

/// A session during its wake. If the wake fails, drop closes its link, and the session stays dormant. In a cluster
/// nothing of it is written any more: a server that still says something must not get in the way of the next wake.
struct WakeGuard(Option<Arc<Session>>);

impl WakeGuard {
    fn woke(mut self) {
        self.0 = None;
    }
}

impl Drop for WakeGuard {
    fn drop(&mut self) {
        let Some(session) = self.0.take() else { return };
        session.abandon();
        session.let_go();
    }
}
