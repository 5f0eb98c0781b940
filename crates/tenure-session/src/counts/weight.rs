//! Bytes that records take in the store, by the peer that made them.
//!
//! There may be millions of records, so this keeps one sum per peer and nothing per record: a writer that changes or
//! removes a record has read it, and knows its size.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::budget::{Budget, Full, Peer, Resource, Taken};
use crate::counts::RecordCounter;

/// The size of a record, and the peer whose share it uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Weight {
    pub(crate) peer: Peer,
    pub(crate) bytes: usize,
}

impl Weight {
    /// The weight of a record whose bytes are not counted.
    pub(super) const NONE: Self = Self { peer: Peer::UNKNOWN, bytes: 0 };

    /// By how much it grows if it becomes `bytes`.
    pub(super) fn growth(self, bytes: usize) -> Self {
        Self { bytes: bytes.saturating_sub(self.bytes), ..self }
    }

    fn shrinkage(self, bytes: usize) -> Self {
        Self { bytes: self.bytes.saturating_sub(bytes), ..self }
    }
}

/// The sums of all peers.
#[derive(Default)]
pub(super) struct Weights {
    budget: Budget,
    by_peer: HashMap<Peer, Taken, RandomState>,
}

impl Weights {
    pub(super) fn within(budget: Budget) -> Self {
        Self { budget, by_peer: HashMap::default() }
    }

    /// Takes this weight if it fits.
    pub(super) fn take(&mut self, Weight { peer, bytes }: Weight) -> Result<(), Full> {
        if bytes == 0 {
            return Ok(());
        }
        match self.by_peer.get_mut(&peer) {
            Some(taken) => taken.resize(taken.amount().saturating_add(bytes)),
            None => {
                let taken = self.budget.share(peer).take(Resource::Disk, bytes)?;
                self.by_peer.insert(peer, taken);
                Ok(())
            }
        }
    }

    /// Takes this weight even if it does not fit: for a record that is in the store already.
    pub(super) fn take_anyway(&mut self, Weight { peer, bytes }: Weight) {
        if bytes == 0 {
            return;
        }
        let taken = self.by_peer.entry(peer);
        let taken = taken.or_insert_with(|| self.budget.share(peer).take_anyway(Resource::Disk, 0));
        taken.resize_anyway(taken.amount().saturating_add(bytes));
    }

    pub(crate) fn give_back(&mut self, Weight { peer, bytes }: Weight) {
        let Some(taken) = self.by_peer.get_mut(&peer) else { return };
        // A write with an unknown outcome may have been counted wrongly. A low count is better than a panic.
        match taken.amount().saturating_sub(bytes) {
            0 => drop(self.by_peer.remove(&peer)),
            left => taken.resize_anyway(left),
        }
    }
}

/// A record whose size is about to change. Growth is taken at once, and given back unless [`Resizing::done`] is called;
/// shrinkage is given back by `done`.
#[must_use = "it counts as it was until it is done"]
pub(crate) struct Resizing<'a> {
    counter: &'a RecordCounter,
    before: Weight,
    bytes: usize,
    is_done: bool,
}

impl<'a> Resizing<'a> {
    pub(super) fn new(counter: &'a RecordCounter, before: Weight, bytes: usize) -> Self {
        Self { counter, before, bytes, is_done: false }
    }

    /// The record was written.
    pub(crate) fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for Resizing<'_> {
    fn drop(&mut self) {
        let surplus = match self.is_done {
            true => self.before.shrinkage(self.bytes),
            false => self.before.growth(self.bytes),
        };
        if surplus.bytes > 0 {
            self.counter.counts.lock().weights.give_back(surplus);
        }
    }
}
