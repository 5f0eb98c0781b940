//! Opening and closing a disk store.
//!
//! A store is a folder with the engine's `data`, and the mark beside it. Opening starts two threads: the writer,
//! and the keeper, which syncs and watches. Closing waits for both, so that everything taken is on the disk.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use fjall::{Database, PersistMode};
use tenure_session::port::clock::{Clock, SystemClock, Time};
use tokio::sync::{Notify, mpsc};

use super::error::DiskError;
use super::guard;
use super::job::{Progress, Write};
use super::keeper::Keeper;
use super::layout::{self, Keyspaces};
use super::mark::Mark;
use super::recent::Recent;
use super::room::{Health, Room};
use super::tidy::Tidy;
use super::writer::Writer;
use crate::numbers;

/// Writes that may wait for the writer; beyond it callers wait.
const QUEUE: usize = 4096;

/// How far numbers leap when a store is opened: more than can be written between two syncs.
const LEAP: u64 = 1 << 20;

/// The most that the engine's journals may take before it empties them into tables.
const JOURNAL_BYTES: u64 = 64 << 20;

/// How often closing looks for a thread that has not ended, a millisecond apart, before a merge of tables that
/// is under way is left behind.
const MERGE_LOOKS: u32 = 5000;

/// What a finished write survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sync {
    /// The end of the process; the disk follows within 100 ms.
    #[default]
    Os,
    /// The loss of power: every write waits for the disk, together with the others of its batch.
    Disk,
}

/// How a disk store is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// What a finished write survives.
    pub sync: Sync,
    /// What is kept free on the filesystem, beyond what the engine needs for its own work. By default 256 MiB,
    /// or 5 % of a small filesystem. With 0 nothing is, and a full disk poisons the store.
    pub reserve_bytes: Option<u64>,
    /// The time of day; the system's, if it is left out.
    pub now: Option<Time>,
}

/// A store on disk. One process at a time may have it open.
pub struct Disk {
    keyspaces: Arc<Keyspaces>,
    progress: Arc<Progress>,
    room: Arc<Room>,
    recent: Arc<Recent>,
    sync: Sync,
    jobs: mpsc::Sender<Write>,
    close: Arc<Notify>,
    /// Dropping them stops the keeper and the one that tidies.
    stop: Vec<std_mpsc::Sender<()>>,
    writer: Option<JoinHandle<()>>,
    keeper: Option<JoinHandle<()>>,
    tidy: Option<JoinHandle<()>>,
}

impl Disk {
    /// Opens the store in a folder, or makes a new one there.
    ///
    /// # Errors
    /// When it is in use, damaged, of another version, or the folder cannot be used.
    pub fn open(folder: &Path, sync: Sync) -> Result<Self, DiskError> {
        Self::open_with(folder, Options { sync, ..Options::default() })
    }

    /// Opens the store in a folder, or makes a new one there.
    ///
    /// # Errors
    /// When it is in use, damaged, of another version, or the folder cannot be used.
    pub fn open_with(folder: &Path, options: Options) -> Result<Self, DiskError> {
        let io = DiskError::io(folder);
        let engine = |cause| DiskError::engine(folder, cause);
        make_folder(folder).map_err(&io)?;
        let mark = Mark::open(folder).map_err(&io)?;
        if mark.is_damaged() {
            let file = mark.path().display();
            tracing::warn!(%file, "the high-water mark is damaged: what was lost cannot be noticed by it");
        }
        guard::look(folder, &mark)?;
        let keyspaces = Arc::new(open_data(folder, &folder.join("data")).map_err(guard::find_files)?);
        sync_folder(folder).map_err(&io)?;
        let batch = keyspaces.number(layout::META_BATCH).map_err(engine)?.unwrap_or(0);
        if batch < mark.batch() {
            return Err(DiskError::Lost { path: folder.to_owned(), missing: mark.batch() - batch });
        }
        let progress = Arc::new(Progress::new());
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
        let writer =
            Writer::new(for_writer, its_progress, its_room, its_recent, persist, sequence).map_err(engine)?;
        let (jobs, queue) = mpsc::channel(QUEUE);
        let close = Arc::new(Notify::new());
        let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(&io)?;
        let written = writer.run(queue, Arc::clone(&close));
        let shared = || (Arc::clone(&keyspaces), Arc::clone(&progress), Arc::clone(&room));
        let keeper = {
            let (keyspaces, progress, room) = shared();
            Keeper { keyspaces, progress, room, mark }
        };
        let tidy = {
            let (keyspaces, progress, room) = shared();
            Tidy { keyspaces, progress, room }
        };
        let (stop_keeper, keeper_stopped) = std_mpsc::channel();
        let (stop_tidy, tidy_stopped) = std_mpsc::channel();
        Ok(Self {
            keyspaces,
            progress,
            room,
            recent,
            sync: options.sync,
            jobs,
            close,
            stop: vec![stop_keeper, stop_tidy],
            writer: Some(thread("tenure-store", move || runtime.block_on(written)).map_err(&io)?),
            keeper: Some(thread("tenure-sync", move || keeper.run(&keeper_stopped)).map_err(&io)?),
            tidy: Some(thread("tenure-tidy", move || tidy.run(&tidy_stopped)).map_err(&io)?),
        })
    }

