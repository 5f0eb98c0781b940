//! Limits how much of each resource all clients together, and each client alone, may use in this process.
//!
//! Every resource has a total. A peer gets more as long as enough stays free for all others: with a share of one half,
//! at least as much as the peer holds itself. So neither one peer nor many can use up a total, and each new peer still
//! finds room. Dropping a [`Taken`] gives its amount back.
//!
//! In: the [`Peer`] and the amount. Out: a [`Taken`], or [`Full`]. It never waits and does no I/O. A take and a return
//! cost two atomic additions each; only new connections and operators use the lock.

mod unread;

#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;

pub use unread::Unread;

/// A resource that clients use up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Resource {
    /// Bytes of messages in memory: requests being received or handled, unread answers, queued events.
    Memory,
    /// Running requests without a session, except listens.
    Calls,
    /// Listens of requests without a session.
    Listens,
    /// Calls that wait for their client to come back with answers.
    Parked,
    /// Sessions in memory.
    Sessions,
    /// Bytes in the store: of data sessions and of their tombstones.
    Disk,
}

impl Resource {
    /// Every resource.
    pub const ALL: [Self; 6] =
        [Self::Memory, Self::Calls, Self::Listens, Self::Parked, Self::Sessions, Self::Disk];

    /// Its name, for operators.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Calls => "calls",
            Self::Listens => "listens",
            Self::Parked => "parked",
            Self::Sessions => "sessions",
            Self::Disk => "disk",
        }
    }

    /// Whether it is counted in bytes.
    pub const fn is_bytes(self) -> bool {
        matches!(self, Self::Memory | Self::Disk)
    }
}

const COUNT: usize = Resource::ALL.len();

/// The totals, and how much of each one peer may hold.
#[derive(Clone, Debug)]
pub struct BudgetLimits {
    totals: [usize; COUNT],
    /// The percentage of a total that one peer may hold if no other peer holds anything.
    share: u32,
}

impl Default for BudgetLimits {
    /// No limit at all.
    fn default() -> Self {
        Self { totals: [usize::MAX; COUNT], share: 100 }
    }
}

impl BudgetLimits {
    /// The same with this total.
    #[must_use]
    pub fn with(mut self, resource: Resource, total: usize) -> Self {
        self.totals[resource as usize] = total;
        self
    }

    /// The same with this share for one peer, in percent: 1 to 100, where 100 means that one peer may hold everything.
    #[must_use]
    pub fn with_share(mut self, percent: u32) -> Self {
        self.share = percent.clamp(1, 100);
        self
    }
}

/// The owner of a share: a client's address. IPv6 addresses count by network (/64), because one host can use any
/// address of its network.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Peer(Option<IpAddr>);

impl Peer {
    /// The client of a process without a network, or of an embedder that does not name its callers.
    pub const UNKNOWN: Self = Self(None);

    /// The peer at this address.
    pub fn at(address: IpAddr) -> Self {
        Self(Some(match address.to_canonical() {
            IpAddr::V6(v6) => {
                let [a, b, c, d, ..] = v6.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            v4 @ IpAddr::V4(_) => v4,
        }))
    }

    /// Its address, or the first one of its network.
    pub fn address(self) -> Option<IpAddr> {
        self.0
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(IpAddr::V6(v6)) => write!(f, "{v6}/64"),
            Some(v4) => write!(f, "{v4}"),
            None => f.write_str("unknown"),
        }
    }
}

/// The account of all peers. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Budget(Arc<Totals>);

#[derive(Debug, Default)]
struct Totals {
    limits: BudgetLimits,
    used: [AtomicUsize; COUNT],
    /// Locked for new connections and for operators only.
    peers: Mutex<HashMap<Peer, Weak<Account>, RandomState>>,
}

#[derive(Debug)]
struct Account {
    peer: Peer,
    totals: Arc<Totals>,
    used: [AtomicUsize; COUNT],
    unread: Mutex<unread::List>,
}

/// How much of a resource is in use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Usage {
    /// The resource.
    pub resource: Resource,
    /// Used by all peers together.
    pub used: usize,
    /// The total.
    pub total: usize,
    /// Used by each peer, the largest first.
    pub peers: Vec<(Peer, usize)>,
}

impl Budget {
    /// An account with these limits.
    pub fn new(limits: BudgetLimits) -> Self {
        Self(Arc::new(Totals { limits, ..Totals::default() }))
    }

    /// The share of a peer. All calls for the same peer return the same share.
    pub fn share(&self, peer: Peer) -> Share {
        let mut peers = self.0.peers.lock();
        if let Some(account) = peers.get(&peer).and_then(Weak::upgrade) {
            return Share(account);
        }
        // Entries of peers that are gone are removed only when the table is full.
        if peers.len() == peers.capacity() {
            peers.retain(|_, account| account.strong_count() > 0);
        }
        let account = Arc::new(Account {
            peer,
            totals: Arc::clone(&self.0),
            used: Default::default(),
            unread: Mutex::default(),
        });
        peers.insert(peer, Arc::downgrade(&account));
        Share(account)
    }

    /// How much of a resource all peers use together, in percent of its total.
    pub fn percent(&self, resource: Resource) -> usize {
        let (used, total) =
            (self.0.used[resource as usize].load(Ordering::Relaxed), self.0.limits.totals[resource as usize]);
        used.saturating_mul(100) / total.max(1)
    }

