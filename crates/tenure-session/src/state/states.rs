//! All states: made, found, recovered.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tenure_protocol::{Error, Reason};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::fault::{Fault, Lost};
use super::name::{Kind, StateId};
use super::record::{About, Head, StateRecord, Unreadable};
use super::sweep;
use crate::budget::{Budget, Peer};
use crate::counts::{Census, Full, Seat};
use crate::finish::finish;
use crate::id::{Principal, SessionKey};
use crate::port::clock::{Clock, Time};
use crate::port::store::{Expected, Record, RecordKey, Space, Store, StoreError, Stored};
use crate::state::cache::{Again, Last};
use crate::state::state::{Seen, State};
use crate::supervise::{Avoided, Loops};

/// How long a stop waits for writes that are under way.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// Every bound and timeout of states.
#[derive(Clone, Debug)]
pub struct StateLimits {
    /// A state that nobody uses for this long expires. `None`: never.
    pub idle_ttl: Option<Duration>,
    /// A state expires at this age, used or not. `None`: never.
    pub max_lifetime: Option<Duration>,
    /// How long a state that expired for want of use can be recovered.
    pub retention: Duration,
    /// How long the end of a state is remembered.
    pub tombstone_ttl: Duration,
    /// The most data one state may hold.
    pub max_bytes: usize,
    /// The most that a client may say of a state when it makes it.
    pub max_about_bytes: usize,
    /// States in all.
    pub max_states: usize,
    /// States of one principal.
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
    /// What sort it is.
    pub kind: Kind,
    /// What its maker says of it.
    pub about: About,
    /// What it holds.
    pub data: Bytes,
    /// When it expires if nobody uses it, if not as the limits say.
    pub idle_ttl: Option<Duration>,
    /// When it expires used or not, if not as the limits say.
    pub max_lifetime: Option<Duration>,
    /// Whose share of the store it takes.
    pub peer: Peer,
}

impl NewState {
    /// A state that holds nothing.
    pub fn of(kind: Kind) -> Self {
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

/// All states of a store. Cheap to clone.
#[derive(Clone)]
pub struct States(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) limits: StateLimits,
    pub(super) census: Arc<Census>,
    pub(super) stop: CancellationToken,
    pub(super) tasks: TaskTracker,
    loops: Loops,
    /// Records that the sweep panicked at.
    pub(super) avoided: Avoided<RecordKey>,
}

impl States {
    /// Starts to keep states, as many bytes of them as there are. Must be called within a tokio runtime.
    pub fn start(store: Arc<dyn Store>, clock: Arc<dyn Clock>, limits: StateLimits) -> Self {
        Self::start_within(store, clock, limits, Budget::default())
    }

    /// Starts to keep states whose bytes come out of this account. Must be called within a tokio runtime.
    pub fn start_within(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        limits: StateLimits,
        budget: Budget,
    ) -> Self {
        let states = Self::over(store, clock, limits, Census::within(budget));
        let inner = Arc::clone(&states.0);
        let (loops, stop) = (&states.0.loops, inner.stop.clone());
        let sweep = move || sweep::run(Arc::clone(&inner));
        states.0.tasks.spawn(loops.keep("sweep of data sessions", stop, sweep));
        states
    }

    /// States with nothing that runs in the background: none is removed, and those that are there are not counted,
    /// so that neither [`States::count`] nor the limits know of them. For a look into a store that no server has.
    pub fn at_rest(store: Arc<dyn Store>, clock: Arc<dyn Clock>, limits: StateLimits) -> Self {
        Self::over(store, clock, limits, Census::default())
    }

    fn over(store: Arc<dyn Store>, clock: Arc<dyn Clock>, limits: StateLimits, census: Census) -> Self {
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let (census, loops, avoided) = (Arc::new(census), Loops::default(), Avoided::default());
        Self(Arc::new(Inner { store, clock, limits, census, stop, tasks, loops, avoided }))
    }

    /// Stops what runs in the background; the states stay where they are. A store that does not answer is left to the
    /// end of the process.
    pub async fn stop(&self) {
        self.0.stop.cancel();
        self.0.tasks.close();
        if tokio::time::timeout(STOP_WITHIN, self.0.tasks.wait()).await.is_err() {
            tracing::warn!(writes = self.0.tasks.len(), "the store of states did not answer before the end");
        }
    }

