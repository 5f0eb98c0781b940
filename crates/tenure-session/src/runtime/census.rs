//! Counts sessions, states or tasks, in all and by principal, and hands out seats up to the limits.
//!
//! A session counts from its creation to its end, awake or dormant. Those that an earlier process left in the store
//! are counted in the background, page by page in key order; until that is done the count is low. Sessions come and go
//! meanwhile. Therefore a writer announces a record here before it writes or removes it. From then on the writer keeps
//! the count of that key, and the background passes over the key, whether or not it is on a page that was read before.

use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;

use crate::error::{Error, Reason};
use crate::id::{Principal, SessionKey};
use crate::limits::Limits;
use crate::port::store::{Record, Space, Store, StoreError};

/// Records that are counted at a time.
const PAGE: usize = 256;

#[derive(Default)]
pub(crate) struct Census {
    counts: Mutex<Counts>,
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
}

/// Which limit is reached.
#[derive(Debug)]
pub(crate) enum Full {
    InAll,
    OfPrincipal,
}

/// The right to hold one session; given back when dropped.
pub(crate) struct Seat {
    census: Arc<Census>,
    principal: Principal,
    /// The session is not over: it only sleeps, and counts on.
    kept: bool,
}

/// A record that is about to be removed. It counts until [`Leaving::left`].
#[must_use = "it counts until it has left"]
pub(crate) struct Leaving<'a> {
    census: &'a Census,
    principal: Principal,
}

impl Census {
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
        })
    }

    pub(crate) fn try_take(
        self: &Arc<Self>,
        key: SessionKey,
        principal: &Principal,
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
        counts.settle(key);
        counts.add(principal);
        Ok(self.seat(principal))
    }

    /// A seat for a session that comes into the store without having been created here, whatever the limits say.
    pub(crate) fn enter(self: &Arc<Self>, key: SessionKey, principal: &Principal) -> Seat {
        let mut counts = self.counts.lock();
        counts.settle(key);
        counts.add(principal);
        self.seat(principal)
    }

    /// The seat of a session that was found in the store and may not be counted yet.
    pub(crate) fn seat_of(self: &Arc<Self>, key: SessionKey, principal: &Principal) -> Seat {
        self.counts.lock().count_now(key, principal);
        self.seat(principal)
    }

    /// A session that was found in the store, and may not be counted yet, is about to be removed.
    pub(crate) fn leaving(&self, key: SessionKey, principal: Principal) -> Leaving<'_> {
        self.counts.lock().count_now(key, &principal);
        Leaving { census: self, principal }
    }

    fn seat(self: &Arc<Self>, principal: &Principal) -> Seat {
        Seat { census: Arc::clone(self), principal: principal.clone(), kept: false }
    }

    /// Counts the records that earlier processes left in a space. If the store fails, the next call goes on from there.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn count(
        &self,
        store: &dyn Store,
        space: Space,
        owner_of: impl Fn(&Record) -> Option<Principal> + Send,
    ) -> Result<(), StoreError> {
        while let Some(after) = self.uncounted() {
            let page = store.list(space, after, PAGE).await?;
            if page.is_empty() {
                self.found_all();
            }
            for (key, record) in &page {
                self.found(*key, owner_of(record).as_ref());
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
    fn found(&self, key: SessionKey, owner: Option<&Principal>) {
        let mut counts = self.counts.lock();
        counts.counted = Some(key);
        let is_settled = counts.settled.remove(&key);
        if let Some(owner) = owner
            && !is_settled
        {
            counts.add(owner);
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
    fn count_now(&mut self, key: SessionKey, principal: &Principal) {
        if self.settle(key) {
            self.add(principal);
        }
    }

    fn add(&mut self, principal: &Principal) {
        self.total += 1;
        *self.by_principal.entry_ref(principal).or_insert(0) += 1;
    }

    fn remove(&mut self, principal: &Principal) {
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
            self.census.counts.lock().remove(&self.principal);
        }
    }
}

impl Leaving<'_> {
    /// It is gone.
    pub(crate) fn left(self) {
        self.census.counts.lock().remove(&self.principal);
    }
}
