//! Counts sessions, states or tasks, in all and by principal, and hands out seats up to the limits.
//!
//! A session counts from its creation to its end, awake or dormant. Those that an earlier process left in the store
//! are counted in the background, page by page in key order; until that is done the count is low. Sessions come and go
//! meanwhile. Therefore a writer announces a record here before it writes or removes it. From then on the writer keeps
//! the count of that key, and the background passes over the key, whether or not it is on a page that was read before.
//!
//! What states take in the store is counted the same way, in bytes and by the peer that made them (`weight`).

mod weight;

use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;

use weight::Weights;
pub(crate) use weight::{Resizing, Weight};

use crate::budget::{self, Budget};
use crate::id::{Principal, SessionKey};
use crate::limits::Limits;
use crate::port::store::{Record, Space, Store, StoreError};
use tenure_protocol::{Error, Reason};

/// Records that are counted at a time.
const PAGE: usize = 256;

#[derive(Default)]
pub(crate) struct Census {
    counts: Mutex<Counts>,
}

/// Whose a record is, and what it takes in the store.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Nobody's, if it is what is left of one that has ended: it takes room, and counts for nothing else.
    pub(crate) principal: Option<Principal>,
    pub(crate) weight: Weight,
}

impl From<Principal> for Entry {
    /// One whose bytes are not counted.
    fn from(principal: Principal) -> Self {
        Self { principal: Some(principal), weight: Weight::NONE }
    }
}

#[derive(Default)]
struct Counts {
    total: usize,
    by_principal: HashMap<Principal, usize, RandomState>,
    /// Records of earlier processes are counted up to this key.
    counted: Option<SessionKey>,
    all_counted: bool,
    /// Keys above `counted` that were announced since the start. Empty when all are counted.
    settled: HashSet<SessionKey, RandomState>,
    weights: Weights,
}

/// Which limit is reached.
#[derive(Debug)]
pub(crate) enum Full {
    InAll,
    OfPrincipal,
    /// Of bytes.
    Weight(budget::Full),
}

/// The right to hold one session; given back when dropped.
pub(crate) struct Seat {
    census: Arc<Census>,
    entry: Entry,
    /// The session is not over: it only sleeps, and counts on.
    kept: bool,
}

/// A record that is about to be removed. It counts until [`Leaving::left`].
#[must_use = "it counts until it has left"]
pub(crate) struct Leaving<'a> {
    census: &'a Census,
    entry: Entry,
}

impl Census {
    /// One that counts bytes in this account.
    pub(crate) fn within(budget: Budget) -> Self {
        Self { counts: Mutex::new(Counts { weights: Weights::within(budget), ..Counts::default() }) }
    }

    /// A seat for a new session, unless there are as many as there may be.
    pub(crate) fn take(
        self: &Arc<Self>,
        key: SessionKey,
        principal: &Principal,
        limits: &Limits,
    ) -> Result<Seat, Error> {
        let (max, per_principal) = (limits.max_sessions, limits.max_sessions_per_principal);
        self.try_take(key, principal, max, per_principal).map_err(|full| match full {
            Full::InAll => Error::new(Reason::TooManySessions, "The server holds as many sessions as it may")
                .with("limit", max),
            Full::OfPrincipal => Error::new(
                Reason::TooManySessionsOfPrincipal,
                "You hold as many sessions as you may; end one with DELETE",
            )
            .with("limit", per_principal),
            Full::Weight(_) => Error::new(Reason::TooMuchHeld, "The server keeps as many bytes as it may"),
        })
    }

    pub(crate) fn try_take(
        self: &Arc<Self>,
        key: SessionKey,
        principal: &Principal,
        max: usize,
        per_principal: usize,
    ) -> Result<Seat, Full> {
        self.try_take_for(key, principal, Weight::NONE, max, per_principal)
    }

    /// The same for one that takes so much in the store.
    pub(crate) fn try_take_for(
        self: &Arc<Self>,
        key: SessionKey,
        principal: &Principal,
        weight: Weight,
        max: usize,
        per_principal: usize,
    ) -> Result<Seat, Full> {
        let mut counts = self.counts.lock();
        if counts.total >= max {
            return Err(Full::InAll);
        }
        if counts.by_principal.get(principal).copied().unwrap_or(0) >= per_principal {
            return Err(Full::OfPrincipal);
        }
        counts.weights.take(weight).map_err(Full::Weight)?;
        counts.settle(key);
        counts.add_one(principal);
        drop(counts);
        Ok(self.seat(Entry { principal: Some(principal.clone()), weight }))
    }

    /// A seat for a session that comes into the store without having been created here, whatever the limits say.
    pub(crate) fn enter(self: &Arc<Self>, key: SessionKey, principal: &Principal) -> Seat {
        let mut counts = self.counts.lock();
        counts.settle(key);
        counts.add_one(principal);
        drop(counts);
        self.seat(principal.clone().into())
    }