    /// What runs in the background.
    pub fn loops(&self) -> &Loops {
        &self.0.loops
    }

    /// The bounds in force.
    pub fn limits(&self) -> &StateLimits {
        &self.0.limits
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.census.total()
    }

    /// Makes a state.
    ///
    /// # Errors
    /// When a limit is reached or the store fails.
    ///
    /// # Cancel safety
    /// Dropped before it is done, it leaves nothing behind: a write that was begun is finished and taken back in the
    /// background.
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
        let mut head = Head::new(owner.name(), new.kind.as_str(), new.about, now);
        head.id = owner.name().map(|_| id.cookie());
        head.idle_ms = new.idle_ttl.or(inner.limits.idle_ttl).map(millis);
        head.ends = new.max_lifetime.or(inner.limits.max_lifetime).map(|life| now.after(life).0);
        head.peer = new.peer;
        let key = id.key(owner);
        let mut record = StateRecord { head: Arc::new(head), data: new.data };
        let seat = self.seat(key, owner, &record)?;
        inner.prolong(record.head_mut(), now);
        let made = finish(&inner.tasks, Arc::clone(inner).make(key, record, seat)).await?;
        let seen = made.kept();
        tracing::debug!(state = %label(&key), kind = %seen.record.head.kind, "state made");
        Ok(State::new(Arc::clone(inner), id, key, seen, now))
    }

    /// The right to have one more.
    pub(super) fn seat(
        &self,
        key: SessionKey,
        owner: &Principal,
        record: &StateRecord,
    ) -> Result<Seat, Fault> {
        let limits = &self.0.limits;
        let (max, per_principal) = (limits.max_states, limits.max_states_per_principal);
        let seat = self.0.census.try_take_for(key, owner, record.weight(), max, per_principal);
        seat.map_err(|full| match full {
            Full::Weight(full) => Fault::no_room(full),
            Full::InAll | Full::OfPrincipal => {
                let text = "There are as many data sessions as there may be";
                Fault::Full(Error::new(Reason::TooManyStates, text).with("limit", max.min(per_principal)))
            }
        })
    }

    /// Finds a state of the caller's, and puts off its expiry.
    ///
    /// # Errors
    /// When there is none, it has ended, or the store fails. Another's state looks like one that never was.
    ///
    /// # Cancel safety
    /// A write that was begun is finished.
    pub async fn find(&self, owner: &Principal, id: StateId) -> Result<State, Fault> {
        let key = id.key(owner);
        self.find_at(owner, (id, key), self.fetch(key), self.now(), &Last::default()).await
    }

    /// Begins to read a record.
    pub fn fetch(&self, key: SessionKey) -> Fetched {
        let key = record_key(key);
        match self.0.store.peek(key) {
            Some(kept) => Fetched::Now(kept),
            None => Fetched::Later(self.0.store.get(key)),
        }
    }

    /// The state in a record, if it can be used as it is: it is the caller's, it has not ended, and its expiry need not
    /// be put off.
    pub fn at_hand(
        &self,
        owner: &Principal,
        (id, key): (StateId, SessionKey),
        kept: &Record,
        now: Time,
        last: &Last,
    ) -> Option<State> {
        let state = self.again(owner, (id, key), kept, now, last).ok()?;
        matches!(state.has_to_be_put_off(now), Ok(false)).then_some(state)
    }

    /// [`States::find`] for whoever knows the key already, and the time, and has perhaps seen it before.
    pub async fn find_at(
        &self,
        owner: &Principal,
        (id, key): (StateId, SessionKey),
        fetched: Fetched,
        now: Time,
        last: &Last,
    ) -> Result<State, Fault> {
        let kept = fetched.kept().await?.ok_or(Fault::Lost(Lost::NotFound))?;
        let state = self.again(owner, (id, key), &kept, now, last)?;
        if state.has_to_be_put_off(now)? {
            // In a box, because it is seldom done and every call has to carry the room for it.
            Box::pin(state.put_off()).await?;
        }
        Ok(state)
    }

