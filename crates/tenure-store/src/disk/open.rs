//! Opening and closing a disk store.
//!
//! A store is a folder with the engine's `data` and the mark beside it. Its user holds a [`Disk`], which stays the same
//! when the engine behind it is closed and opened anew.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::thread::JoinHandle;

use fjall::{CompressionType, Database, PersistMode};
use tenure_session::port::clock::Time;

use super::engine::{Engine, join, thread};
use super::error::DiskError;
use super::job::Signal;
use super::layout::{self, Keyspaces};
use super::private;
use super::revive::{EngineCell, Reviver};
use super::room::Health;

/// Size of the journals at which the engine moves their contents into tables.
const JOURNAL_BYTES: u64 = 64 << 20;

/// Blocks of tables that the engine keeps in memory. Clients read what was written last, and that is in memory anyway.
const CACHE_BYTES: u64 = 16 << 20;

/// What a finished write survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sync {
    /// The end of the process; the write is on the disk within 100 ms.
    #[default]
    Os,
    /// A loss of power: every write waits for the sync of its batch.
    Disk,
}

/// How a disk store is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskOptions {
    /// What a finished write survives.
    pub sync: Sync,
    /// Bytes kept free on the filesystem, in addition to what the engine needs for its own work. By default 256 MiB, or
    /// 5 % of a small filesystem. With 0 there is no reserve, and a full disk poisons the store.
    pub reserve_bytes: Option<u64>,
    /// The time of day; the system's, if it is left out.
    pub now: Option<Time>,
    /// How many table files are kept open; 900 by default. For short times a few more are open.
    pub max_files: Option<usize>,
}

/// A store on disk. One process at a time may have it open.
///
/// An engine that failed to write is closed and opened anew as soon as that can succeed. Until then the store can be
/// read, and writes fail.
pub struct Disk {
    cell: Arc<EngineCell>,
    signals: std_mpsc::Sender<Signal>,
    reviver: Option<JoinHandle<()>>,
}

impl Disk {
    /// Opens the store in a folder, or makes a new one there.
    ///
    /// # Errors
    /// When it is in use, damaged, of another version, or the folder cannot be used.
    pub fn open(folder: &Path, sync: Sync) -> Result<Self, DiskError> {
        Self::open_with(folder, DiskOptions { sync, ..DiskOptions::default() })
    }

    /// Opens the store in a folder, or makes a new one there.
    ///
    /// # Errors
    /// When it is in use, damaged, of another version, or the folder cannot be used.
    pub fn open_with(folder: &Path, options: DiskOptions) -> Result<Self, DiskError> {
        let io = DiskError::io(folder);
        private::make_store(folder).map_err(&io)?;
        let (signals, told) = std_mpsc::channel();
        let engine = Engine::open(folder, options, signals.clone())?;
        let cell = Arc::new(EngineCell::new(folder, options, engine));
        let reviver = Reviver::new(Arc::clone(&cell), signals.clone());
        let reviver = thread("tenure-revive", move || reviver.run(&told)).map_err(&io)?;
        Ok(Self { cell, signals, reviver: Some(reviver) })
    }

    /// How the store is doing. Costs next to nothing.
    pub fn health(&self) -> Health {
        self.cell.health()
    }

    pub(super) fn cell(&self) -> &EngineCell {
        &self.cell
    }
}

impl Drop for Disk {
    /// Waits for the writer, so that every write it took is synced.
    fn drop(&mut self) {
        // Sending fails if the reviver has ended already.
        let _ = self.signals.send(Signal::Stop);
        join(self.reviver.take(), |_| false);
        drop(self.cell.take());
    }
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disk").field("sync", &self.cell.options().sync).finish_non_exhaustive()
    }
}

/// Opens the engine in a folder, or makes it.
pub(super) fn open_data(
    folder: &Path,
    data: &Path,
    max_files: Option<usize>,
) -> Result<Keyspaces, DiskError> {
    let engine = |cause| DiskError::engine(folder, cause);
    // Made before the engine makes it, because the engine would give other users access.
    private::make(data).map_err(DiskError::io(folder))?;
    // Journals are not compressed: the engine starts the next journal by the size of the file, and opening a store
    // reads all uncompressed bytes. Repetitive contents would grow to gigabytes.
    let builder = Database::builder(data)
        .cache_size(CACHE_BYTES)
        .max_journaling_size(JOURNAL_BYTES)
        .journal_compression(CompressionType::None);
    let builder = match max_files {
        Some(most) => builder.max_cached_files(Some(most.max(LEAST_FILES))),
        None => builder,
    };
    let keyspaces = Keyspaces::open(builder.open().map_err(engine)?).map_err(engine)?;
    // The engine syncs everything that it creates except the names of the keyspaces' folders.
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

/// The smallest number that the engine accepts.
const LEAST_FILES: usize = 10;

/// Syncs a folder and its parent, so that the names in it and its own name survive a loss of power.
pub(super) fn sync_folder(folder: &Path) -> std::io::Result<()> {
    std::fs::File::open(folder)?.sync_all()?;
    match std::path::absolute(folder)?.parent() {
        Some(parent) => std::fs::File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}
