//! Opens an engine anew that failed to write.
//!
//! The engine is not trusted again once a write of it failed, whatever the reason: the disk was full, the process had no
//! file descriptor left, the disk broke. All that was acknowledged is in its files, so it is closed, and another one is
//! opened on the same files, as after a restart of the process. Until that can succeed it stays open, because it can
//! still be read. Whether it can is found out by a file that is written beside it.

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
use super::open::Options;
use super::room::{self, Health};

/// The pause before the first attempt, which is doubled from one to the next, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// An engine that worked this long has nothing to do with an earlier failure.
const CALM: Duration = Duration::from_secs(60);

/// What has to be free beside what the engine has in memory, which goes into tables.
const LEAST_ROOM: u64 = 4 << 20;

/// What is written to see whether it can be.
const PROBE_BYTES: usize = 64 << 10;

/// How many file descriptors have to be left.
const PROBE_FILES: usize = 8;

/// How often it is tried to get the writer out of an engine that holds it.
const RELEASES: u32 = 20;

/// How long reads and backups that are under way may keep the files open, a millisecond each.
const READERS_LOOKS: u32 = 60_000;

/// Where the engine is, if it is open.
pub(super) struct Place {
    folder: PathBuf,
    options: Options,
    engine: RwLock<Option<Engine>>,
    /// What became of opening it anew: nothing bad, `DOWN` or `LOST`.
    fate: AtomicU8,
}

const DOWN: u8 = 1;
const LOST: u8 = 2;

impl Place {
    pub(super) fn new(folder: &Path, options: Options, engine: Engine) -> Self {
        let engine = RwLock::new(Some(engine));
        Self { folder: folder.to_owned(), options, engine, fate: AtomicU8::new(0) }
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    /// Takes parts of the engine, if it is open.
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

    /// Takes the engine out, to be closed. Readers do not wait for that.
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
    place: Arc<Place>,
    /// For the next engine, should it fail too.
    signals: Sender<Signal>,
    pause: Duration,
    /// How often it was tried to get the writer out of the engine.
    releases: u32,
    /// What was said last of why it has to wait.
    said: String,
}

enum Attempt {
    Done,
    /// Why not.
    NotYet(String),
    /// Why not.
    Never(String),
    /// The store is closed.
    Over,
}

impl Reviver {
    pub(super) fn new(place: Arc<Place>, signals: Sender<Signal>) -> Self {
        Self { place, signals, pause: FIRST_PAUSE, releases: 0, said: String::new() }
    }

    /// Runs until the store is closed, or cannot be opened anew by this process.
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

    /// Tries until it is done; nothing if there is no use in trying any more.
    fn revive(&mut self, told: &Receiver<Signal>) -> Option<()> {
        self.said.clear();
        self.releases = 0;
        loop {
            match told.recv_timeout(self.pause) {
                Ok(Signal::Failed) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Signal::Stop) | Err(RecvTimeoutError::Disconnected) => return None,
            }
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
            match self.attempt(told) {
                Attempt::Done => {
                    tracing::info!("the store was opened anew and takes writes again");
                    return Some(());
                }
                Attempt::NotYet(why) => {
                    if why != self.said {
                        tracing::warn!(why, "the store cannot be opened anew yet");
                        self.said = why;
                    }
                }
                Attempt::Never(why) => {
                    self.place.fate.store(LOST, Ordering::Release);
                    tracing::error!(why, "the store cannot be opened anew by this process");
                    return None;
                }
                Attempt::Over => return None,
            }
        }
    }

    fn attempt(&mut self, told: &Receiver<Signal>) -> Attempt {
        let found = self.place.with(|engine| {
            let room = engine.keyspaces.database.write_buffer_size() + LEAST_ROOM;
            let held = engine.progress.is_held().then(|| Arc::clone(&engine.keyspaces));
            (room, held)
        });
        if let Ok((room, held)) = found {
            if let Err(error) = probe(&self.place.folder, room) {
                return Attempt::NotYet(error.to_string());
            }
            if let Some(keyspaces) = held {
                return self.release(&keyspaces);
            }
            let closing = self.place.take().map(Engine::close);
            if let Some(attempt) = closing.and_then(|closing| wait_for_readers(&closing, told)) {
                return attempt;
            }
        }
        match Engine::open(&self.place.folder, self.place.options, self.signals.clone()) {
            Ok(engine) => {
                self.place.put(engine);
                Attempt::Done
            }
            Err(error @ (DiskError::Io { .. } | DiskError::InUse(_))) => {
                self.place.fate.store(DOWN, Ordering::Release);
                Attempt::NotYet(chain(&error))
            }
            Err(error) => Attempt::Never(chain(&error)),
        }
    }

    /// Gets the writer out of the engine. It waits there for memory to be written into tables, and the engine's own
    /// threads, which do that, are gone.
    fn release(&mut self, keyspaces: &Keyspaces) -> Attempt {
        self.releases += 1;
        if self.releases > RELEASES {
            return Attempt::Never("the failed engine does not let go of the writer".to_owned());
        }
        for keyspace in keyspaces.all() {
            let alone = keyspace.tree.get_flush_lock();
            // Nothing of what readers may still see is left out.
            if let Err(error) = keyspace.tree.flush(&alone, 0) {
                return Attempt::NotYet(error.to_string());
            }
        }
        Attempt::NotYet("the writer is let go of".to_owned())
    }
}

/// Waits until nobody has files of a closed engine open. Nothing if that is so; then it can be opened.
fn wait_for_readers(closing: &Weak<Keyspaces>, told: &Receiver<Signal>) -> Option<Attempt> {
    for _ in 0..READERS_LOOKS {
        if closing.strong_count() == 0 {
            return None;
        }
        if let Ok(Signal::Stop) = told.recv_timeout(Duration::from_millis(1)) {
            return Some(Attempt::Over);
        }
    }
    Some(Attempt::Never("the files of the failed engine are still being read".to_owned()))
}

/// Whether a store can be written in a folder: there is room, a file descriptor, and a disk that works.
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
