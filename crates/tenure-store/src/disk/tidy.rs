//! The thread that brings room back after much was removed.
//!
//! The engine removes by writing a tombstone, and forgets the two together only when it merges tables of its own
//! accord, which a quiet store never comes to. So once enough was removed, what is in memory is written out
//! and the keyspaces that consist of tombstones to a good part are merged. At least a quarter of every merge
//! is waste that goes, so merging costs a bounded multiple of what was removed, however large the store is.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use fjall::{AbstractTree, Keyspace};

use super::job::Progress;
use super::layout::{self, Keyspaces};
use super::room::Room;

/// How often it looks.
const EVERY: Duration = Duration::from_millis(500);

/// The least number of looks between two rounds, and the most that a round waits for others to stop removing.
const REST: u32 = 10;

/// Fewer keys than this are not worth a round.
const MANY: u64 = 2048;

/// One tombstone in so many entries makes a keyspace worth a merge.
const SHARE: u64 = 4;

pub(super) struct Tidy {
    pub(super) keyspaces: Arc<Keyspaces>,
    pub(super) progress: Arc<Progress>,
    pub(super) room: Arc<Room>,
}

impl Tidy {
    /// Runs until it is told to stop, or nobody is left who could tell it.
    pub(super) fn run(self, stopped: &Receiver<()>) {
        // What was removed when a round last began, and what it was at the last look.
        let (mut tidied, mut seen) = (0, 0);
        // Looks since the last round, and since there is something to do.
        let (mut rested, mut waited) = (REST, 0);
        while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
            let removed = self.progress.removed.load(Ordering::Acquire);
            let calm = std::mem::replace(&mut seen, removed) == removed;
            let full = self.room.full().is_some();
            rested += 1;
            if self.progress.is_poisoned() || (removed - tidied < MANY && !full) {
                continue;
            }
            // A round writes out what is in memory before it makes room.
            if !self.room.takes_tables(&self.keyspaces) {
                continue;
            }
            // One round for all that is removed at once, but not never while something always is.
            waited += 1;
            if !(calm || waited > REST) || rested < REST {
                continue;
            }
            // A round that fails has failed in the engine, which the keeper notices.
            if let Err(error) = self.round(stopped) {
                tracing::warn!(%error, "could not bring room back");
            }
            (tidied, rested, waited) = (removed, 0, 0);
        }
    }

    fn round(&self, stopped: &Receiver<()>) -> Result<(), fjall::Error> {
        for keyspace in self.keyspaces.all() {
            keyspace.rotate_memtable()?;
        }
        let mut merged = false;
        for keyspace in self.keyspaces.all() {
            while keyspace.sealed_memtable_count() > 0 {
                if stopped.recv_timeout(Duration::from_millis(10)) != Err(RecvTimeoutError::Timeout)
                    || self.progress.is_poisoned()
                {
                    return Ok(());
                }
            }
            if self.is_worth_it(keyspace) {
                keyspace.major_compact()?;
                merged = true;
            }
        }
        if merged {
            // The engine lets go of merged tables only when it rotates a memtable with something in it.
            self.keyspaces.meta.insert(layout::META_TIDIED, [])?;
            self.keyspaces.meta.rotate_memtable()?;
        }
        Ok(())
    }

    fn is_worth_it(&self, keyspace: &Keyspace) -> bool {
        let tombstones = keyspace.tree.tombstone_count();
        let entries = keyspace.approximate_len() as u64;
        // The new tables are written before the old ones go.
        tombstones > 0 && tombstones * SHARE >= entries && self.room.spare() >= keyspace.disk_space()
    }
}
