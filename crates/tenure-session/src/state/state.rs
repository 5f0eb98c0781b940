//! One state in somebody's hands: read, changed, deleted.
//!
//! What was read is kept, so that reading again costs nothing. A change names the edition it saw and fails if
//! there is a newer one. Using a state puts off its expiry; that is written only when what stands in the store
//! would break the promise made to the client, which is once in a sixteenth of the time it may lie idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::budget::{self, Peer};
use crate::counts::Entry;
use crate::finish::finish;
use crate::id::{Principal, SessionKey};
use crate::port::clock::Time;
use crate::port::store::{Expected, StoreError, Version};
use crate::record::End;
use crate::state::fault::{Fault, Lost};
use crate::state::name::{Kind, StateId};
use crate::state::record::{About, Edition, StateRecord};
use crate::state::states::{Inner, NewState, States, label};

/// How often a change is tried again before it gives up; each failure means that another one succeeded.
const MAX_TRIES: usize = 10_000;

/// How often a write is repeated whose outcome is unknown; a store that never knows is broken.
const MAX_UNKNOWN: usize = 8;

/// What was seen longer ago is looked at again before anybody is told how it stands.
const STALE: Duration = Duration::from_secs(1);

/// A record and the version it was read at.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) version: Version,
    pub(super) record: StateRecord,
}

/// A state of the caller's. Clones see the same.
#[derive(Clone)]
pub struct State(Arc<Held>);

struct Held {
    inner: Arc<Inner>,
    id: StateId,
    key: SessionKey,
    seen: Mutex<Seen>,
    /// When that was.
    seen_at: AtomicU64,
    /// Its data or its expiry were written since it was found.
    written: AtomicBool,
}

impl State {
    pub(super) fn new(inner: Arc<Inner>, id: StateId, key: SessionKey, seen: Seen, now: Time) -> Self {
        let (seen, seen_at) = (Mutex::new(seen), AtomicU64::new(now.0));
        Self(Arc::new(Held { inner, id, key, seen, seen_at, written: AtomicBool::new(false) }))
    }

    /// The same found again at this time, if it is still that version of that owner's, and nobody else holds it.
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

    /// What is worth keeping when nobody uses it, if nobody else holds it and it has not ended.
    pub(super) fn without_data(mut self) -> Option<Self> {
        let record = &mut Arc::get_mut(&mut self.0)?.seen.get_mut().record;
        record.data = Bytes::new();
        record.head.end.is_none().then_some(self)
    }

    /// Its secret name.
    pub fn id(&self) -> StateId {
        self.0.id
    }

    /// Its name in logs.
    pub fn label(&self) -> String {
        label(&self.0.key)
    }

    /// What sort it is.
    pub fn kind(&self) -> Kind {
        let kind = Kind::new(&self.0.seen.lock().record.head.kind);
        kind.unwrap_or_else(|| Kind::new("state").expect("a kind"))
    }

    /// Whether it is of that sort.
    pub fn is_of(&self, kind: &Kind) -> bool {
        *self.0.seen.lock().record.head.kind == *kind.as_str()
    }

    /// What its maker said of it.
    pub fn about(&self) -> About {
        self.0.seen.lock().record.head.about.clone()
    }

    /// Until when its client may count on it, if it is not used again. `None`: for ever.
    pub fn expiry(&self) -> Option<Time> {
        Inner::promise(&self.0.seen.lock().record.head, self.now())
    }

    /// How it stands at that time, and if it is not over, what [`State::expiry`] is then.
    pub fn outlook(&self, now: Time) -> Result<Option<Time>, Lost> {
        let seen = self.0.seen.lock();
        seen.record.head.standing(now)?;
        Ok(Inner::promise(&seen.record.head, now))
    }

    /// Whether it is not over.
    pub fn is_alive(&self) -> bool {
        self.standing().is_ok()
    }

    /// Whether its data or its expiry were written since it was found.
    pub fn was_written(&self) -> bool {
        self.0.written.load(Ordering::Relaxed)
    }

    /// Its data and their edition, as they were when it was found or last changed through this.
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

    /// Replaces the data if they are still of the edition that the caller saw.
    ///
    /// # Errors
    /// When they are not, or the state is gone, or the store fails.
    ///
    /// # Cancel safety
    /// The change is made or not made, and this shows which.
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

    /// Replaces the data by a value if they are still of the edition that the caller saw.
    ///
    /// # Errors
    /// As for [`State::replace`].
    ///
    /// # Cancel safety
    /// As for [`State::replace`].
    pub async fn update<T: Serialize>(&self, seen: Edition, value: &T) -> Result<Edition, Fault> {
        self.replace(seen, serde_json::to_vec(value).map_err(Fault::Shape)?.into()).await
    }

    /// Changes the data, again and again until nobody came between. What `change` refuses is not written.
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
            // What has ended holds nothing any more, and `change` must not take that for what it held.
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

    /// Deletes it; all its names are dead from then on.
    ///
    /// # Errors
    /// When it is over already, or the store fails.
    ///
    /// # Cancel safety
    /// It is over or not; the count says the same.
    pub async fn delete(&self) -> Result<(), Fault> {
        self.end(End::Deleted).await
    }