    /// The usage of every resource, with the peers that use it.
    pub fn usage(&self) -> Vec<Usage> {
        let accounts: Vec<Arc<Account>> = self.0.peers.lock().values().filter_map(Weak::upgrade).collect();
        let of = |resource: Resource| {
            let index = resource as usize;
            let used = |account: &Arc<Account>| (account.peer, account.used[index].load(Ordering::Relaxed));
            let mut peers: Vec<(Peer, usize)> =
                accounts.iter().map(used).filter(|(_, used)| *used > 0).collect();
            peers.sort_by_key(|(peer, used)| (std::cmp::Reverse(*used), *peer));
            let used = self.0.used[index].load(Ordering::Relaxed);
            Usage { resource, used, total: self.0.limits.totals[index], peers }
        };
        Resource::ALL.into_iter().map(of).collect()
    }
}

/// The share of one peer. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Share(Arc<Account>);

/// The limit that a request for more would exceed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Full {
    /// The total of all peers.
    InAll,
    /// The peer's own share.
    OfPeer,
}

impl Share {
    /// The peer that owns the share.
    pub fn peer(&self) -> Peer {
        self.0.peer
    }

    /// Takes this amount.
    ///
    /// # Errors
    /// When it does not fit. Then nothing is taken.
    pub fn take(&self, resource: Resource, amount: usize) -> Result<Taken, Full> {
        self.0.add(resource, amount)?;
        Ok(Taken { account: Arc::clone(&self.0), resource, amount })
    }

    /// Takes this amount even if it does not fit: for something that is held already and only has to be counted.
    pub fn take_anyway(&self, resource: Resource, amount: usize) -> Taken {
        self.0.add_anyway(resource, amount);
        Taken { account: Arc::clone(&self.0), resource, amount }
    }

    /// Whether the peer holds more than it may.
    pub fn is_over(&self, resource: Resource) -> bool {
        let index = resource as usize;
        let (total, own) =
            (self.0.totals.used[index].load(Ordering::Relaxed), self.0.used[index].load(Ordering::Relaxed));
        self.0.fits(index, total, own).is_err()
    }
}

impl Account {
    fn add(&self, resource: Resource, amount: usize) -> Result<(), Full> {
        let index = resource as usize;
        let (total, own) = self.add_anyway(resource, amount);
        let fits = self.fits(index, total, own);
        if fits.is_err() {
            // Between the two steps other requests may have been refused that would have fitted. That is accepted.
            self.give_back(resource, amount);
        }
        fits
    }

    /// Returns the new usage, of all peers and of this peer.
    fn add_anyway(&self, resource: Resource, amount: usize) -> (usize, usize) {
        let index = resource as usize;
        let total = self.totals.used[index].fetch_add(amount, Ordering::Relaxed);
        let own = self.used[index].fetch_add(amount, Ordering::Relaxed);
        (total.saturating_add(amount), own.saturating_add(amount))
    }

    fn give_back(&self, resource: Resource, amount: usize) {
        let index = resource as usize;
        self.used[index].fetch_sub(amount, Ordering::Relaxed);
        self.totals.used[index].fetch_sub(amount, Ordering::Relaxed);
    }

    fn fits(&self, index: usize, total: usize, own: usize) -> Result<(), Full> {
        let limit = self.totals.limits.totals[index];
        if limit == usize::MAX {
            return Ok(());
        }
        let Some(free) = limit.checked_sub(total) else { return Err(Full::InAll) };
        // A peer may always hold one, however small its share of the total is.
        if own == 1 {
            return Ok(());
        }
        let share = self.totals.limits.share as usize;
        // own / free ≤ share / (100 - share): a peer that is alone can reach exactly its share of the total.
        let is_within = own.saturating_mul(100 - share) <= free.saturating_mul(share);
        if share == 100 || is_within { Ok(()) } else { Err(Full::OfPeer) }
    }
}

/// An amount of a resource; given back when dropped.
#[derive(Debug)]
#[must_use = "it is given back when it is dropped"]
pub struct Taken {
    account: Arc<Account>,
    resource: Resource,
    amount: usize,
}

impl Taken {
    /// The share that it was taken from.
    pub fn share(&self) -> Share {
        Share(Arc::clone(&self.account))
    }

    /// The amount.
    pub fn amount(&self) -> usize {
        self.amount
    }

    /// Changes the amount.
    ///
    /// # Errors
    /// When the new amount does not fit. Then the old amount stays.
    pub fn resize(&mut self, amount: usize) -> Result<(), Full> {
        if amount > self.amount {
            self.account.add(self.resource, amount - self.amount)?;
        } else {
            self.account.give_back(self.resource, self.amount - amount);
        }
        self.amount = amount;
        Ok(())
    }

    /// Changes the amount even if the new one does not fit.
    pub fn resize_anyway(&mut self, amount: usize) {
        if amount > self.amount {
            self.account.add_anyway(self.resource, amount - self.amount);
        } else {
            self.account.give_back(self.resource, self.amount - amount);
        }
        self.amount = amount;
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.account.give_back(self.resource, self.amount);
    }
}
