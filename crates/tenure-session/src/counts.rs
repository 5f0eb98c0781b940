//! Counts sessions, states or tasks, in total and by principal, and gives out [`CountGuard`]s up to the limits.
//!
//! A session counts from its creation to its end, awake or dormant. A background scan counts the records that an
//! earlier process left in the store, page by page in key order; until it is done the count is too low. Records are
//! written and removed during the scan. So a writer announces a key here before it writes or removes its record. From
//! then on the writer counts that key, and the scan skips it, even if the scan has already read the page with the key.
//! In a cluster the records are counted anew from time to time (`recount`).
//!
//! The bytes of states in the store are counted in the same way, by the peer that made them (`weight`).

mod recount;
mod weight;

use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;

use recount::Recount;
use weight::Weights;
pub(crate) use weight::{Resizing, Weight};

use crate::budget::{self, Budget};
use crate::id::{Principal, SessionKey};
use crate::limits::Limits;
use crate::port::store::{Record, Space, Store, StoreError};
use tenure_protocol::{Error, Reason};

/// Records that the scan reads at a time.
const PAGE: usize = 256;

#[derive(Default)]
pub(crate) struct RecordCounter {
    counts: Mutex<Counts>,
}

/// The owner of a record, and its size in the store.
#[derive(Clone, Debug)]
pub(crate) struct CountedRecord {
    /// `None` for a tombstone: only its bytes are counted.
    pub(crate) principal: Option<Principal>,
    pub(crate) weight: Weight,
}

impl From<Principal> for CountedRecord {
    /// A record whose bytes are not counted.
    fn from(principal: Principal) -> Self {
        Self { principal: Some(principal), weight: Weight::NONE }
    }
}

#[derive(Default)]
struct Counts {
    total: usize,
    by_principal: HashMap<Principal, usize, RandomState>,
    /// The scan has counted the records of earlier processes up to this key.
    counted: Option<SessionKey>,
    all_counted: bool,
    /// Keys above `counted` that writers have announced. Empty when the scan is done.
    settled: HashSet<SessionKey, RandomState>,
    weights: Weights,
    /// The counts that replace these, while they are being made.
    recount: Option<Box<Recount>>,
}

/// The limit that was reached.
#[derive(Debug)]
pub(crate) enum Full {
    InAll,
    OfPrincipal,
    /// A limit on bytes.
    Weight(budget::Full),
}

/// One counted record. Dropping the guard removes the record from the count.
pub(crate) struct CountGuard {
    counter: Arc<RecordCounter>,
    key: SessionKey,
    entry: CountedRecord,
    /// The record stays in the store, so it stays counted when the guard is dropped.
    kept: bool,
}

/// A record that is about to be removed. It stays counted until [`Leaving::left`].
#[must_use = "it counts until it has left"]
pub(crate) struct Leaving<'a> {
    counter: &'a RecordCounter,
    key: SessionKey,
    entry: CountedRecord,
}

impl RecordCounter {
    /// A counter that takes bytes from this budget.
    pub(crate) fn within(budget: Budget) -> Self {
        Self { counts: Mutex::new(Counts { weights: Weights::within(budget), ..Counts::default() }) }
    }

    /// Counts a new session, unless a limit is reached.
    pub(crate) fn take(
        self: &Arc<Self>,
        key: SessionKey,
        principal: &Principal,
        limits: &Limits,
    ) -> Result<CountGuard, Error> {
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
    ) -> Result<CountGuard, Full> {
        self.try_take_for(key, principal, Weight::NONE, max, per_principal)
    }

    /// The same for a record with a size.
    pub(crate) fn try_take_for(
        self: &Arc<Self>,
        key: SessionKey,
        principal: &Principal,
        weight: Weight,
        max: usize,
        per_principal: usize,
    ) -> Result<CountGuard, Full> {
        let mut counts = self.counts.lock();
        if counts.total >= max {
            return Err(Full::InAll);
        }
        if counts.by_principal.get(principal).copied().unwrap_or(0) >= per_principal {
            return Err(Full::OfPrincipal);
        }
        counts.weights.take(weight).map_err(Full::Weight)?;
        counts.begins(key, principal);
        drop(counts);
        Ok(self.guard(key, CountedRecord { principal: Some(principal.clone()), weight }))
    }

    /// Counts a session that is put into the store without being created here, even beyond the limits.
    pub(crate) fn enter(self: &Arc<Self>, key: SessionKey, principal: &Principal) -> CountGuard {
        let mut counts = self.counts.lock();
        counts.begins(key, principal);
        drop(counts);
        self.guard(key, principal.clone().into())
    }

