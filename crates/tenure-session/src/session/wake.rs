//! Waking a dormant session: a new link, the handshake replayed, everything as it was.
//!
//! A session is woken by the next request of its owner. Requests that come together wake it once: the first
//! starts a task, the others wait for the same task, and it goes on when they all hang up. The record is
//! written at the end with the version that was read at the beginning, so a session that was ended meanwhile
//! is not brought back. If anything fails, the record stays as it was and the next request tries again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tenure_protocol::params::{self, LogLevel};
use tenure_protocol::{Error, Kind, Method, RawJson, Reason, Revision, message};
use tokio::sync::watch;

use crate::backend::{Open, Opening};
use crate::budget::Share;
use crate::call::Fanout;
use crate::id::{Position, Principal, Route, SessionId, SessionKey, StreamId};
use crate::port::clock::Time;
use crate::port::store::{Expected, RecordKey, StoreError, Version};
use crate::record::{End, Kept, SessionRecord};
use crate::session::deadline::Due;
use crate::session::drain::{Stage, draining};
use crate::session::event_id::EventSecret;
use crate::session::idle_ttl::IdleTtl;
use crate::session::link::not_started;
use crate::session::phase::Phase;
use crate::session::recover::{Reopened, Resumed};
use crate::session::session::{Session, State, ended_error, unknown_error};
use crate::session::sessions::{Inner, store_failed};
use crate::session::settings::Settings;
use crate::session::share::Held;
use crate::session::stream::{Origin, Stream};

/// How far stream numbers leap: more than a session begins between two syncs of a disk.
const STREAM_LEAP: u32 = 1 << 10;

/// What became of a wake; nothing until it is over.
type Outcome = Option<Result<Arc<Session>, Arc<Error>>>;

/// Sessions that are being woken.
#[derive(Default)]
pub(super) struct Waking(Mutex<HashMap<SessionKey, Flight, RandomState>>);

/// One wake, and all who wait for it.
struct Flight {
    outcome: watch::Receiver<Outcome>,
    /// The session was ended meanwhile, and must not rise.
    doomed: Option<End>,
}

