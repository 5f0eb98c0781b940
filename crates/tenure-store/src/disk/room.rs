//! Watches the free space of the filesystem and refuses writes that grow the store when little is left.
//!
//! A failed journal write poisons the engine, so the store keeps a reserve. Removals may use the reserve except its
//! last bytes; writes that grow the store may not. The reserve is a base plus the bytes that the engine may need for
//! its own work: it writes its memory into tables before it deletes the journal, and a merge writes the new tables
//! before it deletes the old ones. The memory counts for both, because a full store that has written it into tables
//! also needs room to merge them. The keeper measures the free space in every round, and the writer after a number of
//! bytes, so that a burst of writes cannot use up the reserve between two measurements.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tenure_session::port::store::StoreError;

use super::layout::Keyspaces;

/// The default base of the reserve.
const BASE_BYTES: u64 = 256 << 20;

/// On a small filesystem the base is at most one in this many bytes.
const BASE_SHARE: u64 = 20;

/// The most bytes that one merge writes: twice a full first level, and the level below it.
const MERGE_BYTES: u64 = 768 << 20;

/// The writer measures again after this many bytes, at the latest.
const LOOK_BYTES: u64 = 1 << 20;

/// Bytes that removals leave free, because a journal write without room poisons the engine.
const LEAST_BYTES: u64 = 1 << 20;

/// How a store is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Health {
    /// Reads and writes work.
    Ok,
    /// Writes that grow the store fail until there is room again.
    Full {
        /// Free bytes of the filesystem.
        free: u64,
        /// Bytes kept in reserve.
        reserve: u64,
    },
    /// The engine failed to write. Reads work, and the engine is opened anew as soon as that can succeed.
    Poisoned,
    /// The failed engine is closed and another one is being opened. Neither reads nor writes work.
    Closed,
    /// Opening the engine anew failed and is retried. Neither reads nor writes work.
    Down,
    /// This process cannot open the engine anew.
    Lost,
}

/// Whether a write makes the store larger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Growth {
    /// It adds entries.
    Grows,
    /// It replaces an entry by one that is not larger.
    Stays,
    /// It removes entries. The tombstones are written too.
    Shrinks,
}

pub(super) struct Room {
    folder: PathBuf,
    /// The base of the reserve. 0 turns all checks off.
    base: u64,
    /// Free bytes at the last measurement.
    free: AtomicU64,
    /// Bytes written since then.
    since: AtomicU64,
    /// Bytes that the engine may need for its own work.
    work: AtomicU64,
    full: AtomicBool,
    /// Held during a measurement: two at once would both subtract from `since` and make it wrap below zero.
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

    /// The size of the reserve in bytes: with less free space, the store is full.
    pub(super) fn reserve(&self) -> u64 {
        match self.base {
            0 => 0,
            base => base + self.work.load(Ordering::Acquire),
        }
    }

    /// `Health::Full` if the store is full.
    pub(super) fn full(&self) -> Option<Health> {
        let full = self.full.load(Ordering::Acquire);
        full.then(|| Health::Full { free: self.free.load(Ordering::Acquire), reserve: self.reserve() })
    }

    /// Whether there is room to write the memory into tables.
    pub(super) fn takes_tables(&self, keyspaces: &Keyspaces) -> bool {
        let free = self.free.load(Ordering::Acquire).saturating_sub(self.since.load(Ordering::Acquire));
        self.base == 0 || free >= keyspaces.database.write_buffer_size() + LEAST_BYTES
    }

    /// Bytes that a merge which frees space may use. It leaves half of the base: since the store was full, removals
    /// have written to journals and tables too, and the reserve does not include that.
    pub(super) fn spare(&self) -> u64 {
        self.look();
        self.free.load(Ordering::Acquire).saturating_sub(self.base / 2)
    }

    /// Measures the free space and what the engine may need.
    pub(super) fn survey(&self, keyspaces: &Keyspaces) {
        let largest = keyspaces.all().into_iter().map(fjall::Keyspace::disk_space).max().unwrap_or(0);
        let in_memory = keyspaces.database.write_buffer_size();
        let work = in_memory + (largest + in_memory).min(MERGE_BYTES);
        self.work.store(work, Ordering::Release);
        self.look();
    }

    /// Counts written bytes: they are in the journal now, and will go into a table and by a merge into another one.
    pub(super) fn wrote(&self, bytes: u64) {
        self.since.fetch_add(bytes, Ordering::AcqRel);
        self.work.fetch_add(bytes * 2, Ordering::AcqRel);
    }

    /// Checks that there is room for this many bytes, which include the uncommitted batch.
    pub(super) fn admit(&self, bytes: u64, growth: Growth) -> Result<(), StoreError> {
        if self.base == 0 {
            return Ok(());
        }
        // Writes that do not grow the store still need journal space, so the last half is for removals alone.
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
        if fits() {
            return Ok(());
        }
        if growth == Growth::Grows {
            // More than the reserve may be free, but less than the write needs. It counts as full all the same: only a
            // full store is reported, and tidied up.
            self.set_full(true);
        }
        Err(StoreError::Full)
    }

    fn look(&self) {
        let _alone = self.looking.lock();
        // Bytes written during the measurement may or may not be in the result; they stay counted, to be safe.
        let counted = self.since.load(Ordering::Acquire);
        match space(&self.folder) {
            Ok((free, _)) => {
                self.free.store(free, Ordering::Release);
                self.since.fetch_sub(counted, Ordering::AcqRel);
                self.judge(free);
            }
            // Without a result the last one stays valid, and bytes written since still count against it.
            Err(error) => tracing::warn!(%error, "could not read the free space of the store's disk"),
        }
    }

    fn judge(&self, free: u64) {
        let reserve = self.reserve();
        let was = self.full.load(Ordering::Acquire);
        // Hysteresis: a full store needs a little more than the reserve before it counts as not full.
        let enough = if was { reserve + self.base / 8 } else { reserve };
        self.set_full(free < enough);
    }

    fn set_full(&self, is: bool) {
        let was = self.full.swap(is, Ordering::AcqRel);
        let (free, reserve) = (self.free.load(Ordering::Acquire), self.reserve());
        match (was, is) {
            (false, true) => tracing::warn!(free, reserve, "the disk is full: the store refuses to grow"),
            (true, false) => tracing::info!(free, reserve, "the disk has room again"),
            _ => {}
        }
    }
}

/// The free bytes and the size of the filesystem of a folder.
pub(super) fn space(folder: &Path) -> std::io::Result<(u64, u64)> {
    let stat = rustix::fs::statvfs(folder)?;
    Ok((stat.f_bavail.saturating_mul(stat.f_frsize), stat.f_blocks.saturating_mul(stat.f_frsize)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_refuses_to_grow_counts_as_full() {
        let room = Room::new(&std::env::temp_dir(), Some(8)).expect("a folder");
        assert_eq!(room.admit(1, Growth::Grows), Ok(()));
        assert_eq!(room.full(), None);
        // Far more than the reserve is free.
        assert_eq!(room.admit(1 << 60, Growth::Stays), Err(StoreError::Full));
        assert_eq!(room.full(), None, "it could grow");
        assert_eq!(room.admit(1 << 60, Growth::Grows), Err(StoreError::Full));
        assert!(room.full().is_some());
        room.look();
        assert_eq!(room.full(), None, "there is room for others");
    }

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
