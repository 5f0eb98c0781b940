//! Owns all states of a store: makes, finds and recovers them.
//!
//! In: an owner and the id of a state. Out: a [`State`], or a [`Fault`].

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tenure_protocol::{Error, Reason};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::fault::{Fault, Lost};
use super::name::{StateId, StateKind};
use super::record::{About, StateHead, StateRecord};
use crate::budget::{Budget, Peer};
use crate::counts::{CountGuard, Full, RecordCounter};
use crate::finish::finish;
use crate::framed::UnreadableFrame;
use crate::id::{Principal, SessionKey};
use crate::port::clock::{Clock, Time};
use crate::port::store::{Expected, Record, RecordKey, Space, Store, StoreError, Stored};
use crate::state::cache::{Again, StateCache};
use crate::state::live_state::{SeenRecord, State};
use crate::supervise::{Avoided, Loops};
use crate::sweep;

/// How long a stop waits for writes that are under way.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// Every bound and timeout of states.
#[derive(Clone, Debug)]
pub struct StateLimits {
    /// A state that is not used for this long expires. `None`: never.
    pub idle_ttl: Option<Duration>,
    /// A state expires at this age, used or not. `None`: never.
    pub max_lifetime: Option<Duration>,
    /// How long a state that expired because it was not used can be recovered.
    pub retention: Duration,
    /// How long the tombstone of a state is kept.
    pub tombstone_ttl: Duration,
    /// The most data one state may hold.
    pub max_bytes: usize,
    /// The most bytes of a client's description of a new state.
    pub max_about_bytes: usize,
    /// The most states.
    pub max_states: usize,
    /// The most states of one principal.
    pub max_states_per_principal: usize,
}

impl Default for StateLimits {
    fn default() -> Self {
        Self {
            idle_ttl: Some(Duration::from_secs(30 * 60)),
            max_lifetime: None,
            retention: Duration::from_secs(24 * 60 * 60),
            tombstone_ttl: Duration::from_secs(60 * 60),
            max_bytes: 1 << 20,
            max_about_bytes: 2 << 10,
            max_states: 2_000_000,
            max_states_per_principal: 2_000_000,
        }
    }
}

/// A state to be made.
#[derive(Clone, Debug)]
pub struct NewState {
    /// Its kind.
    pub kind: StateKind,
    /// The description from its maker.
    pub about: About,
    /// Its first data.
    pub data: Bytes,
    /// Its own idle time; `None` for that of the limits.
    pub idle_ttl: Option<Duration>,
    /// Its own longest life, used or not; `None` for that of the limits.
    pub max_lifetime: Option<Duration>,
    /// The peer that its bytes count for.
    pub peer: Peer,
}

impl NewState {
    /// A state without data.
    pub fn of(kind: StateKind) -> Self {
        Self {
            kind,
            about: About::default(),
            data: Bytes::new(),
            idle_ttl: None,
            max_lifetime: None,
            peer: Peer::UNKNOWN,
        }
    }
}

/// How often a write without an answer is repeated.
const REPEATS: usize = 1;

/// All states of a store. Cheap to clone.
#[derive(Clone)]
pub struct States(pub(super) Arc<StatesInner>);

pub(super) struct StatesInner {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) limits: StateLimits,
    pub(super) counts: Arc<RecordCounter>,
    pub(super) stop: CancellationToken,
    pub(super) tasks: TaskTracker,
    loops: Loops,
    /// Records at which the sweep panicked.
    pub(super) avoided: Avoided<RecordKey>,
}

impl States {
    /// Starts to keep states, without a limit on their bytes in all. Must be called within a tokio runtime.
    pub fn start(store: Arc<dyn Store>, clock: Arc<dyn Clock>, limits: StateLimits) -> Self {
        Self::start_within(store, clock, limits, Budget::default())
    }

    /// Starts to keep states whose bytes count in this budget. Must be called within a tokio runtime.
    pub fn start_within(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        limits: StateLimits,
        budget: Budget,
    ) -> Self {
        let states = Self::over(store, clock, limits, RecordCounter::within(budget));
        let inner = &states.0;
        sweep::start(inner, &inner.tasks, &inner.stop, &inner.loops);
        states
    }