impl Waking {
    pub(super) fn contains(&self, key: &SessionKey) -> bool {
        self.0.lock().contains_key(key)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Does something while no session can rise.
    pub(super) fn meanwhile(&self, act: impl FnOnce()) {
        let _waking = self.0.lock();
        act();
    }
}

impl Inner {
    /// The record of a session that was not in memory has been replaced by a tombstone. Should it be waking just
    /// now, it does not rise; should it have risen since, it ends, and this is true.
    pub(super) fn entombed(self: &Arc<Self>, key: &SessionKey, end: End) -> bool {
        let risen = {
            let mut waking = self.waking.0.lock();
            // First, because a session that has just risen is on the list for a moment longer.
            let risen = self.live.by_key(key);
            if let (None, Some(flight)) = (&risen, waking.get_mut(key)) {
                flight.doomed = Some(end);
            }
            risen
        };
        let Some(session) = risen else { return false };
        // Its tombstone is there already; that another one is written over it does no harm.
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
        self.record.owner.as_deref().map_or(Principal::ANONYMOUS, Principal::named)
    }
}

/// Finds a session that was not in memory a moment ago.
pub(super) async fn find(
    inner: &Arc<Inner>,
    id: SessionId,
    principal: &Principal,
    route: &Route,
    share: Option<Share>,
) -> Result<Arc<Session>, Error> {
    // Before a task is started, so that ids that nobody has cost one look at the store.
    dormant(inner, id.key(), principal, route).await?;
    if inner.stage() >= Stage::Holding {
        return Err(draining());
    }
    let mut outcome = match wake_once(inner, id, share) {
        Found::Awake(session) if session.is_of(principal, route) => return Ok(session),
        Found::Awake(_) => return Err(unknown_error()),
        Found::Waking(outcome) => outcome,
    };
    let done = outcome.wait_for(Option::is_some).await;
    match done.as_deref() {
        Ok(Some(Ok(session))) => Ok(Arc::clone(session)),
        Ok(Some(Err(error))) => Err(error.again()),
        // The task was aborted or panicked.
        Ok(None) | Err(_) => Err(Error::new(Reason::Internal, "The session could not be woken")),
    }
}

/// A session of the caller's that is not in memory.
pub(super) async fn dormant(
    inner: &Arc<Inner>,
    key: SessionKey,
    principal: &Principal,
    route: &Route,
) -> Result<Dormant, Error> {
    let record = inner.store.get(RecordKey::session(key)).await.map_err(store_failed)?;
    let Some(record) = record else { return Err(unknown_error()) };
    let (version, deadline) = (record.version, record.deadline);
    match Kept::decode(&record.value) {
        Ok(Kept::Tombstone(tombstone)) if tombstone.owner.as_deref() == principal.name() => {
            Err(ended_error(tombstone.end))
        }
        Ok(Kept::Session(record))
            if record.owner.as_deref() == principal.name() && record.route.as_deref() == route.name() =>
        {
            let deadline = crate::session::idle_ttl::due(&record, deadline, &inner.limits);
            let dormant = Dormant { key, version, record };
            // Who is being woken is in use, however long that takes.
            if deadline.is_none_or(|deadline| inner.clock.now() < deadline) || inner.waking.contains(&key) {
                return Ok(dormant);
            }
            // The sweep has not come by yet. If the store fails, it will.
            drop(inner.end_dormant(&dormant, End::Expired).await);
            Err(ended_error(End::Expired))
        }
        Ok(_) => Err(unknown_error()),
        Err(error) => {
            tracing::error!(session = ?key, %error, "a session's record cannot be read");
            Err(Error::new(Reason::StoreUnavailable, "The session cannot be read").caused_by(error))
        }
    }
}

/// Any session that is not in memory, for operators.
pub(super) async fn any_dormant(inner: &Inner, key: SessionKey) -> Result<Option<Dormant>, Error> {
    let record = inner.store.get(RecordKey::session(key)).await.map_err(store_failed)?;
    let Some(record) = record else { return Ok(None) };
    Ok(match Kept::decode(&record.value) {
        Ok(Kept::Session(session)) => Some(Dormant { key, version: record.version, record: session }),
        _ => None,
    })
}

/// What to tell somebody who found a session a moment ago that is over now.
async fn how_it_ended(inner: &Inner, key: SessionKey) -> Error {
    match inner.store.get(RecordKey::session(key)).await {
        Ok(Some(record)) => match Kept::decode(&record.value) {
            Ok(Kept::Tombstone(tombstone)) => ended_error(tombstone.end),
            _ => unknown_error(),
        },
        Ok(None) => unknown_error(),
        Err(error) => store_failed(error),
    }
}

enum Found {
    Awake(Arc<Session>),
    Waking(watch::Receiver<Outcome>),
}

fn wake_once(inner: &Arc<Inner>, id: SessionId, share: Option<Share>) -> Found {
    let mut waking = inner.waking.0.lock();
    // Looked at under the lock: a wake that was just over has put its session there before it left the list.
    if let Some(session) = inner.live.get(&id) {
        return Found::Awake(session);
    }
    let key = id.key();
    if let Some(flight) = waking.get(&key) {
        return Found::Waking(flight.outcome.clone());
    }
    let (tell, outcome) = watch::channel(None);
    waking.insert(key, Flight { outcome: outcome.clone(), doomed: None });
    let listed = Listed { inner: Arc::clone(inner), key };
    inner.tasks.spawn(async move {
        let woken = tokio::select! {
            woken = wake(&listed.inner, id, share) => woken,
            () = listed.inner.stop.cancelled() => Err(draining()),
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
        drop(listed);
        tell.send_replace(Some(woken));
    });
    Found::Waking(outcome)
}

/// Takes a session off the list when it is no longer being woken, also after a panic.
struct Listed {
    inner: Arc<Inner>,
    key: SessionKey,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.inner.waking.0.lock().remove(&self.key);
        self.inner.stir();
    }
}

async fn wake(inner: &Arc<Inner>, id: SessionId, share: Option<Share>) -> Result<Arc<Session>, Error> {
    let key = id.key();
    let Some(dormant) = any_dormant(inner, key).await? else { return Err(how_it_ended(inner, key).await) };
    let owner = dormant.owner();
    let record = &dormant.record;
    let broken = |what: &'static str| Error::new(Reason::StoreUnavailable, what);
    // First, because a server that is known to be another one need not be started to be refused.
    inner.check_known_server(key, record)?;
    let revision =
        Revision::parse(&record.revision).ok_or_else(|| broken("The session's record is damaged"))?;
    let phase = Phase::parse(&record.phase).ok_or_else(|| broken("The session's record is damaged"))?;
    // Before anything is claimed or started for it.
    let held = share.map(|share| Held::take(&share, record.initialize.get().len())).transpose()?;
    let owned = inner.store.owner(key).await.map_err(store_failed)?;
    let last = owned.map(|(_, epoch)| epoch);
    let epoch = match inner.store.claim(key, inner.node, last).await {
        Ok(epoch) => epoch,
        // Ended between the two looks: say how.
        Err(StoreError::Fenced) => {
            if any_dormant(inner, key).await?.is_none() {
                return Err(how_it_ended(inner, key).await);
            }
            return Err(broken("The session has changed while it was being woken; try again"));
        }
        Err(error) => return Err(store_failed(error)),
    };
    let survey = inner.store.survey(key).await.map_err(store_failed)?;
    let initialize = RawJson::of(&record.initialize);
    let mut state = State::new(initialize.clone(), revision, inner.census.seat_of(key, &owner));
    state.is_held_by(held);
    state.phase = phase;
    state.log_level = record.log_level.as_deref().and_then(LogLevel::parse);
    state.subscriptions = record.subscriptions.iter().map(|uri| uri.as_str().into()).collect();
    state.settings = Settings { metadata: record.metadata.clone(), ttl: IdleTtl::of_ms(record.ttl_ms) };
    // From the record too: a leap that was made at an earlier wake must not be undone where no stream followed it.
    let told = u32::try_from(record.next_stream).unwrap_or(u32::MAX);
    state.next_stream = survey.next_stream.max(told).max(1);
    if owned.is_none_or(|(node, _)| node != inner.node) {
        // A loss of power may have taken streams of the last process whose numbers a client was told. How far to
        // leap differs from process to process, should the next one lose everything too.
        let width = u32::try_from((epoch.0 >> 20) & 0xff).unwrap_or(0) + 1;
        state.next_stream = state.next_stream.saturating_add(STREAM_LEAP * width);
    }
    state.kept = survey.kept;
    for known in &survey.streams {
        state.streams.insert(known.stream, Stream::of_log(known.last, known.ended));
    }
    if let Some(standalone) = state.streams.get_mut(&StreamId::STANDALONE) {
        standalone.delivered = Position(record.delivered).min(standalone.last);
    }
    let belongs = (owner, Route::from(record.route.as_deref()));
    let secret = record.event_secret.as_deref().and_then(EventSecret::parse);
    let session = Session::new(Arc::clone(inner), (id, secret), belongs, epoch, Time(record.created), state);
    let sleeper = Sleeper(Some(Arc::clone(&session)));
    let reopened = Reopened::read(&session, survey.streams).await.map_err(store_failed)?;
    let open = Open {
        params: initialize,
        revision,
        opening: Opening::Wake,
        route: session.route.clone(),
        outlet: session.next_outlet(),
        fanout: Fanout::within(Arc::clone(&inner.hub), session.route.clone()),
    };
    let (result, answered) = inner.open_link(&session, open).await.map_err(not_started)?;
    // Before anything of the session is told to the server.
    inner.check_server(key, record, &result)?;
    if answered != revision {
        tracing::warn!(session = %session.label, %revision, %answered, "the server now speaks another revision");
    }
    // Not earlier: a session whose server does not start sleeps on, and its requests are still held.
    Reopened::begin_held(&session, &reopened).await.map_err(store_failed)?;
    let changed = params::changed_lists(&RawJson::of(&record.initialize_result), &result);
    session.greet().await;
    let (value, deadline) = {
        let mut state = session.state.lock();
        state.initialize_result = result;
        session.record(&state, &state.settings)
    };
    let written =
        inner.store.put(RecordKey::session(key), value, Expected::Version(dormant.version), deadline).await;
    match written {
        Ok(version) => session.state.lock().version = version,
        // Ended while it was being woken: say how.
        Err(StoreError::Conflict { .. }) => {
            crate::session::wake::dormant(inner, key, &session.owner, &session.route).await?;
            return Err(broken("The session has changed while it was being woken; try again"));
        }
        Err(error) => return Err(store_failed(error)),
    }
    let resumed = session.rise(reopened)?;
    sleeper.woke();
    session.catch_up(resumed, &changed, Time(dormant.record.last_used));
    Ok(session)
}

impl Session {
    /// Tells the server what the client has said since `notifications/initialized`.
    pub(super) async fn greet(self: &Arc<Self>) {
        let (link, level, subscriptions) = {
            let state = self.state.lock();
            (state.link.clone(), state.log_level, state.subscriptions.clone())
        };
        let Some(link) = link else { return };
        if let Some(level) = level {
            let params = RawJson::of(&serde_json::json!({ "level": level.as_str() }));
            if let Err(error) = self.inquire(&link, Method::LoggingSetLevel, &params).await {
                tracing::warn!(session = %self.label, %error, "the woken server refused the log level");
            }
        }
        for uri in subscriptions {
            let params = RawJson::of(&serde_json::json!({ "uri": &*uri }));
            if let Err(error) = self.inquire(&link, Method::ResourcesSubscribe, &params).await {
                tracing::warn!(session = %self.label, %error, "the woken server refused a subscription");
            }
        }
    }

