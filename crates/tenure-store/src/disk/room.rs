//! How much room the filesystem has, and whether anything that grows may still be written.
//!
//! A journal write that fails poisons the engine, so it should not come to that. Some room is kept in reserve:
//! what removes things may use it, all but the last bytes, what grows is refused. The reserve is a base, plus what the engine may need
//! at any moment for its own work: everything that is only in memory goes into a table before its journal
//! goes, and a merge of tables writes the new ones before it removes the old ones. What is only in memory counts for both,
//! or a full store could write it out and would then lack the room to merge it. The thread that syncs looks
//! every time it comes round, and the writer looks after a number of bytes of its own, so that no burst between
//! two looks can eat the reserve.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tenure_session::port::store::StoreError;

use super::layout::Keyspaces;

/// The base of the reserve, unless it is configured.
const BASE_BYTES: u64 = 256 << 20;

/// The most that the base may take of a small filesystem, as a fraction.
const BASE_SHARE: u64 = 20;

/// The most that one merge writes: a full first level, twice over, and the level below it.
const MERGE_BYTES: u64 = 768 << 20;

/// The writer looks again after this many bytes, at the latest.
const LOOK_BYTES: u64 = 1 << 20;

/// What removals leave free: a journal write that finds no room poisons the engine.
const LEAST_BYTES: u64 = 1 << 20;

/// How a store is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Health {
    /// It reads and writes.
    Ok,
    /// It refuses what grows, until there is room again.
    Full {
        /// How many bytes the filesystem has left.
        free: u64,
        /// How many bytes are kept in reserve.
        reserve: u64,
    },
    /// The engine failed to write. It reads, and is opened anew as soon as that can succeed.
    Poisoned,
    /// The engine that failed is closed, and another one is being opened. It neither reads nor writes.
    Closed,
    /// It could not be opened anew: it is tried again and again, and neither reads nor writes.
    Down,
    /// It cannot be opened anew by this process.
    Lost,
}

/// Whether a write makes the store larger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Growth {
    /// It adds something.
    Grows,
    /// It replaces something by what is no larger.
    Stays,
    /// It removes something. That it did is written too.
    Shrinks,
}

pub(super) struct Room {
    folder: PathBuf,
    /// The base of the reserve. None at all turns all of this off.
    base: u64,
    /// What the filesystem had left at the last look.
    free: AtomicU64,
    /// What was written since.
    since: AtomicU64,
    /// What the engine may need for its own work.
    work: AtomicU64,
    full: AtomicBool,
    /// Held by whoever looks: two at once would both take off what was written since, and count it below zero.
    looking: Mutex<()>,
}

impl Room {
    pub(super) fn new(folder: &Path, base: Option<u64>) -> std::io::Result<Self> {
        let (free, total) = space(folder)?;
        Ok(Self {
            folder: folder.to_owned(),
            base: base.unwrap_or_else(|| BASE_BYTES.min(total / BASE_SHARE)),
            free: AtomicU64::new(free),
            since: AtomicU64::new(0),
            work: AtomicU64::new(0),
            full: AtomicBool::new(false),
            looking: Mutex::new(()),
        })
    }

    /// The store's folder.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// What is refused while the store is full, in bytes that are left.
    pub(super) fn reserve(&self) -> u64 {
        match self.base {
            0 => 0,
            base => base + self.work.load(Ordering::Acquire),
        }
    }

    /// How full it is, if it is.
    pub(super) fn full(&self) -> Option<Health> {
        let full = self.full.load(Ordering::Acquire);
        full.then(|| Health::Full { free: self.free.load(Ordering::Acquire), reserve: self.reserve() })
    }

    /// Whether what is in memory can be written into tables.
    pub(super) fn takes_tables(&self, keyspaces: &Keyspaces) -> bool {
        let free = self.free.load(Ordering::Acquire).saturating_sub(self.since.load(Ordering::Acquire));
        self.base == 0 || free >= keyspaces.database.write_buffer_size() + LEAST_BYTES
    }

