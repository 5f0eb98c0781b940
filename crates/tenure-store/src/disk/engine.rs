//! The engine of an open store: its keyspaces, and the threads that work on them.
//!
//! Opening starts three threads: the writer, the keeper, which syncs and watches, and the tidy thread. Dropping the
//! engine waits for them, so that every accepted write is on the disk. An operation holds only the parts that it needs,
//! never the whole engine, so the engine can be closed at any time. Its files close when the last part is dropped.

use std::path::Path;
use std::sync::mpsc as std_mpsc;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use fjall::PersistMode;
use tenure_session::port::clock::{Clock, SystemClock, Time};
use tokio::sync::{Notify, mpsc};

use super::background::{in_background, lower_priority};
use super::error::DiskError;
use super::guard;
use super::job::{Signal, Write, WriterProgress};
use super::keeper::StoreKeeper;
use super::layout::{self, Keyspaces};
use super::mark::Mark;
use super::open::{DiskOptions, Sync, open_data, sync_folder};
use super::private::{self, Watch};
use super::recent::Recent;
use super::room::{Health, Room};
use super::tidy::Tidy;
use super::writer::StoreWriter;
use crate::numbers;

/// Capacity of the writer's queue; callers wait while it is full.
const QUEUE: usize = 4096;

/// How far the sequence number leaps when a store is opened: more than can be written between two syncs.
const LEAP: u64 = 1 << 20;

/// How often closing checks, a millisecond apart, whether the tidy thread has ended. After that it leaves the thread
/// and its merge of tables behind.
const MERGE_LOOKS: u32 = 5000;

/// An open store.
pub(super) struct Engine {
    pub(super) keyspaces: Arc<Keyspaces>,
    pub(super) progress: Arc<WriterProgress>,
    pub(super) room: Arc<Room>,
    pub(super) recent: Arc<Recent>,
    pub(super) jobs: mpsc::Sender<Write>,
    close: Arc<Notify>,
    /// Dropping them stops the keeper and the tidy thread.
    stop: Vec<std_mpsc::Sender<()>>,
    writer: Option<JoinHandle<()>>,
    keeper: Option<JoinHandle<()>>,
    tidy: Option<JoinHandle<()>>,
}

impl Engine {
    /// Opens the engine in a folder, or makes one there. It sends to `failed` when it fails later.
    pub(super) fn open(
        folder: &Path,
        options: DiskOptions,
        failed: std_mpsc::Sender<Signal>,
    ) -> Result<Self, DiskError> {
        let io = DiskError::io(folder);
        let engine = |cause| DiskError::engine(folder, cause);
        let mark = Mark::open(folder).map_err(&io)?;
        if mark.is_damaged() {
            let file = mark.path().display();
            tracing::warn!(%file, "the high-water mark is damaged, so lost writes cannot be detected");
        }
        guard::look(folder, &mark)?;
        let data = folder.join("data");
        let opened = in_background(|| open_data(folder, &data, options.max_files)).map_err(&io)?;
        let keyspaces = opened.map_err(guard::find_files)?;
        let keyspaces = Arc::new(keyspaces);
        private::close(folder).map_err(&io)?;
        sync_folder(folder).map_err(&io)?;
        let batch = keyspaces.number(layout::META_BATCH).map_err(engine)?.unwrap_or(0);
        if batch < mark.batch() {
            return Err(DiskError::Lost { path: folder.to_owned(), missing: mark.batch() - batch });
        }
        let progress = Arc::new(WriterProgress::new(failed));
        let room = Arc::new(Room::new(folder, options.reserve_bytes).map_err(&io)?);
        room.survey(&keyspaces);
        let persist = match options.sync {
            Sync::Os => PersistMode::Buffer,
            Sync::Disk => PersistMode::SyncData,
        };
        let written = keyspaces.number(layout::META_SEQUENCE).map_err(engine)?;
        let now = options.now.unwrap_or_else(|| SystemClock.now());
        let sequence = leap(folder, written, now).map_err(&io)?;
        let (for_writer, its_progress) = (Arc::clone(&keyspaces), Arc::clone(&progress));
        let recent = Arc::new(Recent::new());
        let (its_room, its_recent) = (Arc::clone(&room), Arc::clone(&recent));
        let writer = StoreWriter::new(for_writer, its_progress, its_room, its_recent, persist, sequence)
            .map_err(engine)?;
        let (jobs, queue) = mpsc::channel(QUEUE);
        let close = Arc::new(Notify::new());
        let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(&io)?;
        let written = writer.run(queue, Arc::clone(&close));
        let shared = || (Arc::clone(&keyspaces), Arc::clone(&progress), Arc::clone(&room));
        let keeper = {
            let (keyspaces, progress, room) = shared();
            StoreKeeper { keyspaces, progress, room, mark, watch: Watch::new(&data) }
        };
        let tidy = {
            let (keyspaces, progress, room) = shared();
            Tidy { keyspaces, progress, room }
        };
        let (of_writer, of_keeper) = (Arc::clone(&progress), Arc::clone(&progress));
        let (stop_keeper, keeper_stopped) = std_mpsc::channel();
        let (stop_tidy, tidy_stopped) = std_mpsc::channel();
        Ok(Self {
            keyspaces,
            progress,
            room,
            recent,
            jobs,
            close,
            stop: vec![stop_keeper, stop_tidy],
            writer: Some(
                thread("tenure-store", move || vital(&of_writer, || runtime.block_on(written)))
                    .map_err(&io)?,
            ),
            keeper: Some(
                thread("tenure-sync", move || vital(&of_keeper, || keeper.run(&keeper_stopped)))
                    .map_err(&io)?,
            ),
            tidy: Some(
                thread("tenure-tidy", move || {
                    lower_priority();
                    tidy.run(&tidy_stopped);
                })
                .map_err(&io)?,
            ),
        })
    }