    /// Takes its place among the sessions in memory, unless it was ended meanwhile.
    fn rise(self: &Arc<Self>, reopened: Vec<Reopened>) -> Result<Vec<Resumed>, Error> {
        let inner = &self.inner;
        let waking = inner.waking.0.lock();
        if let Some(end) = waking.get(&self.key).and_then(|flight| flight.doomed) {
            return Err(ended_error(end));
        }
        // Under the lock that a stop takes when it leaves everything to the next process.
        if inner.stage() == Stage::Left {
            return Err(draining());
        }
        let resumed = {
            let mut state = self.state.lock();
            for uri in &state.subscriptions {
                inner.watchers.add(uri, self.id);
            }
            // An entry from during the handshake may have come up before the session was there.
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

    /// Tells the client what it may have missed, and goes on with what was open.
    fn catch_up(self: &Arc<Self>, resumed: Vec<Resumed>, changed: &[Method], slept: Time) {
        let inner = &self.inner;
        self.touch();
        let (initialized, subscriptions) = {
            let mut state = self.state.lock();
            self.schedule(&mut state, inner.clock.now());
            (state.phase == Phase::Initialized, state.subscriptions.clone())
        };
        if initialized {
            let missed = inner.news.since(&self.route, slept).filter(|method| !changed.contains(method));
            for method in missed.chain(changed.iter().cloned()).collect::<Vec<_>>() {
                self.announce(message::write_notification(&method, None));
            }
            // Nobody watched them meanwhile.
            for uri in subscriptions {
                let params = RawJson::of(&serde_json::json!({ "uri": &*uri }));
                self.announce(message::write_notification(&Method::ResourceUpdated, Some(&params)));
            }
        }
        self.resume_requests(resumed);
    }

    pub(super) fn announce(self: &Arc<Self>, body: bytes::Bytes) {
        if let Err(error) = self.emit_now(&Origin::Session, body) {
            tracing::debug!(session = %self.label, %error, "could not tell a woken session's client the news");
        }
    }
}

/// A session that is being woken; if that fails its server is let go and it sleeps on.
struct Sleeper(Option<Arc<Session>>);

impl Sleeper {
    fn woke(mut self) {
        self.0 = None;
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let Some(session) = self.0.take() else { return };
        session.let_go();
    }
}
