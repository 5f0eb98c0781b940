//! Closes an engine that failed to write and opens another one on the same files.
//!
//! After a failed write the engine is not trusted again, whatever the reason: a full disk, no free file descriptor, a
//! broken disk. Every acknowledged write is in its files, so opening them again is like a restart of the process. The
//! failed engine stays open for reads until a new one can be opened; to find that out, this thread writes a test file
//! beside the store.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Weak};
use std::time::Duration;

use fjall::AbstractTree;
use parking_lot::RwLock;
use tenure_session::port::store::StoreError;

use super::engine::Engine;
use super::error::DiskError;
use super::job::Signal;
use super::layout::Keyspaces;
use super::open::DiskOptions;
use super::room::{self, Health};

/// The pause before the first attempt; it doubles with every attempt up to `LONGEST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// After an engine has worked this long, the back-off starts again at `FIRST_PAUSE`.
const CALM: Duration = Duration::from_secs(60);

/// Free bytes needed in addition to the memory of the engine, which is written into tables.
const LEAST_ROOM: u64 = 4 << 20;

/// Size of the test file.
const PROBE_BYTES: usize = 64 << 10;

/// Number of file descriptors that must be free.
const PROBE_FILES: usize = 8;

/// How often the thread tries to release a writer that is blocked in the failed engine.
const RELEASES: u32 = 20;

/// How many milliseconds running reads and backups may keep the files open.
const READERS_LOOKS: u32 = 60_000;

/// Holds the engine while it is open, and `None` between two engines.
pub(super) struct EngineCell {
    folder: PathBuf,
    options: DiskOptions,
    engine: RwLock<Option<Engine>>,
    /// The result of the last attempt to open it anew: 0 for no failure, `DOWN` or `LOST`.
    fate: AtomicU8,
}

const DOWN: u8 = 1;
const LOST: u8 = 2;

impl EngineCell {
    pub(super) fn new(folder: &Path, options: DiskOptions, engine: Engine) -> Self {
        let engine = RwLock::new(Some(engine));
        Self { folder: folder.to_owned(), options, engine, fate: AtomicU8::new(0) }
    }

    pub(super) fn options(&self) -> &DiskOptions {
        &self.options
    }

    /// Takes parts out of the engine. Fails while none is open.
    pub(super) fn with<T>(&self, parts: impl FnOnce(&Engine) -> T) -> Result<T, StoreError> {
        match &*self.engine.read() {
            Some(engine) => Ok(parts(engine)),
            None => {
                let words = "it is being opened anew after a write that failed";
                Err(StoreError::Unavailable(words.to_owned()))
            }
        }
    }

    pub(super) fn health(&self) -> Health {
        match self.fate.load(Ordering::Acquire) {
            LOST => Health::Lost,
            DOWN => Health::Down,
            _ => self.with(Engine::health).unwrap_or(Health::Closed),
        }
    }

    /// Takes the engine out so that the caller can close it outside the lock.
    pub(super) fn take(&self) -> Option<Engine> {
        self.engine.write().take()
    }

    fn put(&self, engine: Engine) {
        *self.engine.write() = Some(engine);
        self.fate.store(0, Ordering::Release);
    }
}

/// The thread that opens a failed engine anew.
pub(super) struct Reviver {
    cell: Arc<EngineCell>,
    /// For the next engine, which may fail too.
    signals: Sender<Signal>,
    pause: Duration,
    /// How often the thread tried to release the writer.
    releases: u32,
    /// The reason that was logged last, so that it is not logged again.
    logged_reason: String,
}

enum ReviveAttempt {
    Done,
    /// The attempt failed for this reason, and the next may succeed.
    NotYet(String),
    /// No attempt of this process can succeed, for this reason.
    Never(String),
    /// The store is closed.
    Over,
}

impl Reviver {
    pub(super) fn new(cell: Arc<EngineCell>, signals: Sender<Signal>) -> Self {
        Self { cell, signals, pause: FIRST_PAUSE, releases: 0, logged_reason: String::new() }
    }

