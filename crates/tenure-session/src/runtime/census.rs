//! Counts sessions, in all and by principal, and hands out seats up to the limits.
//!
//! A session counts from its creation to its end, awake or dormant. Those that an earlier process left in the
//! store are counted in the background, in key order; until that is done the count is low.

use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::error::{Error, Reason};
use crate::id::{Principal, SessionKey};
use crate::limits::Limits;
use crate::port::store::{Record, Space, Store};

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
    /// Sessions of an earlier process are counted up to this key.
    counted: Option<SessionKey>,
    all_counted: bool,
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

impl Census {
    /// A seat, unless there are as many as there may be.
    pub(crate) fn take(self: &Arc<Self>, principal: &Principal, limits: &Limits) -> Result<Seat, Error> {
        let (max, per_principal) = (limits.max_sessions, limits.max_sessions_per_principal);
        self.try_take(principal, max, per_principal).map_err(|full| match full {
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
        counts.add(principal);
        Ok(self.seat(principal))
    }

    /// The seat of a session that is counted already.
    pub(crate) fn seat(self: &Arc<Self>, principal: &Principal) -> Seat {
        Seat { census: Arc::clone(self), principal: principal.clone(), kept: false }
    }

    /// Counts what an earlier process left in a space, page by page.
    pub(crate) async fn count(
        &self,
        store: &dyn Store,
        space: Space,
        owner_of: impl Fn(&Record) -> Option<Principal> + Send,
    ) {
        let mut after = None;
        loop {
            let page = match store.list(space, after, PAGE).await {
                Ok(page) => page,
                Err(error) => {
                    tracing::warn!(%error, ?space, "could not count what is in the store");
                    break;
                }
            };
            let Some((last, _)) = page.last() else { break };
            after = Some(*last);
            for (key, record) in &page {
                if let Some(owner) = owner_of(record) {
                    self.found(*key, &owner);
                }
            }
            tokio::task::yield_now().await;
        }
        self.found_all();
    }

    /// Counts a session that an earlier process left; they come in key order.
    fn found(&self, key: SessionKey, principal: &Principal) {
        let mut counts = self.counts.lock();
        counts.counted = Some(key);
        counts.add(principal);
    }

    /// All sessions of earlier processes are counted.
    fn found_all(&self) {
        self.counts.lock().all_counted = true;
    }

    /// A session ended without having been woken. `earlier` says that an earlier process left it.
    pub(crate) fn leave(&self, key: SessionKey, principal: &Principal, earlier: bool) {
        let mut counts = self.counts.lock();
        if !earlier || counts.has_counted(key) {
            counts.remove(principal);
        }
    }

    /// A session came into the store without having been created here. The opposite of [`Census::leave`].
    pub(crate) fn enter(&self, key: SessionKey, principal: &Principal, earlier: bool) {
        let mut counts = self.counts.lock();
        // One that is still to be counted with the others of earlier processes is not counted twice.
        if !earlier || counts.has_counted(key) {
            counts.add(principal);
        }
    }

    pub(crate) fn total(&self) -> usize {
        self.counts.lock().total
    }
}

impl Counts {
    /// Whether a session of an earlier process with this key has had its turn.
    fn has_counted(&self, key: SessionKey) -> bool {
        self.all_counted || self.counted.is_some_and(|last| key <= last)
    }

    fn add(&mut self, principal: &Principal) {
        self.total += 1;
        *self.by_principal.entry_ref(principal).or_insert(0) += 1;
    }

    fn remove(&mut self, principal: &Principal) {
        // A session that ends while it is being counted may be missed; the count then is off by one.
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
