//! The store frees disk space by itself after many removals, and memory when it is not written to.
//!
//! The tests measure allocated blocks, because the engine reserves more for its journal than it uses.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use tenure_session::id::{NodeId, Position, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{EntryPlace, Keep, NewEvent, Store};
use tenure_store::disk::{Disk, Sync};

use super::tools::{ALL, bodies, files, key, noise, until};

/// The disk space of a folder, not the sum of its file lengths.
fn taken(folder: &Path) -> u64 {
    // A file may go between two looks.
    let blocks = |path: &PathBuf| std::fs::metadata(path).map_or(0, |data| data.blocks());
    files(folder, |_| true).iter().map(blocks).sum::<u64>() * 512
}

/// Ten events of 4000 bytes that cannot be compressed, alone or together.
fn ten(number: u64) -> Vec<NewEvent> {
    let bodies = noise(number, 40_000);
    let event = |start| NewEvent {
        stream: StreamId::new(0),
        body: bodies.slice(start..start + 4000),
        place: EntryPlace::Middle,
        at: Time(1),
    };
    (0..40_000).step_by(4000).map(event).collect()
}

#[tokio::test]
async fn room_comes_back_after_most_sessions_are_gone() {
    let folder = TempDir::new().unwrap();
    let store = Disk::open(folder.path(), Sync::Os).unwrap();
    for session in 0..100 {
        let epoch = store.claim(key(session), NodeId::random(), None).await.unwrap();
        for number in 0..25 {
            store.append(key(session), epoch, ten(u64::from(session) * 100 + number)).await.unwrap();
        }
    }
    let before = taken(folder.path());
    // A little less than was written, because the engine may have compressed some of it already.
    assert!(before > 90 << 20, "{before} bytes on disk for 100 MB of events");
    for session in 0..90 {
        store.drop_session(key(session)).await.unwrap();
    }
    let keep = Keep { events: 10, bytes: usize::MAX, since: Time(0) };
    for session in 90..95 {
        assert_eq!(store.trim(key(session), keep).await.unwrap().events, 10);
    }
    // 5 MB of events are left, and the part of the journal that the engine keeps.
    until("room comes back", Duration::from_secs(60), async || taken(folder.path()) < 60 << 20).await;
    for session in 0..90 {
        assert_eq!(bodies(&store, key(session), 0).await.len(), 0);
    }
    for session in 90..100 {
        let events = store.read(key(session), StreamId::new(0), Position::START, ALL).await.unwrap().events;
        let first = if session < 95 { 24 } else { 0 };
        let expected = (first..25).flat_map(|number| ten(u64::from(session) * 100 + number));
        assert!(
            events
                .iter()
                .map(|event| &event.body)
                .eq(expected.map(|event| event.body).collect::<Vec<_>>().iter())
        );
    }
}

#[tokio::test]
async fn what_is_in_memory_goes_into_tables_when_the_writer_pauses() {
    let folder = TempDir::new().unwrap();
    let store = Disk::open(folder.path(), Sync::Os).unwrap();
    let epoch = store.claim(key(1), NodeId::random(), None).await.unwrap();
    for number in 0..150 {
        store.append(key(1), epoch, ten(number)).await.unwrap();
    }
    // 6 MB are too little for a table, so without a pause they would stay in memory.
    let in_tables = || {
        let is_table = |path: &Path| path.parent().is_some_and(|folder| folder.ends_with("tables"));
        let length = |path: &PathBuf| std::fs::metadata(path).map_or(0, |data| data.len());
        files(folder.path(), is_table).iter().map(length).sum::<u64>()
    };
    assert!(in_tables() < 1 << 20, "{} bytes are in tables", in_tables());
    until("it is in tables", Duration::from_secs(60), async || in_tables() >= 5 << 20).await;
}
