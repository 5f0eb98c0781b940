//! How much clients may make this process hold, in all and each of them.
//!
//! Every resource has a total. A peer gets what it asks for as long as enough stays free for all others: with a share of
//! one half, at least as much as it holds itself. So one peer can never use up a total, and neither can many: each
//! newcomer still finds room. What was taken is given back when the [`Taken`] is dropped.
//!
//! In: who asks ([`Peer`]) and for how much. Out: a [`Taken`], or [`Full`]. It never waits and does no I/O. Two atomic
//! additions per take and per return; the lock is for connections that come, not for requests.

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

/// What clients can make the server hold.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Resource {
    /// Bytes of messages in memory: requests that are received or carried out, answers that are not read yet, events
    /// that wait.
    Memory,
    /// Requests without a session that are carried out, listens not among them.
    Calls,
    /// Listens of requests without a session.
    Listens,
    /// Calls that wait for their client to come back with answers.
    Parked,
    /// Sessions in memory.
    Sessions,
    /// Bytes in the store: of data sessions, and of what is left of those that have ended.
    Disk,
}

impl Resource {
    /// Every resource there is.
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
    /// In percent of a total, if no other peer holds anything.
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

/// Whose share something comes from: an address. IPv6 counts by network (/64), since one host has as many addresses of it
/// as it likes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Peer(Option<IpAddr>);

impl Peer {
    /// The one client of a process without a network, and of an embedder that does not say who is calling.
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
    /// Looked at when a connection comes, and by operators.
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
    /// Of what.
    pub resource: Resource,
    /// By all together.
    pub used: usize,
    /// How much there is.
    pub total: usize,
    /// By whom, most first.
    pub peers: Vec<(Peer, usize)>,
}

impl Budget {
    /// An account with these limits.
    pub fn new(limits: BudgetLimits) -> Self {
        Self(Arc::new(Totals { limits, ..Totals::default() }))
    }

    /// The share of a peer. Everything that asks for the same peer gets the same one.
    pub fn share(&self, peer: Peer) -> Share {
        let mut peers = self.0.peers.lock();
        if let Some(account) = peers.get(&peer).and_then(Weak::upgrade) {
            return Share(account);
        }
        // As many entries of peers that are gone as the table has room for are kept, and no more.
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

    /// How much of everything is in use, and by whom.
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

/// There is not as much left as was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Full {
    /// Of all.
    InAll,
    /// Of what the peer may hold.
    OfPeer,
}

impl Share {
    /// Whose it is.
    pub fn peer(&self) -> Peer {
        self.0.peer
    }

    /// Takes so much.
    ///
    /// # Errors
    /// When there is not as much left. Then nothing is taken.
    pub fn take(&self, resource: Resource, amount: usize) -> Result<Taken, Full> {
        self.0.add(resource, amount)?;
        Ok(Taken { account: Arc::clone(&self.0), resource, amount })
    }

    /// Takes so much, whether or not it is there: for what is held already and must only be counted.
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
            // Others may have been refused meanwhile that would have fitted. They ask for more than what is left too.
            self.give_back(resource, amount);
        }
        fits
    }

    /// What is used then, in all and by this peer.
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
        // One thing can always be had, however small the total.
        if own == 1 {
            return Ok(());
        }
        let share = self.totals.limits.share as usize;
        // own / free ≤ share / (100 - share), so that a peer that is alone ends at its share of the total.
        let is_within = own.saturating_mul(100 - share) <= free.saturating_mul(share);
        if share == 100 || is_within { Ok(()) } else { Err(Full::OfPeer) }
    }
}

/// So much of a resource; given back when dropped.
#[derive(Debug)]
#[must_use = "it is given back when it is dropped"]
pub struct Taken {
    account: Arc<Account>,
    resource: Resource,
    amount: usize,
}

impl Taken {
    /// Whose share it comes from.
    pub fn share(&self) -> Share {
        Share(Arc::clone(&self.account))
    }

    /// How much it is.
    pub fn amount(&self) -> usize {
        self.amount
    }

    /// Makes it so much, more or less.
    ///
    /// # Errors
    /// When there is not as much left. Then it stays as it is.
    pub fn resize(&mut self, amount: usize) -> Result<(), Full> {
        if amount > self.amount {
            self.account.add(self.resource, amount - self.amount)?;
        } else {
            self.account.give_back(self.resource, self.amount - amount);
        }
        self.amount = amount;
        Ok(())
    }

    /// Makes it so much, whether or not it is there.
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