    pub(super) fn health(&self) -> Health {
        if self.progress.is_poisoned() {
            return Health::Poisoned;
        }
        self.room.full().unwrap_or(Health::Ok)
    }

    /// Closes the engine. The returned reference dies when the files are closed too.
    pub(super) fn close(self) -> Weak<Keyspaces> {
        Arc::downgrade(&self.keyspaces)
    }
}

impl Drop for Engine {
    /// Waits for the threads, so that every write that the writer took is synced.
    fn drop(&mut self) {
        self.close.notify_one();
        // The writer first, then the keeper, so that the mark covers everything. A writer that is stuck in a failed
        // engine is left behind, because it would never end.
        join(self.writer.take(), |_| self.progress.is_stuck());
        self.stop.clear();
        join(self.keeper.take(), |_| false);
        // A merge cannot be cancelled, and the end of the process may cut it short without harm.
        join(self.tidy.take(), |looks| looks > MERGE_LOOKS);
    }
}

/// The number after which this process gives out its own.
///
/// A loss of power may have taken writes whose numbers clients already know. The leap is larger than the number of
/// writes that can be lost, so no number ever means two things. If the store is a backup, its original may have given
/// out more numbers since; see `numbers`. The result is written to a file of its own and synced before any number is
/// given out: otherwise, after a process that lost all its writes, the next one would leap to the same numbers.
fn leap(folder: &Path, written: Option<u64>, now: Time) -> std::io::Result<u64> {
    let mut numbers = Mark::of_numbers(folder)?;
    let sequence = match written.unwrap_or(0).max(numbers.batch()) {
        0 => 0,
        last => (last + LEAP).max(numbers::at(now)),
    };
    numbers.set(sequence.max(1))?;
    sync_folder(folder)?;
    Ok(sequence)
}

/// Runs the loop of a thread that writes depend on. If it panics, the engine counts as failed: no client may be told
/// that an event is kept when no thread writes or syncs it.
fn vital(progress: &WriterProgress, run: impl FnOnce()) {
    struct Fallen<'a>(&'a WriterProgress);
    impl Drop for Fallen<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                tracing::error!("a thread of the store panicked: the engine counts as failed");
                self.0.poison();
            }
        }
    }
    let _fallen = Fallen(progress);
    run();
}

pub(super) fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run)
}

/// Waits for a thread. `is_given_up` gets the number of checks so far and may end the wait.
pub(super) fn join(thread: Option<JoinHandle<()>>, is_given_up: impl Fn(u32) -> bool) {
    let Some(thread) = thread else { return };
    let mut looks = 0;
    while !thread.is_finished() {
        if is_given_up(looks) {
            return tracing::warn!("a thread of the store did not end in time and is left running");
        }
        std::thread::sleep(Duration::from_millis(1));
        looks += 1;
    }
    if thread.join().is_err() {
        tracing::error!("a thread of the store panicked");
    }
}

#[cfg(test)]
mod tests;