    /// States without background loops: no state is removed, and existing states are not counted, neither by
    /// [`States::count`] nor for the limits. For commands that read a store which no server uses.
    pub fn at_rest(store: Arc<dyn Store>, clock: Arc<dyn Clock>, limits: StateLimits) -> Self {
        Self::over(store, clock, limits, RecordCounter::default())
    }

    fn over(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        limits: StateLimits,
        counts: RecordCounter,
    ) -> Self {
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let (counts, loops, avoided) = (Arc::new(counts), Loops::default(), Avoided::default());
        Self(Arc::new(StatesInner { store, clock, limits, counts, stop, tasks, loops, avoided }))
    }

    /// Stops the background tasks; the states stay in the store. It does not wait for a store that does not answer in
    /// time.
    pub async fn stop(&self) {
        self.0.stop.cancel();
        self.0.tasks.close();
        if tokio::time::timeout(STOP_WITHIN, self.0.tasks.wait()).await.is_err() {
            tracing::warn!(writes = self.0.tasks.len(), "writes of states did not finish before the stop");
        }
    }

    /// The background loops.
    pub fn loops(&self) -> &Loops {
        &self.0.loops
    }

    /// The bounds in force.
    pub fn limits(&self) -> &StateLimits {
        &self.0.limits
    }

    /// The number of states.
    pub fn count(&self) -> usize {
        self.0.counts.total()
    }

    /// Makes a state.
    ///
    /// # Errors
    /// When a limit is reached or the store fails.
    ///
    /// # Cancel safety
    /// If it is dropped early, no state remains: a write that has begun is finished and taken back in the background.
    pub async fn create(&self, owner: &Principal, new: NewState) -> Result<State, Fault> {
        let inner = &self.0;
        inner.check_size(new.data.len())?;
        let about = new.about.data.as_ref().map_or(0, |data| data.get().len())
            + new.about.label.as_ref().map_or(0, String::len);
        if about > inner.limits.max_about_bytes {
            return Err(Fault::TooLarge { bytes: about, limit: inner.limits.max_about_bytes });
        }
        let now = inner.clock.now();
        let id = StateId::random();
        let mut head = StateHead::new(owner.name(), new.kind.as_str(), new.about, now);
        head.id = owner.name().map(|_| id.cookie());
        head.idle_ms = new.idle_ttl.or(inner.limits.idle_ttl).map(millis);
        head.ends = new.max_lifetime.or(inner.limits.max_lifetime).map(|life| now.after(life).0);
        head.peer = new.peer;
        let key = id.key(owner);
        let mut record = StateRecord { head: Arc::new(head), data: new.data };
        let count_guard = self.count_guard(key, owner, &record)?;
        inner.prolong(record.head_mut(), now);
        let made = finish(&inner.tasks, Arc::clone(inner).make(key, record, count_guard)).await?;
        let seen = made.kept();
        tracing::debug!(state = %label(&key), kind = %seen.record.head.kind, "state made");
        Ok(State::new(Arc::clone(inner), id, key, seen, now))
    }

    /// Counts one more state, unless a limit is reached.
    pub(super) fn count_guard(
        &self,
        key: SessionKey,
        owner: &Principal,
        record: &StateRecord,
    ) -> Result<CountGuard, Fault> {
        let limits = &self.0.limits;
        let (max, per_principal) = (limits.max_states, limits.max_states_per_principal);
        let count_guard = self.0.counts.try_take_for(key, owner, record.weight(), max, per_principal);
        count_guard.map_err(|full| match full {
            Full::Weight(full) => Fault::no_room(full),
            Full::InAll | Full::OfPrincipal => {
                let text = "There are as many data sessions as there may be";
                Fault::Full(Error::new(Reason::TooManyStates, text).with("limit", max.min(per_principal)))
            }
        })
    }

    /// Finds a state of the caller, and prolongs its life.
    ///
    /// # Errors
    /// When there is no such state, it has ended, or the store fails. A state of another owner is not found either.
    ///
    /// # Cancel safety
    /// A write that has begun is finished.
    pub async fn find(&self, owner: &Principal, id: StateId) -> Result<State, Fault> {
        let key = id.key(owner);
        self.find_at(owner, (id, key), self.fetch(key), self.now(), &StateCache::default()).await
    }