    /// Runs until the store is closed, or this process cannot open it anew.
    pub(super) fn run(mut self, told: &Receiver<Signal>) {
        loop {
            let signal = match self.pause > FIRST_PAUSE {
                true => told.recv_timeout(CALM),
                false => told.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match signal {
                Ok(Signal::Failed) => {
                    if self.revive(told).is_none() {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.pause = FIRST_PAUSE,
                Ok(Signal::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Tries until an engine is open; `None` if further attempts are useless.
    fn revive(&mut self, told: &Receiver<Signal>) -> Option<()> {
        self.logged_reason.clear();
        self.releases = 0;
        loop {
            match told.recv_timeout(self.pause) {
                Ok(Signal::Failed) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Signal::Stop) | Err(RecvTimeoutError::Disconnected) => return None,
            }
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
            match self.attempt(told) {
                ReviveAttempt::Done => {
                    tracing::info!("the store was opened anew and takes writes again");
                    return Some(());
                }
                ReviveAttempt::NotYet(why) => {
                    if why != self.logged_reason {
                        tracing::warn!(why, "the store cannot be opened anew yet");
                        self.logged_reason = why;
                    }
                }
                ReviveAttempt::Never(why) => {
                    self.cell.fate.store(LOST, Ordering::Release);
                    tracing::error!(why, "the store cannot be opened anew by this process");
                    return None;
                }
                ReviveAttempt::Over => return None,
            }
        }
    }

    fn attempt(&mut self, told: &Receiver<Signal>) -> ReviveAttempt {
        let found = self.cell.with(|engine| {
            let room = engine.keyspaces.database.write_buffer_size() + LEAST_ROOM;
            let held = engine.progress.is_held().then(|| Arc::clone(&engine.keyspaces));
            (room, held)
        });
        if let Ok((room, held)) = found {
            if let Err(error) = probe(&self.cell.folder, room) {
                return ReviveAttempt::NotYet(error.to_string());
            }
            if let Some(keyspaces) = held {
                return self.release(&keyspaces);
            }
            let closing = self.cell.take().map(Engine::close);
            if let Some(attempt) = closing.and_then(|closing| wait_for_readers(&closing, told)) {
                return attempt;
            }
        }
        match Engine::open(&self.cell.folder, self.cell.options, self.signals.clone()) {
            Ok(engine) => {
                self.cell.put(engine);
                ReviveAttempt::Done
            }
            Err(error @ (DiskError::Io { .. } | DiskError::InUse(_))) => {
                self.cell.fate.store(DOWN, Ordering::Release);
                ReviveAttempt::NotYet(chain(&error))
            }
            Err(error) => ReviveAttempt::Never(chain(&error)),
        }
    }

    /// Releases the writer from the engine. It waits there until memory is written into tables, but the engine's own
    /// threads, which would do that, have ended. So this thread does it.
    fn release(&mut self, keyspaces: &Keyspaces) -> ReviveAttempt {
        self.releases += 1;
        if self.releases > RELEASES {
            return ReviveAttempt::Never("the failed engine does not release the writer".to_owned());
        }
        for keyspace in keyspaces.all() {
            let alone = keyspace.tree.get_flush_lock();
            // 0: keep every version that a reader may still see.
            if let Err(error) = keyspace.tree.flush(&alone, 0) {
                return ReviveAttempt::NotYet(error.to_string());
            }
        }
        ReviveAttempt::NotYet("the writer is being released".to_owned())
    }
}

/// Waits until no reader has files of the closed engine open. `None` means that it can be opened again.
fn wait_for_readers(closing: &Weak<Keyspaces>, told: &Receiver<Signal>) -> Option<ReviveAttempt> {
    for _ in 0..READERS_LOOKS {
        if closing.strong_count() == 0 {
            return None;
        }
        if let Ok(Signal::Stop) = told.recv_timeout(Duration::from_millis(1)) {
            return Some(ReviveAttempt::Over);
        }
    }
    Some(ReviveAttempt::Never("the files of the failed engine are still being read".to_owned()))
}

/// Checks that a store can be written in a folder: room, free file descriptors, and a working disk.
fn probe(folder: &Path, room: u64) -> std::io::Result<()> {
    let (free, _) = room::space(folder)?;
    if free < room {
        return Err(std::io::ErrorKind::StorageFull.into());
    }
    let mut file = tempfile::tempfile_in(folder)?;
    std::io::Write::write_all(&mut file, &vec![1; PROBE_BYTES])?;
    file.sync_all()?;
    let more = (1..PROBE_FILES).map(|_| std::fs::File::open(folder));
    more.collect::<std::io::Result<Vec<_>>>().map(drop)
}

fn chain(error: &DiskError) -> String {
    let cause = std::error::Error::source(error);
    cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}
