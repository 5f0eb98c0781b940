//! The thread that frees disk space after many removals, and memory when the writer pauses.
//!
//! To remove a key, the engine writes a tombstone. It drops key and tombstone only when it merges tables, and in a
//! quiet store it never merges. So after enough removals this thread writes the memory into tables and merges the
//! keyspaces with many tombstones. At least a quarter of every merge is waste that is dropped, so the cost of merging
//! is a bounded multiple of the removals, however large the store is.
//!
//! The engine keeps what was written last in memory until more is written, and so the memory of a flood for as long as
//! the store is quiet. A few seconds after a flood this thread writes it into tables. It does so only after enough bytes,
//! so a store that is written to slowly gets no small tables, and one that is not written to costs nothing.

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

/// The writer pauses if it writes no more than `FEW_BYTES` within this many looks.
const PAUSE: u32 = 20;

const FEW_BYTES: u64 = 1 << 20;

/// The number of written bytes that makes it worthwhile to empty the memory.
const MUCH_BYTES: u64 = 4 << 20;

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
        // Journals that the opening read are in memory too.
        let mut pause = WritePause::new(self.keyspaces.database.write_buffer_size());
        while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
            let removed = self.progress.removed.load(Ordering::Acquire);
            let calm = std::mem::replace(&mut seen, removed) == removed;
            let full = self.room.full().is_some();
            rested += 1;
            if pause.look(self.progress.written.load(Ordering::Acquire))
                && !self.progress.is_poisoned()
                && self.room.takes_tables(&self.keyspaces)
                && let Err(error) = self.empty_memory(stopped)
            {
                tracing::warn!(%error, "could not write the memory into tables");
            }
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
            if !self.is_in_tables(keyspace, stopped) {
                return Ok(());
            }
            if self.is_worth_it(keyspace) {
                keyspace.major_compact()?;
                merged = true;
            }
        }
        if merged {
            self.let_go()?;
        }
        Ok(())
    }

    /// Writes the memory of keyspaces that hold much into tables.
    fn empty_memory(&self, stopped: &Receiver<()>) -> Result<(), fjall::Error> {
        for keyspace in self.keyspaces.all() {
            if keyspace.tree.active_memtable().size() >= FEW_BYTES {
                keyspace.rotate_memtable()?;
            }
        }
        if self.keyspaces.all().into_iter().all(|keyspace| self.is_in_tables(keyspace, stopped)) {
            self.let_go()?;
        }
        Ok(())
    }

    /// Waits until all sealed memory of a keyspace is in tables; `false` if that is given up.
    fn is_in_tables(&self, keyspace: &Keyspace, stopped: &Receiver<()>) -> bool {
        while keyspace.sealed_memtable_count() > 0 {
            if stopped.recv_timeout(Duration::from_millis(10)) != Err(RecvTimeoutError::Timeout)
                || self.progress.is_poisoned()
            {
                return false;
            }
        }
        true
    }

    /// Makes the engine drop what only old versions of its trees hold: memory that is in tables by now, and merged tables.
    /// It does that only when it rotates a memtable that is not empty, and up to the last write.
    fn let_go(&self) -> Result<(), fjall::Error> {
        self.keyspaces.meta.insert(layout::META_TIDIED, [])?;
        self.keyspaces.meta.rotate_memtable().map(drop)
    }

    fn is_worth_it(&self, keyspace: &Keyspace) -> bool {
        let tombstones = keyspace.tree.tombstone_count();
        let entries = keyspace.approximate_len() as u64;
        // A merge writes the new tables before it deletes the old ones.
        tombstones > 0 && tombstones * SHARE >= entries && self.room.spare() >= keyspace.disk_space()
    }
}

/// Finds pauses of the writer after which there is memory to empty.
struct WritePause {
    /// Bytes that may be in memory.
    held: u64,
    /// The count of written bytes at the last look, and how much it grew since `looks` began.
    written: u64,
    lately: u64,
    looks: u32,
}

impl WritePause {
    fn new(held: u64) -> Self {
        Self { held, written: 0, lately: 0, looks: 0 }
    }