    /// Starts to read a record.
    pub fn fetch(&self, key: SessionKey) -> Fetched {
        let key = record_key(key);
        match self.0.store.peek(key) {
            Some(kept) => Fetched::Now(kept),
            None => Fetched::Later(self.0.store.get(key)),
        }
    }

    /// The state in a record, if it can be used without a write: it belongs to the caller, has not ended, and its
    /// expiry in the store is late enough.
    pub fn at_hand(
        &self,
        owner: &Principal,
        (id, key): (StateId, SessionKey),
        kept: &Record,
        now: Time,
        last: &StateCache,
    ) -> Option<State> {
        let state = self.again(owner, (id, key), kept, now, last).ok()?;
        matches!(state.has_to_be_put_off(now), Ok(false)).then_some(state)
    }

    /// [`States::find`] for a caller that has the key and the time, and may have a cache of the state.
    pub async fn find_at(
        &self,
        owner: &Principal,
        (id, key): (StateId, SessionKey),
        fetched: Fetched,
        now: Time,
        last: &StateCache,
    ) -> Result<State, Fault> {
        let kept = fetched.kept().await?.ok_or(Fault::Lost(Lost::NotFound))?;
        let state = self.again(owner, (id, key), &kept, now, last)?;
        if state.has_to_be_put_off(now)? {
            // Boxed, because it is rare, and otherwise every call's future would be larger.
            Box::pin(state.put_off()).await?;
        }
        Ok(state)
    }

    /// The time by the clock of this store.
    pub fn now(&self) -> Time {
        self.0.clock.now()
    }

    /// Finds a state of the caller, and revives it if it expired because it was not used and is still kept. Returns
    /// whether it was revived.
    ///
    /// # Errors
    /// As for [`States::find`].
    ///
    /// # Cancel safety
    /// A write that has begun is finished.
    pub async fn recover(&self, owner: &Principal, id: StateId) -> Result<(State, bool), Fault> {
        let (now, key) = (self.now(), id.key(owner));
        let seen = self.0.read(key).await?;
        let state = self.state(owner, id, key, seen, now)?;
        match state.has_to_be_put_off(now) {
            Ok(true) => state.put_off().await.map(|()| (state, false)),
            Ok(false) => Ok((state, false)),
            Err(Fault::Lost(Lost::Expired)) => {
                state.revive().await?;
                tracing::debug!(state = %state.label(), "an expired state was recovered");
                Ok((state, true))
            }
            Err(fault) => Err(fault),
        }
    }

    /// The state of that owner in a record, ended or not. Uses the cache.
    fn again(
        &self,
        owner: &Principal,
        (id, key): (StateId, SessionKey),
        kept: &Record,
        now: Time,
        last: &StateCache,
    ) -> Result<State, Fault> {
        match last.read(owner, kept, now).map_err(|error| unreadable(&key, &error))? {
            Again::Spare(state) => Ok(state),
            Again::Seen(seen) => self.state(owner, id, key, Some(seen), now),
        }
    }

    /// The state of that owner in a record, ended or not.
    fn state(
        &self,
        owner: &Principal,
        id: StateId,
        key: SessionKey,
        seen: Option<SeenRecord>,
        now: Time,
    ) -> Result<State, Fault> {
        match seen.filter(|seen| seen.record.head.owner.as_deref() == owner.name()) {
            Some(seen) => Ok(State::new(Arc::clone(&self.0), id, key, seen, now)),
            None => Err(Fault::Lost(Lost::NotFound)),
        }
    }
}

/// A record that is available now or later.
pub enum Fetched {
    /// The store answered at once.
    Now(Result<Option<Record>, StoreError>),
    /// The store is reading it.
    Later(Stored<Option<Record>>),
}

impl std::fmt::Debug for Fetched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Self::Now(_)) { "Now" } else { "Later" })
    }
}

impl Fetched {
    async fn kept(self) -> Result<Option<Record>, StoreError> {
        match self {
            Self::Now(kept) => kept,
            Self::Later(reading) => reading.await,
        }
    }
}