    /// The time by the clock of this store.
    pub fn now(&self) -> Time {
        self.0.clock.now()
    }

    /// Finds a state of the caller's, and revives it if it expired for want of use and is still kept. Says
    /// whether it had to be.
    ///
    /// # Errors
    /// As for [`States::find`].
    ///
    /// # Cancel safety
    /// A write that was begun is finished.
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

    /// The state of that owner in a record that was perhaps seen before, however it stands.
    fn again(
        &self,
        owner: &Principal,
        (id, key): (StateId, SessionKey),
        kept: &Record,
        now: Time,
        last: &Last,
    ) -> Result<State, Fault> {
        match last.read(owner, kept, now).map_err(|error| unreadable(&key, &error))? {
            Again::Spare(state) => Ok(state),
            Again::Seen(seen) => self.state(owner, id, key, Some(seen), now),
        }
    }

    /// The state of that owner in a record, however it stands.
    fn state(
        &self,
        owner: &Principal,
        id: StateId,
        key: SessionKey,
        seen: Option<Seen>,
        now: Time,
    ) -> Result<State, Fault> {
        match seen.filter(|seen| seen.record.head.owner.as_deref() == owner.name()) {
            Some(seen) => Ok(State::new(Arc::clone(&self.0), id, key, seen, now)),
            None => Err(Fault::Lost(Lost::NotFound)),
        }
    }
}

/// A record that is there, or on its way.
pub enum Fetched {
    /// The store had it at hand, or knows of none.
    Now(Result<Option<Record>, StoreError>),
    /// It is being read.
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

impl Inner {
    pub(super) async fn read(&self, key: SessionKey) -> Result<Option<Seen>, Fault> {
        let kept = self.store.get(record_key(key)).await?;
        let Some(kept) = kept else { return Ok(None) };
        let record = StateRecord::decode(&kept.value).map_err(|error| unreadable(&key, &error))?;
        Ok(Some(Seen { version: kept.version, record }))
    }

    /// Writes a record over what is expected. An answer that was lost is looked for; it stays unknown if another
    /// wrote since, because this write may lie beneath theirs.
    pub(super) async fn write(
        &self,
        key: SessionKey,
        record: &mut StateRecord,
        expected: Expected,
    ) -> Result<crate::port::store::Version, StoreError> {
        record.head_mut().stamp = stamp();
        let deadline = self.deadline(&record.head);
        let written = self.store.put(record_key(key), record.encode(), expected, deadline).await;
        match written {
            Err(StoreError::Unknown) => match self.read(key).await {
                Ok(Some(seen)) if seen.record.head.stamp == record.head.stamp => Ok(seen.version),
                Ok(None) => Err(StoreError::Conflict { current: None }),
                // The edition that this write would have made was not reached.
                Ok(Some(seen)) if seen.record.head.edition < record.head.edition => {
                    Err(StoreError::Conflict { current: Some(seen.version) })
                }
                Ok(Some(_)) | Err(_) => Err(StoreError::Unknown),
            },
            written => written,
        }
    }

    pub(super) fn check_size(&self, bytes: usize) -> Result<(), Fault> {
        let limit = self.limits.max_bytes;
        if bytes > limit { Err(Fault::TooLarge { bytes, limit }) } else { Ok(()) }
    }

    /// When a client may count on it until, if it is used now. Less, if that could not be written down.
    pub(super) fn promise(head: &Head, now: Time) -> Option<Time> {
        let idle = head.idle_ms.map(|idle| now.0.saturating_add(idle));
        let promise = idle.into_iter().chain(head.ends).min()?;
        Some(Time(head.expires.map_or(promise, |expires| promise.min(expires))))
    }

    /// Puts off the expiry, by a little more than is promised, so that not every use has to be written down.
    pub(super) fn prolong(&self, head: &mut Head, now: Time) {
        head.used = now.0;
        head.expires = head.idle_ms.map(|idle| {
            let spare = (idle / 16).min(5 * 60 * 1000);
            now.after(Duration::from_millis(idle + spare)).0
        });
    }

    /// When the record has to be looked at.
    pub(super) fn deadline(&self, head: &Head) -> Option<Time> {
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

fn unreadable(key: &SessionKey, error: &Unreadable) -> Fault {
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
