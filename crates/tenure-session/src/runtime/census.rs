//! Counts sessions, in all and by principal, and hands out seats up to the limits.

use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::error::{Error, Reason};
use crate::id::Principal;
use crate::limits::Limits;

#[derive(Default)]
pub(super) struct Census {
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    total: usize,
    by_principal: HashMap<Principal, usize, RandomState>,
}

/// The right to hold one session; given back when dropped.
pub(super) struct Seat {
    census: Arc<Census>,
    principal: Principal,
}

impl Census {
    pub(super) fn take(self: &Arc<Self>, principal: &Principal, limits: &Limits) -> Result<Seat, Error> {
        let mut counts = self.counts.lock();
        if counts.total >= limits.max_sessions {
            return Err(Error::new(Reason::TooManySessions, "The server holds as many sessions as it may")
                .with("limit", limits.max_sessions));
        }
        let held = counts.by_principal.get(principal).copied().unwrap_or(0);
        if held >= limits.max_sessions_per_principal {
            return Err(Error::new(
                Reason::TooManySessionsOfPrincipal,
                "You hold as many sessions as you may; end one with DELETE",
            )
            .with("limit", limits.max_sessions_per_principal));
        }
        counts.total += 1;
        counts.by_principal.insert(principal.clone(), held + 1);
        Ok(Seat { census: Arc::clone(self), principal: principal.clone() })
    }

    pub(super) fn total(&self) -> usize {
        self.counts.lock().total
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut counts = self.census.counts.lock();
        counts.total -= 1;
        if let Some(held) = counts.by_principal.get_mut(&self.principal) {
            *held -= 1;
            if *held == 0 {
                counts.by_principal.remove(&self.principal);
            }
        }
    }
}