    /// What a merge that makes room may use. Half of the base is left: what was removed since the store was full was written
    /// too, in journals and tables, and is not in the reserve.
    pub(super) fn spare(&self) -> u64 {
        self.look();
        self.free.load(Ordering::Acquire).saturating_sub(self.base / 2)
    }

    /// Looks at what is left, and at what the engine may need.
    pub(super) fn survey(&self, keyspaces: &Keyspaces) {
        let largest = keyspaces.all().into_iter().map(fjall::Keyspace::disk_space).max().unwrap_or(0);
        let in_memory = keyspaces.database.write_buffer_size();
        let work = in_memory + (largest + in_memory).min(MERGE_BYTES);
        self.work.store(work, Ordering::Release);
        self.look();
    }

    /// Counts what was written: into the journal now, and some time into a table and, by a merge, into another one.
    pub(super) fn wrote(&self, bytes: u64) {
        self.since.fetch_add(bytes, Ordering::AcqRel);
        self.work.fetch_add(bytes * 2, Ordering::AcqRel);
    }

    /// Whether there is room for so many more bytes, of which some are on their way already.
    pub(super) fn admit(&self, bytes: u64, growth: Growth) -> Result<(), StoreError> {
        if self.base == 0 {
            return Ok(());
        }
        // What does not grow costs room in the journal all the same, so the last half is for removals alone.
        let floor = match growth {
            Growth::Grows => self.reserve(),
            Growth::Stays => self.reserve() / 2,
            Growth::Shrinks => (self.base / 8).min(LEAST_BYTES),
        };
        if growth == Growth::Grows && self.full.load(Ordering::Acquire) {
            return Err(StoreError::Full);
        }
        let fits = || {
            let left = self.free.load(Ordering::Acquire).saturating_sub(self.since.load(Ordering::Acquire));
            left.saturating_sub(bytes) >= floor
        };
        let looked_lately = self.since.load(Ordering::Acquire) < LOOK_BYTES.min(self.base / 8);
        if fits() && looked_lately {
            return Ok(());
        }
        self.look();
        if fits() { Ok(()) } else { Err(StoreError::Full) }
    }

    fn look(&self) {
        let _alone = self.looking.lock();
        // What is written while we look may or may not be in the answer: it is counted, to be on the safe side.
        let counted = self.since.load(Ordering::Acquire);
        match space(&self.folder) {
            Ok((free, _)) => {
                self.free.store(free, Ordering::Release);
                self.since.fetch_sub(counted, Ordering::AcqRel);
                self.judge(free);
            }
            // Without an answer the last one stands, and what was written since keeps counting against it.
            Err(error) => tracing::warn!(%error, "cannot tell how much room the store's disk has"),
        }
    }

    fn judge(&self, free: u64) {
        let reserve = self.reserve();
        let was = self.full.load(Ordering::Acquire);
        // A little more than the reserve has to be there before it is over, so that it does not flicker.
        let enough = if was { reserve + self.base / 8 } else { reserve };
        let is = free < enough;
        self.full.store(is, Ordering::Release);
        match (was, is) {
            (false, true) => tracing::warn!(free, reserve, "the disk is full: the store refuses what grows"),
            (true, false) => tracing::info!(free, reserve, "the disk has room again"),
            _ => {}
        }
    }
}

/// What is left on the filesystem of a folder, and its size.
pub(super) fn space(folder: &Path) -> std::io::Result<(u64, u64)> {
    let stat = rustix::fs::statvfs(folder)?;
    Ok((stat.f_bavail.saturating_mul(stat.f_frsize), stat.f_blocks.saturating_mul(stat.f_frsize)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_from_two_threads_loses_no_count() {
        let room = Room::new(&std::env::temp_dir(), Some(1)).expect("a folder");
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    for _ in 0..5_000 {
                        room.wrote(1);
                        room.look();
                        let since = room.since.load(Ordering::Acquire);
                        assert!(since <= 20_000, "counted below zero: {since}");
                    }
                });
            }
        });
    }
}
