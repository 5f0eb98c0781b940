//! A store with known content, ways to damage it, and a way to count what is left.

use std::io::Read;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tempfile::TempDir;
use tenure_session::id::{NodeId, Position, SessionKey, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{EntryPlace, Expected, NewEvent, RecordKey, Space, Store};
use tenure_store::disk::{Disk, Sync};

use super::tools::{ALL, copy, files, noise};

pub(crate) const SESSIONS: usize = 40;
pub(crate) const EVENTS: usize = 30;

/// The batches that writing the sample takes: a claim and a record per session, and one per event.
pub(crate) const BATCHES: u64 = (SESSIONS * (2 + EVENTS)) as u64;

pub(crate) struct Sample {
    pub(crate) folder: TempDir,
}

pub(crate) fn session(number: usize) -> SessionKey {
    SessionKey::from_bytes(noise(number as u64 + 1, 16)[..].try_into().unwrap())
}

fn record(number: usize) -> Bytes {
    noise(1000 + number as u64, 200)
}

fn body(session: usize, event: usize) -> Bytes {
    noise((session * EVENTS + event) as u64 + 1_000_000, 300)
}

impl Sample {
    /// Writes it, one write after the other, so that each is a batch.
    pub(crate) async fn write() -> Self {
        let folder = TempDir::new().unwrap();
        let store = Disk::open(folder.path(), Sync::Os).unwrap();
        let mut epochs = Vec::new();
        for number in 0..SESSIONS {
            epochs.push(store.claim(session(number), NodeId::random(), None).await.unwrap());
            let key = RecordKey::session(session(number));
            let deadline = Some(Time(number as u64));
            store.put(key, record(number), Expected::Absent, deadline).await.unwrap();
        }
        // One event of every session in turn, so that a stretch of the journal has events of all sessions.
        for event in 0..EVENTS {
            for (number, epoch) in epochs.iter().enumerate() {
                let (stream, body) = (StreamId::new(0), body(number, event));
                let event = NewEvent { stream, body, place: EntryPlace::Middle, at: Time(9) };
                store.append(session(number), *epoch, vec![event]).await.unwrap();
            }
        }
        drop(store);
        Self::of(folder)
    }

    /// Takes the store in a folder as a sample.
    pub(crate) fn of(folder: TempDir) -> Self {
        let sample = Self { folder };
        // The reserved space of the engine would make every copy and every read slow.
        let journal = std::fs::OpenOptions::new().read(true).write(true).open(sample.journal()).unwrap();
        let mut written = Vec::new();
        (&journal).take(4 << 20).read_to_end(&mut written).unwrap();
        journal.set_len(end(&written) as u64).unwrap();
        sample
    }

    /// Writes it, and moves everything from the journal into tables.
    pub(crate) async fn write_tables() -> Self {
        let sample = Self::write().await;
        sample.flush();
        // All of it is in tables now. The engine would start a new journal only after 64 MB.
        std::fs::OpenOptions::new().write(true).open(sample.journal()).unwrap().set_len(0).unwrap();
        sample
    }

    /// Copies everything from the journal into tables.
    pub(crate) fn flush(&self) {
        let database = fjall::Database::builder(self.path().join("data")).open().unwrap();
        for name in database.list_keyspace_names() {
            database.keyspace(&name, Default::default).unwrap().rotate_memtable_and_wait().unwrap();
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.files("jnl").pop().unwrap()
    }

    /// Journals, or the tables of a keyspace by its number.
    pub(crate) fn files(&self, what: &str) -> Vec<PathBuf> {
        files(&self.path().join("data"), |path| {
            path.extension().is_some_and(|end| end == what)
                || path.parent().unwrap().ends_with(format!("{what}/tables"))
        })
    }

    /// The only table of a keyspace.
    pub(crate) fn table(&self, keyspace: usize) -> PathBuf {
        let mut tables = self.files(&format!("keyspaces/{keyspace}"));
        assert_eq!(tables.len(), 1, "{tables:?}");
        tables.pop().unwrap()
    }

    /// A copy in a folder of its own.
    pub(crate) fn copy(&self) -> Self {
        let folder = TempDir::new().unwrap();
        copy(self.path(), folder.path());
        Self { folder }
    }

    /// Opens the store and reads everything; entries that are there must be right.
    pub(crate) async fn left(&self) -> Left {
        let store = Disk::open(self.path(), Sync::Os).unwrap();
        let mut left = Left::default();
        for number in 0..SESSIONS {
            let key = RecordKey::session(session(number));
            if let Some(kept) = store.get(key).await.unwrap() {
                assert_eq!((kept.value, kept.deadline), (record(number), Some(Time(number as u64))));
                left.records += 1;
            }
            left.owners += usize::from(store.owner(session(number)).await.unwrap().is_some());
            let stretch = store.read(session(number), StreamId::new(0), Position::START, ALL).await.unwrap();
            let mut expected = (0..EVENTS).map(|event| body(number, event));
            for event in &stretch.events {
                assert!(expected.any(|body| body == event.body), "an event is out of order or wrong");
            }
            left.events.push(stretch.events.len());
        }
        let listed = store.list(Space::Session, None, usize::MAX).await.unwrap().len();
        assert_eq!(listed, left.records);
        left.expired = store.expired(Space::Session, Time(u64::MAX - 1), usize::MAX).await.unwrap().len();
        left
    }
}

/// What is left of a sample.
#[derive(Default, PartialEq, Eq, Debug)]
pub(crate) struct Left {
    pub(crate) records: usize,
    pub(crate) owners: usize,
    /// By session.
    pub(crate) events: Vec<usize>,
    /// Records that the index of deadlines finds.
    pub(crate) expired: usize,
}

impl Left {
    /// Everything.
    pub(crate) fn all() -> Self {
        Self { records: SESSIONS, owners: SESSIONS, events: vec![EVENTS; SESSIONS], expired: SESSIONS }
    }

    pub(crate) fn events(&self) -> usize {
        self.events.iter().sum()
    }

    /// How many writes of the sample are still in effect.
    pub(crate) fn writes(&self) -> u64 {
        (self.records + self.owners + self.events()) as u64
    }
}

/// The offset at which the written bytes of a file end and the reserved space begins.
pub(crate) fn end(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1
}

/// Flips a bit in a file, so many percent of the way through it.
pub(crate) fn flip(path: &Path, percent: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = bytes.len() * percent / 100;
    bytes[at] ^= 0x20;
    std::fs::write(path, bytes).unwrap();
}

/// Cuts a file to so many percent of its length.
pub(crate) fn cut(path: &Path, percent: usize) {
    let length = std::fs::metadata(path).unwrap().len();
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(length * percent as u64 / 100).unwrap();
}
