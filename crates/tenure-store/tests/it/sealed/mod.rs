//! Encryption at rest: it keeps the contract, leaves nothing readable on the disk, has exact byte bounds (`bounds`),
//! refuses moved and changed values (`changed`), and opens with the right keys only (`keys`).

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

mod bounds;
mod changed;
mod keys;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tempfile::TempDir;
use tenure_session::id::{NodeId, SessionKey, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{
    EntryPlace, Expected, NewEvent, ReadLimit, RecordKey, Space, Store, StoreError,
};
use tenure_store::copy::save_log;
use tenure_store::disk::{Disk, Sync};
use tenure_store::memory::Memory;
use tenure_store::sealed::keys::generate;
use tenure_store::sealed::{SealKeys, Sealed};
use tenure_testkit::store_contract;

type Shared = Arc<dyn Store>;

const ALL: ReadLimit = ReadLimit { events: usize::MAX, bytes: usize::MAX };
const NODE: NodeId = NodeId::from_bytes([7; 8]);

fn fresh_keys() -> SealKeys {
    SealKeys::parse(&generate()).unwrap()
}

fn key(number: u8) -> SessionKey {
    SessionKey::from_bytes([number; 16])
}

fn event(stream: u32, body: &[u8], place: EntryPlace) -> NewEvent {
    let body = Bytes::copy_from_slice(body);
    NewEvent { stream: StreamId::new(stream), body, place, at: Time(1_000) }
}

fn unavailable<T: std::fmt::Debug>(outcome: Result<T, StoreError>) -> String {
    match outcome {
        Err(StoreError::Unavailable(text)) => text,
        other => panic!("an error that says why, not {other:?}"),
    }
}

/// Seals a store from a synchronous call.
fn seal_now(store: Shared) -> Shared {
    let sealed = Sealed::open(store, fresh_keys());
    Arc::new(tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(sealed)).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sealed_store_in_memory_keeps_the_contract() {
    store_contract::all(|| seal_now(Arc::new(Memory::new()))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sealed_store_on_disk_keeps_the_contract() {
    let (folder, count) = (TempDir::new().unwrap(), AtomicUsize::new(0));
    store_contract::all(|| {
        let folder = folder.path().join(count.fetch_add(1, Ordering::Relaxed).to_string());
        seal_now(Arc::new(Disk::open(&folder, Sync::Os).unwrap()))
    })
    .await;
}

const MARKER: &[u8] = b"a secret that must not be found";

/// Writes the marker into every kind of content.
async fn write_marker(store: &dyn Store) {
    let value = Bytes::from_static(MARKER);
    for space in [Space::Session, Space::Rmcp, Space::Task] {
        store.put(RecordKey { space, key: key(1) }, value.clone(), Expected::Absent, None).await.unwrap();
    }
    let epoch = store.claim(key(1), NODE, None).await.unwrap();
    let batch = vec![
        event(0, MARKER, EntryPlace::Middle),
        event(1, MARKER, EntryPlace::Note),
        event(2, MARKER, EntryPlace::End),
    ];
    store.append(key(1), epoch, batch).await.unwrap();
    store.restore(key(2), save_log(store, key(1)).await.unwrap()).await.unwrap();
}

/// How often the marker is in the files of a folder.
fn count_marker(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let in_file = |path: &Path| {
        let bytes = std::fs::read(path).unwrap();
        // A journal is mostly reserved space, and searching that takes seconds.
        let written = bytes.chunks(4096).rposition(|chunk| chunk != &[0; 4096][..chunk.len()]);
        let end = written.map_or(0, |chunk| (chunk + 1) * 4096).min(bytes.len());
        bytes[..end].windows(MARKER.len()).filter(|window| *window == MARKER).count()
    };
    entries.map(|path| if path.is_dir() { count_marker(&path) } else { in_file(&path) }).sum()
}

#[tokio::test]
async fn nothing_of_the_contents_is_found_on_the_disk() {
    let (plain, sealed) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    write_marker(&Disk::open(plain.path(), Sync::Os).unwrap()).await;
    // Two records, and three entries of a log twice. This shows that the search works.
    assert_eq!(count_marker(plain.path()), 9);
    let keys = fresh_keys();
    {
        let store = Arc::new(Disk::open(sealed.path(), Sync::Os).unwrap());
        write_marker(&Sealed::open(store, keys.clone()).await.unwrap()).await;
    }
    assert_eq!(count_marker(sealed.path()), 0);
    let store = Arc::new(Disk::open(sealed.path(), Sync::Os).unwrap());
    let store = Sealed::open(store, keys).await.unwrap();
    assert_eq!(store.get(RecordKey::session(key(1))).await.unwrap().unwrap().value, MARKER);
    let log = save_log(&store, key(2)).await.unwrap();
    let bodies = log.streams.iter().flat_map(|stream| stream.events.iter().map(|event| &event.body));
    let found: Vec<_> = bodies.chain(log.streams.iter().filter_map(|stream| stream.note.as_ref())).collect();
    assert_eq!(found, [MARKER; 3]);
}
