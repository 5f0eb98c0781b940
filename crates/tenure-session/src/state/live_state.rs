//! One state that a caller holds: read, changed, deleted.
//!
//! The record is kept in memory after it was read, so that reading again costs nothing. A change names the edition
//! that it is based on, and fails if there is a newer one. Using a state prolongs its life. That is written only if
//! the expiry in the store is too early for what the client was promised, which is about once in a sixteenth of the
//! idle time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::budget::{self, Peer};
use crate::counts::CountedRecord;
use crate::finish::finish;
use crate::id::{Principal, SessionKey};
use crate::port::clock::Time;
use crate::port::store::{Expected, StoreError, Version};
use crate::record::EndCause;
use crate::state::fault::{Fault, Lost};
use crate::state::name::{StateId, StateKind};
use crate::state::record::{About, Edition, StateRecord};
use crate::state::states::{NewState, States, StatesInner, label};

/// The most retries of a change. Each failure means that another change succeeded.
const MAX_TRIES: usize = 10_000;

/// The most retries of a write whose outcome is unknown.
const MAX_UNKNOWN: usize = 8;

/// A record that was read longer ago is read again before its status is reported.
const STALE: Duration = Duration::from_secs(1);

/// A record, and its version when it was read.
#[derive(Debug, Clone)]
pub(super) struct SeenRecord {
    pub(super) version: Version,
    pub(super) record: StateRecord,
}

/// A state of the caller. Clones share the same record.
#[derive(Clone)]
pub struct State(Arc<StateCell>);

struct StateCell {
    inner: Arc<StatesInner>,
    id: StateId,
    key: SessionKey,
    seen: Mutex<SeenRecord>,
    /// When `seen` was read or written.
    seen_at: AtomicU64,
    /// Whether its data or its expiry were written since it was found.
    written: AtomicBool,
}

impl State {
    pub(super) fn new(
        inner: Arc<StatesInner>,
        id: StateId,
        key: SessionKey,
        seen: SeenRecord,
        now: Time,
    ) -> Self {
        let (seen, seen_at) = (Mutex::new(seen), AtomicU64::new(now.0));
        Self(Arc::new(StateCell { inner, id, key, seen, seen_at, written: AtomicBool::new(false) }))
    }

    /// Uses a cached state again for a record that was found at this time. `None` if the version or the owner differs,
    /// or another clone exists.
    pub(super) fn again(
        mut self,
        owner: &Principal,
        version: Version,
        data: impl FnOnce() -> Bytes,
        now: Time,
    ) -> Option<Self> {
        let held = Arc::get_mut(&mut self.0)?;
        let seen = held.seen.get_mut();
        if seen.version != version || seen.record.head.owner.as_deref() != owner.name() {
            return None;
        }
        seen.record.data = data();
        *held.seen_at.get_mut() = now.0;
        *held.written.get_mut() = false;
        Some(self)
    }

    /// The state without its data, for the cache. `None` if another clone exists or the state has ended.
    pub(super) fn without_data(mut self) -> Option<Self> {
        let record = &mut Arc::get_mut(&mut self.0)?.seen.get_mut().record;
        record.data = Bytes::new();
        record.head.end.is_none().then_some(self)
    }

    /// Its secret id.
    pub fn id(&self) -> StateId {
        self.0.id
    }

    /// Its name in logs.
    pub fn label(&self) -> String {
        label(&self.0.key)
    }

    /// Its kind.
    pub fn kind(&self) -> StateKind {
        let kind = StateKind::new(&self.0.seen.lock().record.head.kind);
        kind.unwrap_or_else(|| StateKind::new("state").expect("a kind"))
    }

    /// Whether it is of that kind.
    pub fn is_of(&self, kind: &StateKind) -> bool {
        *self.0.seen.lock().record.head.kind == *kind.as_str()
    }

    /// The description from its maker.
    pub fn about(&self) -> About {
        self.0.seen.lock().record.head.about.clone()
    }

    /// The time until which its client can rely on it, if it is not used again. `None`: for ever.
    pub fn expiry(&self) -> Option<Time> {
        StatesInner::promise(&self.0.seen.lock().record.head, self.now())
    }

    /// [`State::expiry`] at that time, or an error if the state is over by then.
    pub fn outlook(&self, now: Time) -> Result<Option<Time>, Lost> {
        let seen = self.0.seen.lock();
        seen.record.head.standing(now)?;
        Ok(StatesInner::promise(&seen.record.head, now))
    }