impl StatesInner {
    pub(super) async fn read(&self, key: SessionKey) -> Result<Option<SeenRecord>, Fault> {
        let kept = self.store.get(record_key(key)).await?;
        let Some(kept) = kept else { return Ok(None) };
        let record = StateRecord::decode(&kept.value).map_err(|error| unreadable(&key, &error))?;
        Ok(Some(SeenRecord { version: kept.version, record }))
    }

    /// Writes a record over the expected version. If the outcome is unknown, the same record is written again: the write
    /// without an answer may still happen until a later one is finished, and only then a read is final. The outcome stays
    /// unknown if another writer wrote since, because that write may have replaced this one.
    pub(super) async fn write(
        &self,
        key: SessionKey,
        record: &mut StateRecord,
        expected: Expected,
    ) -> Result<crate::port::store::Version, StoreError> {
        record.head_mut().stamp = stamp();
        let deadline = self.deadline(&record.head);
        let mut written = self.store.put(record_key(key), record.encode(), expected, deadline).await;
        if written != Err(StoreError::Unknown) {
            return written;
        }
        for _ in 0..REPEATS {
            if written != Err(StoreError::Unknown) {
                break;
            }
            written = self.store.put(record_key(key), record.encode(), expected, deadline).await;
        }
        match written {
            Ok(version) => Ok(version),
            Err(StoreError::Conflict { .. }) => match self.read(key).await {
                Ok(Some(seen)) if seen.record.head.stamp == record.head.stamp => Ok(seen.version),
                Ok(None) => Err(StoreError::Conflict { current: None }),
                // The edition that this write would have made does not exist, so the write did not happen.
                Ok(Some(seen)) if seen.record.head.edition < record.head.edition => {
                    Err(StoreError::Conflict { current: Some(seen.version) })
                }
                Ok(Some(_)) | Err(_) => Err(StoreError::Unknown),
            },
            // Not settled, but if it is there, it is done.
            Err(_) => match self.read(key).await {
                Ok(Some(seen)) if seen.record.head.stamp == record.head.stamp => Ok(seen.version),
                _ => Err(StoreError::Unknown),
            },
        }
    }

    pub(super) fn check_size(&self, bytes: usize) -> Result<(), Fault> {
        let limit = self.limits.max_bytes;
        if bytes > limit { Err(Fault::TooLarge { bytes, limit }) } else { Ok(()) }
    }

    /// The time until which a client can rely on a state that is used now. Earlier, if the store has an earlier expiry.
    pub(super) fn promise(head: &StateHead, now: Time) -> Option<Time> {
        let idle = head.idle_ms.map(|idle| now.0.saturating_add(idle));
        let promise = idle.into_iter().chain(head.ends).min()?;
        Some(Time(head.expires.map_or(promise, |expires| promise.min(expires))))
    }

    /// Sets the expiry a little later than promised to clients, so that not every use has to be written.
    pub(super) fn prolong(&self, head: &mut StateHead, now: Time) {
        head.used = now.0;
        head.expires = head.idle_ms.map(|idle| {
            let spare = (idle / 16).min(5 * 60 * 1000);
            now.after(Duration::from_millis(idle + spare)).0
        });
    }

    /// When the record is due for the sweep.
    pub(super) fn deadline(&self, head: &StateHead) -> Option<Time> {
        if head.end.is_some() {
            return Some(Time(head.used).after(self.limits.tombstone_ttl));
        }
        let forgotten = head.expires.map(|at| Time(at).after(self.limits.retention));
        match (forgotten, head.ends.map(Time)) {
            (Some(forgotten), Some(ends)) => Some(forgotten.min(ends)),
            (forgotten, ends) => forgotten.or(ends),
        }
    }
}

fn unreadable(key: &SessionKey, error: &UnreadableFrame) -> Fault {
    tracing::error!(state = %label(key), %error, "a state cannot be read");
    Fault::Store(StoreError::Unavailable(error.to_string()))
}

pub(super) fn record_key(key: SessionKey) -> RecordKey {
    RecordKey { space: Space::State, key }
}

/// The name of a state in logs.
pub(super) fn label(key: &SessionKey) -> String {
    record_key(*key).label()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX >> 1)
}

fn stamp() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("the operating system provides randomness");
    u64::from_be_bytes(bytes)
}

impl std::fmt::Debug for States {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("States").field("count", &self.count()).finish()
    }
}