    /// Ends it as an operator does.
    ///
    /// # Errors
    /// When it is over already, or the store fails.
    ///
    /// # Cancel safety
    /// It is over or not; the count says the same.
    pub async fn revoke(&self) -> Result<(), Fault> {
        self.end(End::Revoked).await
    }

    /// Makes another that begins with what this one holds now, and goes its own way. It takes the share of the one that made
    /// this.
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

    /// The same, and it takes the share of this peer.
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

    /// Looks how it stands now, if that was long ago: a call may take longer than a state lives, and meanwhile
    /// another may have ended it, or kept it alive.
    pub async fn look_again(&self, now: Time) {
        let seen_at = Time(self.0.seen_at.load(Ordering::Relaxed));
        if now.since(seen_at) < STALE && self.outlook(now).is_ok() {
            return;
        }
        // In a box, because it is seldom done and every call has to carry the room for it.
        match Box::pin(self.read_again()).await {
            Ok(()) => {}
            Err(Fault::Lost(_)) => self.0.seen.lock().record.head_mut().end = Some(End::Expired),
            Err(error) => tracing::debug!(state = %self.label(), %error, "could not look at a state again"),
        }
    }

    /// A copy of the record, its owner, and when it was seen so.
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

    /// Whether a use now has to be written down, because the store does not have its expiry late enough.
    pub(super) fn has_to_be_put_off(&self, now: Time) -> Result<bool, Fault> {
        let seen = self.0.seen.lock();
        let head = &seen.record.head;
        head.standing(now).map_err(Fault::Lost)?;
        let last = head.idle_ms.map(|idle| now.0.saturating_add(idle));
        Ok(head.expires.zip(last).is_some_and(|(expires, last)| last > expires))
    }

    /// Puts off its expiry.
    pub(super) async fn put_off(&self) -> Result<(), Fault> {
        let touched = self.rewrite(|record, now| {
            record.head.standing(now).map_err(Fault::Lost)?;
            self.0.inner.prolong(record.head_mut(), now);
            Ok(())
        });
        match touched.await {
            // It can be used all the same; it only expires sooner.
            Err(Fault::Store(error)) => {
                tracing::warn!(state = %self.label(), %error, "could not put off the expiry of a state");
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
            // It is only still there because nobody has come to remove it.
            if self.0.inner.deadline(&record.head).is_some_and(|at| at <= now) {
                return Err(Fault::Lost(Lost::NotFound));
            }
            self.0.inner.prolong(record.head_mut(), now);
            Ok(())
        })
        .await
        .map(drop)
    }

    /// Holds nothing from then on. Not a use: its expiry stays.
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

    pub(super) async fn end(&self, end: End) -> Result<(), Fault> {
        self.rewrite(|record, now| {
            // What has expired can still be deleted while its data are there. What has a tombstone was counted
            // out when that was written.
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

    /// Writes what `change` makes of the record, anew if another came between, and says which edition that was.
    async fn rewrite(
        &self,
        change: impl Fn(&mut StateRecord, Time) -> Result<(), Fault>,
    ) -> Result<Edition, Fault> {
        let (mut fresh, mut unknown) = (false, 0);
        for _ in 0..MAX_TRIES {
            let Seen { version, mut record } = self.0.seen.lock().clone();
            let (before, entry) = (record.head.edition, record.entry());
            match change(&mut record, self.now()) {
                Ok(()) => {}
                Err(fault) if fresh => return Err(fault),
                // Another may have changed it or put off its expiry since it was read.
                Err(_) => {
                    self.read_again().await?;
                    fresh = true;
                    continue;
                }
            }
            let edition = record.head.edition;
            let commit = self.clone().commit(entry, Seen { version, record });
            match finish(&self.0.inner.tasks, commit).await.map_err(Fault::no_room)? {
                Ok(()) => return Ok(edition),
                Err(StoreError::Conflict { .. }) => self.read_again().await?,
                // What leaves the data alone may be done twice.
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

    /// Writes a changed record over the version that was seen, keeps it, and counts the state out if that was its end.
    /// To be run to its end.
    ///
    /// # Errors
    /// When there is no room for what it grows by; within, when the store fails.
    async fn commit(self, before: Entry, changed: Seen) -> Result<Result<(), StoreError>, budget::Full> {
        let (inner, key) = (&self.0.inner, self.0.key);
        let Seen { version, mut record } = changed;
        let bytes = record.weight().bytes;
        let (leaving, resizing) = match record.head.end {
            Some(_) => (Some(inner.census.leaving(key, before)), None),
            None => (None, Some(inner.census.resizing(key, &before, bytes)?)),
        };
        let version = match inner.write(key, &mut record, Expected::Version(version)).await {
            Ok(version) => version,
            Err(error) => return Ok(Err(error)),
        };
        self.keep(Seen { version, record });
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

    /// Keeps the newest that was seen: a clone may have seen more meanwhile.
    fn keep(&self, seen: Seen) {
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