    /// Whether it is not over.
    pub fn is_alive(&self) -> bool {
        self.standing().is_ok()
    }

    /// Whether its data or its expiry were written since it was found.
    pub fn was_written(&self) -> bool {
        self.0.written.load(Ordering::Relaxed)
    }

    /// Its data and their edition, as of when it was found or last changed through this handle.
    pub fn data(&self) -> (Bytes, Edition) {
        let seen = self.0.seen.lock();
        (seen.record.data.clone(), seen.record.head.edition)
    }

    /// Its data as a value; a state that holds nothing is the default.
    ///
    /// # Errors
    /// When the data do not fit the type.
    pub fn get<T: DeserializeOwned + Default>(&self) -> Result<(T, Edition), Fault> {
        let (data, edition) = self.data();
        if data.is_empty() {
            return Ok((T::default(), edition));
        }
        Ok((serde_json::from_slice(&data).map_err(Fault::Shape)?, edition))
    }

    /// Replaces the data if they still have the edition that the caller saw.
    ///
    /// # Errors
    /// When they have another edition, the state is gone, or the store fails.
    ///
    /// # Cancel safety
    /// The change is made or not made, and this state shows which.
    pub async fn replace(&self, seen: Edition, data: Bytes) -> Result<Edition, Fault> {
        self.0.inner.check_size(data.len())?;
        self.rewrite(|record, now| {
            record.head.standing(now).map_err(Fault::Lost)?;
            if record.head.edition != seen {
                return Err(Fault::Conflict(record.head.edition));
            }
            record.head_mut().edition.0 += 1;
            record.data = data.clone();
            self.0.inner.prolong(record.head_mut(), now);
            Ok(())
        })
        .await
    }

    /// Replaces the data by a value if they still have the edition that the caller saw.
    ///
    /// # Errors
    /// As for [`State::replace`].
    ///
    /// # Cancel safety
    /// As for [`State::replace`].
    pub async fn update<T: Serialize>(&self, seen: Edition, value: &T) -> Result<Edition, Fault> {
        self.replace(seen, serde_json::to_vec(value).map_err(Fault::Shape)?.into()).await
    }

