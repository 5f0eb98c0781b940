//! How long this node may act: the rules of its lease, on one clock that goes on while the machine is suspended
//! ([`Clock::uptime`]). A machine that wakes up after its lease must not act before it has asked.
//!
//! A question costs one clock read and a comparison with an atomic. So a process that was paused learns it from its
//! first question afterwards, without a timer that would have to run first.
//!
//! [`Clock::uptime`]: crate::port::clock::Clock::uptime

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A node is confirmed this long after it sent its last acknowledged renewal.
pub(super) const CONFIRMED_FOR: Duration = Duration::from_secs(3);

/// A time during which this process has one name in the cluster. Sessions that it owned in an earlier term are lost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct LeaseTerm(pub(super) u64);

/// The lease of this node.
pub(super) struct Lease {
    /// The end of the lease, as an uptime in ns.
    until_ns: AtomicU64,
    term: AtomicU64,
}

impl Lease {
    pub(super) fn new() -> Self {
        Self { until_ns: AtomicU64::new(0), term: AtomicU64::new(0) }
    }

    /// Whether the node is confirmed.
    pub(super) fn is_confirmed(&self, now: Duration) -> bool {
        ns(now) < self.until_ns.load(Ordering::Acquire)
    }

    /// Whether the node is confirmed, under the name that it had in this term.
    pub(super) fn is_confirmed_in(&self, term: LeaseTerm, now: Duration) -> bool {
        // In this order: the lease of a later term is written after its number.
        self.is_confirmed(now) && self.term() == term
    }

    pub(super) fn term(&self) -> LeaseTerm {
        LeaseTerm(self.term.load(Ordering::Acquire))
    }

    /// A renewal that was sent at this time was acknowledged.
    pub(super) fn renewed(&self, sent: Duration) {
        self.until_ns.fetch_max(ns(sent + CONFIRMED_FOR), Ordering::AcqRel);
    }

    /// How long ago the last acknowledged renewal was sent; `None` before the first one of this term.
    pub(super) fn age(&self, now: Duration) -> Option<Duration> {
        let until = Duration::from_nanos(self.until_ns.load(Ordering::Acquire));
        Some(now.saturating_sub(until.checked_sub(CONFIRMED_FOR)?))
    }

    /// The node lost its name.
    pub(super) fn end_term(&self) {
        // In this order: no question may find the new term confirmed by the old lease.
        self.until_ns.store(0, Ordering::Release);
        self.term.fetch_add(1, Ordering::AcqRel);
    }
}

fn ns(uptime: Duration) -> u64 {
    u64::try_from(uptime.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_lease_counts_from_when_the_renewal_was_sent_and_an_older_one_does_not_shorten_it() {
        let began = SECOND * 1000;
        let lease = Lease::new();
        assert!(!lease.is_confirmed(began));
        lease.renewed(began + SECOND);
        assert!(lease.is_confirmed(began + SECOND * 3));
        assert!(!lease.is_confirmed(began + SECOND * 4));
        lease.renewed(began);
        assert!(lease.is_confirmed(began + SECOND * 3));
    }

    #[test]
    fn a_new_name_has_to_be_confirmed_anew_and_confirms_nothing_of_the_old_one() {
        let began = SECOND * 1000;
        let lease = Lease::new();
        let first = lease.term();
        lease.renewed(began);
        assert!(lease.is_confirmed_in(first, began));
        lease.end_term();
        assert!(!lease.is_confirmed(began));
        lease.renewed(began);
        assert!(lease.is_confirmed_in(lease.term(), began));
        assert!(!lease.is_confirmed_in(first, began));
    }
}
