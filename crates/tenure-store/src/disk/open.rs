//! Opening and closing a disk store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc as std_mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use fjall::{Database, PersistMode};
use tokio::sync::{Notify, mpsc};

use super::layout::{self, Keyspaces};
use super::mark::Mark;
use super::writer::{Progress, Write, Writer};

/// Writes that may wait for the writer; beyond it callers wait.
const QUEUE: usize = 4096;

/// How long after a write its bytes are on the disk at the latest, if nobody waits for that.
const SYNC_EVERY: Duration = Duration::from_millis(100);

/// What a finished write survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sync {
    /// The end of the process; the disk follows within 100 ms.
    #[default]
    Os,
    /// The loss of power: every write waits for the disk, together with the others of its batch.
    Disk,
}

/// Why a disk store cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// Another process has it open.
    #[error("`{}` is in use by another process", .0.display())]
    InUse(PathBuf),
    /// The engine cannot read it.
    #[error("`{}` cannot be opened", path.display())]
    Engine {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        cause: fjall::Error,
    },
    /// A file beside the data cannot be read or written.
    #[error("`{}` cannot be used", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// Written by another version of this program.
    #[error("`{}` has layout {found}; this version reads layout {}", path.display(), layout::FORMAT)]
    Format {
        /// Where.
        path: PathBuf,
        /// The layout that was found.
        found: u64,
    },
    /// Something that was safely on the disk is gone.
    #[error("`{}` has lost its last {missing} batches of writes: its journal is damaged", path.display())]
    Lost {
        /// Where.
        path: PathBuf,
        /// How many batches are missing.
        missing: u64,
    },
}

/// A store on disk. One process at a time may have it open.
pub struct Disk {
    keyspaces: Arc<Keyspaces>,
    progress: Arc<Progress>,
    sync: Sync,
    jobs: mpsc::Sender<Write>,
    close: Arc<Notify>,
    stop: Option<std_mpsc::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl Disk {
    /// Opens the store in a folder, or makes a new one there.
    ///
    /// # Errors
    /// When it is in use, damaged, of another version, or the folder cannot be used.
    pub fn open(folder: &Path, sync: Sync) -> Result<Self, DiskError> {
        let path = || folder.to_owned();
        let io = |cause| DiskError::Io { path: path(), cause };
        let engine = |cause| match cause {
            fjall::Error::Locked => DiskError::InUse(path()),
            cause => DiskError::Engine { path: path(), cause },
        };
        std::fs::create_dir_all(folder).map_err(io)?;
        let database = Database::builder(folder.join("data")).open().map_err(engine)?;
        let keyspaces = Arc::new(Keyspaces::open(database).map_err(engine)?);
        match keyspaces.number(layout::META_FORMAT).map_err(engine)? {
            Some(layout::FORMAT) => {}
            Some(found) => return Err(DiskError::Format { path: path(), found }),
            None => {
                let format = layout::FORMAT.to_be_bytes();
                keyspaces.meta.insert(layout::META_FORMAT, format).map_err(engine)?;
                keyspaces.database.persist(PersistMode::SyncAll).map_err(engine)?;
            }
        }
        let mark = Mark::open(folder).map_err(io)?;
        let batch = keyspaces.number(layout::META_BATCH).map_err(engine)?.unwrap_or(0);
        if batch < mark.batch() {
            return Err(DiskError::Lost { path: path(), missing: mark.batch() - batch });
        }
        let progress = Arc::new(Progress::default());
        let persist = match sync {
            Sync::Os => PersistMode::Buffer,
            Sync::Disk => PersistMode::SyncData,
        };
        let writer = Writer::new(Arc::clone(&keyspaces), Arc::clone(&progress), persist).map_err(engine)?;
        let (jobs, queue) = mpsc::channel(QUEUE);
        let close = Arc::new(Notify::new());
        let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(io)?;
        let written = writer.run(queue, Arc::clone(&close));
        let (stop, stopped) = std_mpsc::channel();
        let (for_sync, its_progress) = (Arc::clone(&keyspaces), Arc::clone(&progress));
        let threads = vec![
            thread("tenure-store", move || runtime.block_on(written)).map_err(io)?,
            thread("tenure-sync", move || keep_synced(&for_sync, &its_progress, mark, &stopped))
                .map_err(io)?,
        ];
        Ok(Self { keyspaces, progress, sync, jobs, close, stop: Some(stop), threads })
    }

    pub(super) fn jobs(&self) -> mpsc::Sender<Write> {
        self.jobs.clone()
    }

    pub(super) fn keyspaces(&self) -> &Arc<Keyspaces> {
        &self.keyspaces
    }

    pub(super) fn sync(&self) -> Sync {
        self.sync
    }

    /// Whether a commit failed, so that nothing is written any more.
    pub fn is_poisoned(&self) -> bool {
        self.progress.poisoned.load(Ordering::Acquire)
    }
}

fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run)
}

/// Syncs what was written since the last time and raises the mark, until told to stop.
fn keep_synced(keyspaces: &Keyspaces, progress: &Progress, mut mark: Mark, stopped: &std_mpsc::Receiver<()>) {
    loop {
        let last = stopped.recv_timeout(SYNC_EVERY) != Err(std_mpsc::RecvTimeoutError::Timeout);
        let batch = progress.batch.load(Ordering::Acquire);
        if batch > mark.batch() && !progress.poisoned.load(Ordering::Acquire) {
            match keyspaces.database.persist(PersistMode::SyncData) {
                Ok(()) => {
                    if let Err(error) = mark.raise(batch) {
                        tracing::warn!(%error, "could not raise the store's high-water mark");
                    }
                }
                Err(error) => {
                    tracing::error!(%error, "a sync failed: the store takes no more writes");
                    progress.poisoned.store(true, Ordering::Release);
                }
            }
        }
        if last {
            return;
        }
    }
}

impl Drop for Disk {
    /// Waits for the writer: what was taken is written and synced.
    fn drop(&mut self) {
        self.close.notify_one();
        let mut threads = std::mem::take(&mut self.threads).into_iter();
        // The writer first, then the one that syncs, so that the mark covers everything.
        if let Some(writer) = threads.next()
            && writer.join().is_err()
        {
            tracing::error!("the store's writer panicked");
        }
        self.stop = None;
        if let Some(sync) = threads.next()
            && sync.join().is_err()
        {
            tracing::error!("the store's sync thread panicked");
        }
    }
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disk").field("sync", &self.sync).finish_non_exhaustive()
    }
}