    /// Changes the data; if another change comes first, tries again. If `change` refuses, nothing is written.
    ///
    /// # Errors
    /// When the state is gone, does not fit the type, or the store fails. `Ok(Err(..))` is a refusal.
    ///
    /// # Cancel safety
    /// As for [`State::replace`].
    pub async fn change<T, R, E>(
        &self,
        mut change: impl FnMut(&mut T) -> Result<R, E>,
    ) -> Result<Result<R, E>, Fault>
    where
        T: DeserializeOwned + Serialize + Default,
    {
        let mut tries = 0;
        loop {
            // An ended state has empty data, and `change` must not take them for its real data.
            if self.standing().is_err() {
                self.read_again().await?;
                self.standing()?;
            }
            let (mut value, edition) = self.get::<T>()?;
            let outcome = match change(&mut value) {
                Ok(outcome) => outcome,
                Err(refusal) => return Ok(Err(refusal)),
            };
            match self.update(edition, &value).await {
                Ok(_) => return Ok(Ok(outcome)),
                Err(Fault::Conflict(_)) if tries < MAX_TRIES => tries += 1,
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Deletes it. All its names are invalid from then on.
    ///
    /// # Errors
    /// When it is over already, or the store fails.
    ///
    /// # Cancel safety
    /// It is over or not; the count says the same.
    pub async fn delete(&self) -> Result<(), Fault> {
        self.end(EndCause::Deleted).await
    }

    /// Ends it on behalf of an operator.
    ///
    /// # Errors
    /// When it is over already, or the store fails.
    ///
    /// # Cancel safety
    /// It is over or not; the count says the same.
    pub async fn revoke(&self) -> Result<(), Fault> {
        self.end(EndCause::Revoked).await
    }

    /// Makes a new, independent state with a copy of the current data. Its bytes count for the peer that made this one.
    ///
    /// # Errors
    /// When it is over, a limit is reached, or the store fails.
    ///
    /// # Cancel safety
    /// As for [`States::create`].
    pub async fn fork(&self, name: Option<String>) -> Result<Self, Fault> {
        let maker = self.0.seen.lock().record.head.peer;
        self.fork_for(maker, name).await
    }

    /// The same, but its bytes count for this peer.
    ///
    /// # Errors
    /// As for [`State::fork`].
    ///
    /// # Cancel safety
    /// As for [`States::create`].
    pub async fn fork_for(&self, peer: Peer, name: Option<String>) -> Result<Self, Fault> {
        self.read_again().await?;
        self.standing()?;
        let (owner, new) = {
            let seen = self.0.seen.lock();
            let head = &seen.record.head;
            let about = About { label: name.or_else(|| head.about.label.clone()), ..head.about.clone() };
            let idle_ttl = head.idle_ms.map(std::time::Duration::from_millis);
            let max_lifetime = head.ends.map(|ends| Time(ends).since(Time(head.created)));
            let owner = head.owner.as_deref().map_or(Principal::ANONYMOUS, Principal::named);
            let data = seen.record.data.clone();
            drop(seen);
            (owner, NewState { kind: self.kind(), about, data, idle_ttl, max_lifetime, peer })
        };
        States(Arc::clone(&self.0.inner)).create(&owner, new).await
    }

    /// Reads the record again if it was read too long ago: during a long call the state may have expired, or another
    /// caller may have ended or prolonged it.
    pub async fn look_again(&self, now: Time) {
        let seen_at = Time(self.0.seen_at.load(Ordering::Relaxed));
        if now.since(seen_at) < STALE && self.outlook(now).is_ok() {
            return;
        }
        // Boxed, because it is rare, and otherwise every call's future would be larger.
        match Box::pin(self.read_again()).await {
            Ok(()) => {}
            Err(Fault::Lost(_)) => self.0.seen.lock().record.head_mut().end = Some(EndCause::Expired),
            Err(error) => tracing::debug!(state = %self.label(), %error, "could not read a state again"),
        }
    }

    /// A copy of the record, its owner, and when it was read.
    pub(super) fn for_carrying(&self) -> (StateRecord, Principal, Time) {
        let record = self.0.seen.lock().record.clone();
        let owner = record.head.owner.as_deref().map_or(Principal::ANONYMOUS, Principal::named);
        (record, owner, Time(self.0.seen_at.load(Ordering::Relaxed)))
    }

    pub(super) fn tombstone_ttl(&self) -> std::time::Duration {
        self.0.inner.limits.tombstone_ttl
    }

    pub(super) fn standing(&self) -> Result<(), Fault> {
        self.outlook(self.now()).map(drop).map_err(Fault::Lost)
    }

    fn now(&self) -> Time {
        self.0.inner.clock.now()
    }

    /// Whether a use now has to be written, because the expiry in the store is too early.
    pub(super) fn has_to_be_put_off(&self, now: Time) -> Result<bool, Fault> {
        let seen = self.0.seen.lock();
        let head = &seen.record.head;
        head.standing(now).map_err(Fault::Lost)?;
        let last = head.idle_ms.map(|idle| now.0.saturating_add(idle));
        Ok(head.expires.zip(last).is_some_and(|(expires, last)| last > expires))
    }

    /// Prolongs its life in the store.
    pub(super) async fn put_off(&self) -> Result<(), Fault> {
        let touched = self.rewrite(|record, now| {
            record.head.standing(now).map_err(Fault::Lost)?;
            self.0.inner.prolong(record.head_mut(), now);
            Ok(())
        });
        match touched.await {
            // The state can still be used; it only expires sooner.
            Err(Fault::Store(error)) => {
                tracing::warn!(state = %self.label(), %error, "could not prolong the life of a state");
                Ok(())
            }
            touched => touched.map(drop),
        }
    }

    pub(super) async fn revive(&self) -> Result<(), Fault> {
        self.rewrite(|record, now| {
            if record.head.end.is_some() || record.head.is_too_old(now) {
                return Err(Fault::Lost(record.head.standing(now).err().unwrap_or(Lost::Expired)));
            }
            // It is due, and only not removed yet.
            if self.0.inner.deadline(&record.head).is_some_and(|at| at <= now) {
                return Err(Fault::Lost(Lost::NotFound));
            }
            self.0.inner.prolong(record.head_mut(), now);
            Ok(())
        })
        .await
        .map(drop)
    }

    /// Removes its data. This is not a use: its expiry stays.
    pub(super) async fn clear(&self) -> Result<(), Fault> {
        self.rewrite(|record, now| {
            record.head.standing(now).map_err(Fault::Lost)?;
            record.head_mut().edition.0 += 1;
            record.data = Bytes::new();
            Ok(())
        })
        .await
        .map(drop)
    }

    pub(super) async fn end(&self, end: EndCause) -> Result<(), Fault> {
        self.rewrite(|record, now| {
            // An expired state can still be ended while its data are there. A state with a tombstone has ended, and was
            // removed from the count when the tombstone was written.
            if record.head.end.is_some() {
                return Err(Fault::Lost(record.head.standing(now).err().unwrap_or(Lost::NotFound)));
            }
            record.head_mut().end = Some(end);
            record.head_mut().used = now.0;
            record.head_mut().about = About::default();
            record.head_mut().id = None;
            record.data = Bytes::new();
            Ok(())
        })
        .await?;
        tracing::debug!(state = %self.label(), ?end, "state ended");
        Ok(())
    }

    /// Applies `change` to the record and writes it; if another write comes first, tries again. Returns the edition.
    async fn rewrite(
        &self,
        change: impl Fn(&mut StateRecord, Time) -> Result<(), Fault>,
    ) -> Result<Edition, Fault> {
        let (mut fresh, mut unknown) = (false, 0);
        for _ in 0..MAX_TRIES {
            let SeenRecord { version, mut record } = self.0.seen.lock().clone();
            let (before, entry) = (record.head.edition, record.entry());
            match change(&mut record, self.now()) {
                Ok(()) => {}
                Err(fault) if fresh => return Err(fault),
                // Another caller may have changed or prolonged it since it was read.
                Err(_) => {
                    self.read_again().await?;
                    fresh = true;
                    continue;
                }
            }
            let edition = record.head.edition;
            let commit = self.clone().commit(entry, SeenRecord { version, record });
            match finish(&self.0.inner.tasks, commit).await.map_err(Fault::no_room)? {
                Ok(()) => return Ok(edition),
                Err(StoreError::Conflict { .. }) => self.read_again().await?,
                // A write that does not change the data may be repeated.
                Err(StoreError::Unknown) if edition == before && unknown < MAX_UNKNOWN => {
                    unknown += 1;
                    self.read_again().await?;
                }
                Err(error) => return Err(error.into()),
            }
            fresh = true;
        }
        Err(Fault::Store(StoreError::Busy))
    }

    /// Writes a changed record over the version that was seen, keeps it in memory, and removes the state from the
    /// count if the write ended it. Must run to its end.
    ///
    /// # Errors
    /// The outer error: the record grows and does not fit. The inner error: the store fails.
    async fn commit(
        self,
        before: CountedRecord,
        changed: SeenRecord,
    ) -> Result<Result<(), StoreError>, budget::Full> {
        let (inner, key) = (&self.0.inner, self.0.key);
        let SeenRecord { version, mut record } = changed;
        let bytes = record.weight().bytes;
        let (leaving, resizing) = match record.head.end {
            Some(_) => (Some(inner.counts.leaving(key, before)), None),
            None => (None, Some(inner.counts.resizing(key, &before, bytes)?)),
        };
        let version = match inner.write(key, &mut record, Expected::Version(version)).await {
            Ok(version) => version,
            Err(error) => return Ok(Err(error)),
        };
        self.keep(SeenRecord { version, record });
        self.0.written.store(true, Ordering::Relaxed);
        if let Some(leaving) = leaving {
            leaving.left_with(bytes);
        }
        if let Some(resizing) = resizing {
            resizing.done();
        }
        Ok(Ok(()))
    }

    async fn read_again(&self) -> Result<(), Fault> {
        let seen = self.0.inner.read(self.0.key).await?.ok_or(Fault::Lost(Lost::NotFound))?;
        self.keep(seen);
        Ok(())
    }

    /// Keeps the record if it is newer than the one in memory, which a clone may have replaced.
    fn keep(&self, seen: SeenRecord) {
        self.0.seen_at.store(self.now().0, Ordering::Relaxed);
        let mut held = self.0.seen.lock();
        if seen.version > held.version {
            *held = seen;
        }
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("State").field(&self.label()).finish()
    }
}