    /// The seat of a session that was found in the store and may not be counted yet.
    pub(crate) fn seat_of(self: &Arc<Self>, key: SessionKey, principal: &Principal) -> Seat {
        let entry = Entry::from(principal.clone());
        self.counts.lock().count_now(key, &entry);
        self.seat(entry)
    }

    /// A session that was found in the store, and may not be counted yet, is about to be removed.
    pub(crate) fn leaving(&self, key: SessionKey, entry: impl Into<Entry>) -> Leaving<'_> {
        let entry = entry.into();
        self.counts.lock().count_now(key, &entry);
        Leaving { census: self, entry }
    }

    /// A record that was found in the store, and may not be counted yet, is about to take so many bytes instead.
    ///
    /// # Errors
    /// When it grows and there is no room for that.
    pub(crate) fn resizing(
        &self,
        key: SessionKey,
        entry: &Entry,
        bytes: usize,
    ) -> Result<Resizing<'_>, budget::Full> {
        let mut counts = self.counts.lock();
        counts.count_now(key, entry);
        counts.weights.take(entry.weight.growth(bytes))?;
        drop(counts);
        Ok(Resizing::new(self, entry.weight, bytes))
    }

    fn seat(self: &Arc<Self>, entry: Entry) -> Seat {
        Seat { census: Arc::clone(self), entry, kept: false }
    }

    /// Counts the records that earlier processes left in a space. If the store fails, the next call goes on from there.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn count<E: Into<Entry>>(
        &self,
        store: &dyn Store,
        space: Space,
        entry_of: impl Fn(&Record) -> Option<E> + Send,
    ) -> Result<(), StoreError> {
        while let Some(after) = self.uncounted() {
            let page = store.list(space, after, PAGE).await?;
            if page.is_empty() {
                self.found_all();
            }
            for (key, record) in &page {
                self.found(*key, entry_of(record).map(Into::into).as_ref());
            }
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// The key after which nothing is counted yet; nothing if all is.
    #[expect(clippy::option_option, reason = "nothing to do, and everything to do")]
    fn uncounted(&self) -> Option<Option<SessionKey>> {
        let counts = self.counts.lock();
        (!counts.all_counted).then_some(counts.counted)
    }

    /// Counts a record that an earlier process left; they come in key order.
    fn found(&self, key: SessionKey, entry: Option<&Entry>) {
        let mut counts = self.counts.lock();
        counts.counted = Some(key);
        let is_settled = counts.settled.remove(&key);
        if let Some(entry) = entry
            && !is_settled
        {
            counts.add(entry);
        }
    }

    fn found_all(&self) {
        let mut counts = self.counts.lock();
        counts.all_counted = true;
        counts.settled = HashSet::default();
    }

    pub(crate) fn total(&self) -> usize {
        self.counts.lock().total
    }
}

impl Counts {
    /// Makes the background pass over a key. True if it would not have.
    fn settle(&mut self, key: SessionKey) -> bool {
        let had_its_turn = self.all_counted || self.counted.is_some_and(|last| key <= last);
        !had_its_turn && self.settled.insert(key)
    }

    /// Counts a record that is in the store now, unless it is counted.
    fn count_now(&mut self, key: SessionKey, entry: &Entry) {
        if self.settle(key) {
            self.add(entry);
        }
    }

    /// Counts what is in the store already, so it is not asked whether it fits.
    fn add(&mut self, entry: &Entry) {
        self.weights.take_anyway(entry.weight);
        if let Some(principal) = &entry.principal {
            self.add_one(principal);
        }
    }

    fn add_one(&mut self, principal: &Principal) {
        self.total += 1;
        *self.by_principal.entry_ref(principal).or_insert(0) += 1;
    }

    fn remove(&mut self, entry: &Entry) {
        self.weights.give_back(entry.weight);
        let Some(principal) = &entry.principal else { return };
        // Every removal follows an addition, so neither can fall below zero. Should that be wrong, a low count is
        // better than a panic.
        self.total = self.total.saturating_sub(1);
        if let Some(held) = self.by_principal.get_mut(principal) {
            *held -= 1;
            if *held == 0 {
                self.by_principal.remove(principal);
            }
        }
    }
}

impl Seat {
    /// The session goes on without being in memory.
    pub(crate) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if !self.kept {
            self.census.counts.lock().remove(&self.entry);
        }
    }
}

impl Leaving<'_> {
    /// It is gone.
    pub(crate) fn left(self) {
        self.census.counts.lock().remove(&self.entry);
    }

    /// It is over, and what is left of it takes so many bytes.
    pub(crate) fn left_with(self, bytes: usize) {
        let mut counts = self.census.counts.lock();
        counts.remove(&self.entry);
        counts.weights.take_anyway(Weight { bytes, ..self.entry.weight });
    }
}