    /// The guard of a session that was found in the store. The scan may not have counted it yet.
    pub(crate) fn guard_of(self: &Arc<Self>, key: SessionKey, principal: &Principal) -> CountGuard {
        let entry = CountedRecord::from(principal.clone());
        self.counts.lock().count_now(key, &entry);
        self.guard(key, entry)
    }

    /// Announces that a record that was found in the store is about to be removed. The scan may not have counted it
    /// yet.
    pub(crate) fn leaving(&self, key: SessionKey, entry: impl Into<CountedRecord>) -> Leaving<'_> {
        let entry = entry.into();
        self.counts.lock().count_now(key, &entry);
        Leaving { counter: self, key, entry }
    }

    /// Announces that a record that was found in the store is about to have another size. The scan may not have counted
    /// it yet.
    ///
    /// # Errors
    /// When the record grows and the new size does not fit.
    pub(crate) fn resizing(
        &self,
        key: SessionKey,
        entry: &CountedRecord,
        bytes: usize,
    ) -> Result<Resizing<'_>, budget::Full> {
        let mut counts = self.counts.lock();
        counts.count_now(key, entry);
        counts.weights.take(entry.weight.growth(bytes))?;
        drop(counts);
        Ok(Resizing::new(self, entry.weight, bytes))
    }

    fn guard(self: &Arc<Self>, key: SessionKey, entry: CountedRecord) -> CountGuard {
        CountGuard { counter: Arc::clone(self), key, entry, kept: false }
    }

    /// Runs the scan: counts the records that earlier processes left in a space. If the store fails, the next call goes
    /// on from there.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn count<E: Into<CountedRecord>>(
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

    /// The key after which the scan goes on; `None` if the scan is done.
    #[expect(clippy::option_option, reason = "nothing to do, and everything to do")]
    fn uncounted(&self) -> Option<Option<SessionKey>> {
        let counts = self.counts.lock();
        (!counts.all_counted).then_some(counts.counted)
    }

    /// Counts one record of the scan. Records come in key order.
    fn found(&self, key: SessionKey, entry: Option<&CountedRecord>) {
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
    /// Makes the scan skip a key. True if the scan would have counted it.
    fn settle(&mut self, key: SessionKey) -> bool {
        let had_its_turn = self.all_counted || self.counted.is_some_and(|last| key <= last);
        !had_its_turn && self.settled.insert(key)
    }

    /// Counts a new record.
    fn begins(&mut self, key: SessionKey, principal: &Principal) {
        self.settle(key);
        self.add_one(principal);
        if let Some(recount) = &mut self.recount {
            recount.begins(key, principal);
        }
    }

    /// Counts a record that is in the store, unless it is counted already.
    fn count_now(&mut self, key: SessionKey, entry: &CountedRecord) {
        if self.settle(key) {
            self.add(entry);
        }
    }

    /// Counts a record that is in the store already, even beyond the limits.
    fn add(&mut self, entry: &CountedRecord) {
        self.weights.take_anyway(entry.weight);
        if let Some(principal) = &entry.principal {
            self.add_one(principal);
        }
    }

    fn add_one(&mut self, principal: &Principal) {
        self.total += 1;
        *self.by_principal.entry_ref(principal).or_insert(0) += 1;
    }

    fn remove(&mut self, key: SessionKey, entry: &CountedRecord) {
        self.weights.give_back(entry.weight);
        let Some(principal) = &entry.principal else { return };
        if let Some(recount) = &mut self.recount {
            recount.ends(key, principal);
        }
        // Every removal follows an addition, so neither count can fall below zero. If that is wrong, a count that is
        // too low is better than a panic.
        self.total = self.total.saturating_sub(1);
        if let Some(held) = self.by_principal.get_mut(principal) {
            *held -= 1;
            if *held == 0 {
                self.by_principal.remove(principal);
            }
        }
    }
}

impl CountGuard {
    /// Drops the guard, and the record stays counted: it is in the store, but no longer in memory.
    pub(crate) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        if !self.kept {
            self.counter.counts.lock().remove(self.key, &self.entry);
        }
    }
}

impl Leaving<'_> {
    /// The record was removed.
    pub(crate) fn left(self) {
        self.counter.counts.lock().remove(self.key, &self.entry);
    }

    /// The record was replaced by a tombstone of this size.
    pub(crate) fn left_with(self, bytes: usize) {
        let mut counts = self.counter.counts.lock();
        counts.remove(self.key, &self.entry);
        counts.weights.take_anyway(Weight { bytes, ..self.entry.weight });
    }
}
