//! The thread that frees disk space after many removals.
//!
//! To remove a key, the engine writes a tombstone. It drops key and tombstone only when it merges tables, and in a
//! quiet store it never merges. So after enough removals this thread writes the memory into tables and merges the
//! keyspaces with many tombstones. At least a quarter of every merge is waste that is dropped, so the cost of merging
//! is a bounded multiple of the removals, however large the store is.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use fjall::{AbstractTree, Keyspace};

use super::job::WriterProgress;
use super::layout::{self, Keyspaces};
use super::room::Room;

/// The interval between two looks.
const EVERY: Duration = Duration::from_millis(500);

/// The least number of looks between two rounds, and the most looks that a round waits for removals to stop.
const REST: u32 = 10;

/// The number of removed keys that makes a round worthwhile.
const MANY: u64 = 2048;

/// A keyspace is merged if at least one in this many entries is a tombstone.
const SHARE: u64 = 4;

pub(super) struct Tidy {
    pub(super) keyspaces: Arc<Keyspaces>,
    pub(super) progress: Arc<WriterProgress>,
    pub(super) room: Arc<Room>,
}

impl Tidy {
    /// Runs until the sender of `stopped` sends or is dropped.
    pub(super) fn run(self, stopped: &Receiver<()>) {
        // The count of removed keys when the last round began, and at the last look.
        let (mut tidied, mut seen) = (0, 0);
        // The number of looks since the last round, and since a round became due.
        let (mut rested, mut waited) = (REST, 0);
        while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
            let removed = self.progress.removed.load(Ordering::Acquire);
            let calm = std::mem::replace(&mut seen, removed) == removed;
            let full = self.room.full().is_some();
            rested += 1;
            if self.progress.is_poisoned() || (removed - tidied < MANY && !full) {
                continue;
            }
            // A round first needs room to write the memory into tables.
            if !self.room.takes_tables(&self.keyspaces) {
                continue;
            }
            // Wait until a burst of removals is over, so that one round covers it; but do not wait for ever.
            waited += 1;
            if !(calm || waited > REST) || rested < REST {
                continue;
            }
            // A round fails only if the engine fails, and the keeper notices that.
            if let Err(error) = self.round(stopped) {
                tracing::warn!(%error, "could not free disk space");
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
            // The engine deletes merged tables only when it rotates a memtable that is not empty.
            self.keyspaces.meta.insert(layout::META_TIDIED, [])?;
            self.keyspaces.meta.rotate_memtable()?;
        }
        Ok(())
    }

    fn is_worth_it(&self, keyspace: &Keyspace) -> bool {
        let tombstones = keyspace.tree.tombstone_count();
        let entries = keyspace.approximate_len() as u64;
        // A merge writes the new tables before it deletes the old ones.
        tombstones > 0 && tombstones * SHARE >= entries && self.room.spare() >= keyspace.disk_space()
    }
}