    /// How the store is doing. Costs next to nothing.
    pub fn health(&self) -> Health {
        if self.progress.is_poisoned() {
            return Health::Poisoned;
        }
        self.room.full().unwrap_or(Health::Ok)
    }

    pub(super) fn jobs(&self) -> mpsc::Sender<Write> {
        self.jobs.clone()
    }

    pub(super) fn keyspaces(&self) -> &Arc<Keyspaces> {
        &self.keyspaces
    }

    pub(super) fn recent(&self) -> &Arc<Recent> {
        &self.recent
    }

    pub(super) fn room(&self) -> &Arc<Room> {
        &self.room
    }

    pub(super) fn progress(&self) -> &Progress {
        &self.progress
    }

    pub(super) fn sync(&self) -> Sync {
        self.sync
    }
}

/// The number after which this process gives out its own.
///
/// A loss of power may have taken writes whose numbers were already told to clients. The leap is wider than what
/// can be lost, so that no number ever means two things. If the store is a backup, its original may have given out more
/// than that since; see `numbers`. The leap is on the disk before any number is given out, in a file
/// of its own, or a process that loses all it wrote would be followed by one that leaps to the same numbers.
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

/// Opens the engine in a folder, or makes it.
pub(super) fn open_data(folder: &Path, data: &Path) -> Result<Keyspaces, DiskError> {
    let engine = |cause| DiskError::engine(folder, cause);
    let builder = Database::builder(data).max_journaling_size(JOURNAL_BYTES);
    let keyspaces = Keyspaces::open(builder.open().map_err(engine)?).map_err(engine)?;
    // The engine syncs everything it makes, but for the names of the keyspaces' folders.
    let names = std::fs::File::open(data.join("keyspaces")).and_then(|names| names.sync_all());
    names.map_err(DiskError::io(folder))?;
    match keyspaces.number(layout::META_FORMAT).map_err(engine)? {
        Some(layout::FORMAT) => {}
        Some(found) => return Err(DiskError::Format { path: folder.to_owned(), found }),
        None => {
            let format = layout::FORMAT.to_be_bytes();
            keyspaces.meta.insert(layout::META_FORMAT, format).map_err(engine)?;
            keyspaces.database.persist(PersistMode::SyncAll).map_err(engine)?;
        }
    }
    Ok(keyspaces)
}

/// Sees to it that the names in a folder outlast a loss of power, and that of the folder itself.
pub(super) fn sync_folder(folder: &Path) -> std::io::Result<()> {
    std::fs::File::open(folder)?.sync_all()?;
    match std::path::absolute(folder)?.parent() {
        Some(parent) => std::fs::File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run)
}

impl Drop for Disk {
    /// Waits for the writer: what was taken is written and synced.
    fn drop(&mut self) {
        self.close.notify_one();
        // The writer first, then the keeper, so that the mark covers everything. A writer that a failed engine
        // holds is left behind: it would never come.
        join(self.writer.take(), |_| self.progress.is_stuck());
        self.stop.clear();
        join(self.keeper.take(), |_| false);
        // A merge cannot be called off, and may be cut short by the end of the process without harm.
        join(self.tidy.take(), |looks| looks > MERGE_LOOKS);
    }
}

/// Waits for a thread, unless it is given up after so many looks.
fn join(thread: Option<JoinHandle<()>>, is_given_up: impl Fn(u32) -> bool) {
    let Some(thread) = thread else { return };
    let mut looks = 0;
    while !thread.is_finished() {
        if is_given_up(looks) {
            return tracing::warn!("a thread of the store is left behind");
        }
        std::thread::sleep(Duration::from_millis(1));
        looks += 1;
    }
    if thread.join().is_err() {
        tracing::error!("a thread of the store panicked");
    }
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disk").field("sync", &self.sync).finish_non_exhaustive()
    }
}

/// Makes the folder of a store, for its owner alone: what clients and servers say to each other is nobody else's
/// business. One that is there already keeps the rights it has.
pub(super) fn make_folder(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}