    /// Notes the count of written bytes. Returns whether the memory is to be emptied.
    fn look(&mut self, written: u64) -> bool {
        let more = written - std::mem::replace(&mut self.written, written);
        (self.held, self.lately) = (self.held + more, self.lately + more);
        self.looks += 1;
        if self.lately > FEW_BYTES {
            (self.lately, self.looks) = (0, 0);
        }
        if self.looks < PAUSE {
            return false;
        }
        (self.lately, self.looks) = (0, 0);
        let is_due = self.held >= MUCH_BYTES;
        if is_due {
            self.held = 0;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc;

    use bytes::Bytes;
    use fjall::AbstractTree;
    use tempfile::TempDir;
    use tenure_session::id::{NodeId, Position, SessionKey, StreamId};
    use tenure_session::port::clock::Time;
    use tenure_session::port::store::{EntryPlace, NewEvent, ReadLimit, Store};

    use super::{FEW_BYTES, MUCH_BYTES, PAUSE, Tidy, WritePause};
    use crate::disk::{Disk, Sync};

    /// Looks until the memory is to be emptied, while this much is written between two looks.
    fn looks_until_due(pause: &mut WritePause, written: &mut u64, between: u64, most: u32) -> Option<u32> {
        (1..=most).find(|_| {
            *written += between;
            pause.look(*written)
        })
    }

    #[test]
    fn memory_is_emptied_once_after_a_flood_and_not_under_it() {
        let (mut pause, mut written) = (WritePause::new(0), 0);
        assert_eq!(looks_until_due(&mut pause, &mut written, FEW_BYTES, 1000), None, "a flood");
        assert_eq!(looks_until_due(&mut pause, &mut written, 0, 1000), Some(PAUSE));
        assert_eq!(looks_until_due(&mut pause, &mut written, 0, 1000), None, "nothing was written since");
    }

    #[test]
    fn a_store_that_is_written_to_slowly_gets_no_small_tables() {
        let (mut pause, mut written) = (WritePause::new(0), 0);
        let slowly = 1024;
        for _ in 0..3 {
            let before = written;
            let due = looks_until_due(&mut pause, &mut written, slowly, 1_000_000);
            assert!(due.is_some() && written - before >= MUCH_BYTES, "{} bytes", written - before);
        }
    }

    #[test]
    fn what_an_opening_reads_is_emptied_too() {
        let mut pause = WritePause::new(MUCH_BYTES);
        assert_eq!(looks_until_due(&mut pause, &mut 0, 0, 1000), Some(PAUSE));
        assert_eq!(looks_until_due(&mut WritePause::new(MUCH_BYTES - 1), &mut 0, 0, 1000), None);
    }

    #[tokio::test]
    async fn emptied_memory_is_let_go_of_and_everything_can_be_read() {
        let folder = TempDir::new().unwrap();
        let store = Disk::open(folder.path(), Sync::Os).unwrap();
        let session = SessionKey::from_bytes([1; 16]);
        let epoch = store.claim(session, NodeId::random(), None).await.unwrap();
        let body = Bytes::from(vec![b'a'; 64 << 10]);
        for _ in 0..64 {
            let (stream, at) = (StreamId::new(0), Time(1_000));
            let event = NewEvent { stream, body: body.clone(), place: EntryPlace::Middle, at };
            store.append(session, epoch, vec![event]).await.unwrap();
        }
        let tidy = store.cell().with(|engine| Tidy {
            keyspaces: Arc::clone(&engine.keyspaces),
            progress: Arc::clone(&engine.progress),
            room: Arc::clone(&engine.room),
        });
        let tidy = tidy.unwrap();
        let events = &tidy.keyspaces.events.tree;
        assert!(events.version_memtable_size_sum() >= 4 << 20);
        let (_stop, stopped) = mpsc::channel();
        tidy.empty_memory(&stopped).unwrap();
        assert_eq!(events.version_memtable_size_sum(), 0, "in memory, also of old versions");
        let all = ReadLimit { events: usize::MAX, bytes: usize::MAX };
        let read = store.read(session, StreamId::new(0), Position::START, all).await.unwrap();
        assert_eq!(read.events.len(), 64);
        assert!(read.events.iter().all(|event| event.body == body));
    }
}
