//! Limits for client addresses: sessions that they begin, and credentials that they fail with.
//!
//! An address is an IPv4 address or a network (/64) of IPv6, as [`Peer`] says. These limits are on by default, but not for clients
//! on loopback: all programs of a machine have the same address there, and a developer who opens a hundred sessions does nothing
//! wrong. A limit that is written in the configuration holds for all addresses.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tenure_protocol::Error;

use super::{Rate, RateCell, RateTable, Sharers, Stopwatch, rate_limited};
use crate::budget::Peer;

/// Addresses that are remembered. Each takes about a hundred bytes.
const MOST: usize = 100_000;

/// A limit for each address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressRate {
    /// The rate.
    pub rate: Rate,
    /// Whether it holds for clients on loopback too.
    pub on_loopback: bool,
}

impl AddressRate {
    /// The limit for `initialize` if nothing else is configured.
    pub fn of_initialize() -> Self {
        Self { rate: Rate::new(30, Duration::from_secs(60), 30), on_loopback: false }
    }

    /// The limit for failed credentials if nothing else is configured.
    pub fn of_failures() -> Self {
        Self { rate: Rate::new(10, Duration::from_secs(60), 10), on_loopback: false }
    }

    fn holds_for(&self, peer: Peer) -> bool {
        // The network of `::1` begins with `::`.
        let is_here = |address: IpAddr| address.is_loopback() || address.is_unspecified();
        peer.address().is_some_and(|address| self.on_loopback || !is_here(address))
    }
}

/// The limits for addresses, with what is remembered of each address. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AddressRates(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    initialize: Option<AddressRate>,
    failures: Option<AddressRate>,
    begun: RateTable<Peer, RateCell>,
    failed: RateTable<Peer, RateCell>,
    nodes: Sharers,
    clock: Stopwatch,
}

impl AddressRates {
    /// These limits; `None` means no limit.
    pub fn new(initialize: Option<AddressRate>, failures: Option<AddressRate>) -> Self {
        Self::among(initialize, failures, Sharers::default())
    }

    /// These limits, divided among nodes.
    pub fn among(initialize: Option<AddressRate>, failures: Option<AddressRate>, nodes: Sharers) -> Self {
        let (begun, failed) = (RateTable::new(MOST), RateTable::new(MOST));
        Self(Arc::new(Inner { initialize, failures, begun, failed, nodes, clock: Stopwatch::start() }))
    }

    /// Counts a session that an address begins.
    ///
    /// # Errors
    /// When the address begins more than it may.
    pub fn begin(&self, peer: Peer) -> Result<(), Error> {
        self.check(self.0.initialize.as_ref(), &self.0.begun, peer)
    }

    /// Counts credentials that were refused.
    ///
    /// # Errors
    /// When the address fails more often than it may.
    pub fn fail(&self, peer: Peer) -> Result<(), Error> {
        self.check(self.0.failures.as_ref(), &self.0.failed, peer)
    }

    fn check(
        &self,
        limit: Option<&AddressRate>,
        table: &RateTable<Peer, RateCell>,
        peer: Peer,
    ) -> Result<(), Error> {
        let Some(AddressRate { rate, .. }) = limit.filter(|limit| limit.holds_for(peer)) else {
            return Ok(());
        };
        let now = self.0.clock.now();
        let cell = table.entry(&peer, now, RateCell::default);
        cell.check(&rate.among(self.0.nodes.count()), now, 1)
            .map_err(|wait| rate_limited("address", rate, wait))
    }

    /// Forgets addresses of which there is nothing to remember.
    pub fn sweep(&self) {
        let now = self.0.clock.now();
        self.0.begun.sweep(now);
        self.0.failed.sweep(now);
    }

    /// The limits for `initialize` and for failed credentials.
    pub fn limits(&self) -> (Option<AddressRate>, Option<AddressRate>) {
        (self.0.initialize, self.0.failures)
    }

    /// How many addresses are remembered, and how many of them can begin nothing now.
    pub fn tallies(&self) -> (usize, usize) {
        let now = self.0.clock.now();
        let is_used_up = |rate: &AddressRate, cell: &RateCell| cell.left(&rate.rate, now) == 0;
        let begun = self.0.begun.some(MOST);
        let used_up = begun
            .iter()
            .filter(|(_, cell)| self.0.initialize.as_ref().is_some_and(|rate| is_used_up(rate, cell)));
        (begun.len(), used_up.count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> Peer {
        Peer::at(text.parse().expect("an address"))
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_begins_thirty_sessions_in_a_minute_and_loopback_as_many_as_it_likes() {
        let rates = AddressRates::new(Some(AddressRate::of_initialize()), Some(AddressRate::of_failures()));
        for _ in 0..1000 {
            assert!(rates.begin(peer("127.0.0.1")).is_ok() && rates.begin(peer("::1")).is_ok());
            assert!(rates.begin(Peer::UNKNOWN).is_ok());
        }
        let begins = |from: &str| (0..50).filter(|_| rates.begin(peer(from)).is_ok()).count();
        assert_eq!((begins("192.0.2.1"), begins("192.0.2.2")), (30, 30), "each for itself");
        // A host can have any address of its network.
        assert_eq!((begins("2001:db8::1"), begins("2001:db8::ffff:2")), (30, 0));
        let fails = (0..50).filter(|_| rates.fail(peer("192.0.2.1")).is_ok()).count();
        assert_eq!(fails, 10);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(begins("192.0.2.1"), 1);
        tokio::time::advance(Duration::from_secs(60)).await;
        rates.sweep();
        assert_eq!(rates.tallies(), (0, 0));
    }
}
