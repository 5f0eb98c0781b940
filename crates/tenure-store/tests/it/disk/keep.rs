//! The disk engine keeps the contract, and its data survives a close and a kill.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tempfile::TempDir;
use tenure_session::id::{NodeId, Position, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{
    EntryPlace, Expected, Keep, NewEvent, RecordKey, Space, Store, StoreError,
};
use tenure_store::disk::{Disk, DiskError, Sync, check};
use tenure_testkit::faulty::Faulty;
use tenure_testkit::store_contract;

use super::tools::{ALL, bodies, event, key};

/// Opens a store per call, each in a folder of its own.
fn fresh(folder: &Path, sync: Sync) -> impl Fn() -> Arc<dyn Store> {
    let (folder, count) = (folder.to_owned(), AtomicUsize::new(0));
    move || {
        let folder = folder.join(count.fetch_add(1, Ordering::Relaxed).to_string());
        Arc::new(Disk::open(&folder, sync).unwrap())
    }
}

#[tokio::test]
async fn disk_keeps_the_contract_with_os_durability() {
    let folder = TempDir::new().unwrap();
    store_contract::all(fresh(folder.path(), Sync::Os)).await;
}

#[tokio::test]
async fn disk_keeps_the_contract_with_disk_durability() {
    let folder = TempDir::new().unwrap();
    store_contract::all(fresh(folder.path(), Sync::Disk)).await;
}

#[tokio::test]
async fn disk_keeps_the_contract_behind_the_faulty_wrapper() {
    let folder = TempDir::new().unwrap();
    let open = fresh(folder.path(), Sync::Os);
    store_contract::all(|| Arc::new(Faulty::new(open()))).await;
}

#[tokio::test]
async fn everything_is_there_after_a_close_and_numbers_go_on() {
    let folder = TempDir::new().unwrap();
    let (session, node) = (key(1), NodeId::random());
    let record = RecordKey::session(session);
    let (epoch, version, positions) = {
        let store = Disk::open(folder.path(), Sync::Os).unwrap();
        let epoch = store.claim(session, node, None).await.unwrap();
        let value = Bytes::from_static(b"value");
        let version = store.put(record, value, Expected::Absent, Some(Time(77))).await.unwrap();
        let batch = vec![event(0, "a"), event(1, "b"), event(0, "c"), event(0, "d")];
        let positions = store.append(session, epoch, batch).await.unwrap();
        let keep = Keep { events: 2, bytes: usize::MAX, since: Time(0) };
        assert_eq!(store.trim(session, keep).await.unwrap().events, 2);
        (epoch, version, positions)
    };
    let store = Disk::open(folder.path(), Sync::Os).unwrap();
    let kept = store.get(record).await.unwrap().unwrap();
    assert_eq!((kept.version, kept.deadline, &kept.value[..]), (version, Some(Time(77)), &b"value"[..]));
    assert_eq!(store.expired(Space::Session, Time(77), 9).await.unwrap(), [(record, version)]);
    assert_eq!(store.list(Space::Session, None, 9).await.unwrap().len(), 1);
    assert_eq!(store.owner(session).await.unwrap(), Some((node, epoch)));
    assert_eq!(bodies(&store, session, 0).await, ["c", "d"]);
    let stretch = store.read(session, StreamId::new(0), Position::START, ALL).await.unwrap();
    assert_eq!(stretch.trimmed, positions[0], "the gap is still known");
    let more = store.append(session, epoch, vec![event(0, "e")]).await.unwrap();
    assert!(more[0] > positions[3]);
    // A new count gives the same log.
    let keep = Keep { events: 2, bytes: usize::MAX, since: Time(0) };
    assert_eq!(store.trim(session, keep).await.unwrap().events, 2);
    assert_eq!(bodies(&store, session, 0).await, ["d", "e"]);
}

#[tokio::test]
async fn a_stream_that_was_trimmed_away_is_known_after_a_close_in_a_backup_and_takes_no_room() {
    let (folder, copy) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (session, node) = (key(1), NodeId::random());
    let trimmed = async |store: &Disk, stream: u32| {
        store.read(session, StreamId::new(stream), Position::START, ALL).await.unwrap().trimmed
    };
    let (last, kept) = {
        let store = Disk::open(folder.path(), Sync::Os).unwrap();
        let epoch = store.claim(session, node, None).await.unwrap();
        let mut last = Position::START;
        for stream in 1..=100 {
            let end = NewEvent { place: EntryPlace::End, ..event(stream, "b") };
            last = store.append(session, epoch, vec![event(stream, "a"), end]).await.unwrap()[1];
        }
        let kept = store.trim(session, Keep { events: 0, bytes: usize::MAX, since: Time(0) }).await.unwrap();
        store.backup(copy.path(), |_| {}).await.unwrap();
        (last, kept)
    };
    for folder in [&folder, &copy] {
        let report = check(folder.path(), |_| {}).unwrap();
        assert!(report.is_sound(), "{report:?}");
        // The owner, and one entry for all streams.
        assert_eq!((report.totals.events, report.totals.bytes), (0, 16 + 16 + 28 + 16));
        let store = Disk::open(folder.path(), Sync::Os).unwrap();
        for stream in [1, 50, 100] {
            assert_eq!(trimmed(&store, stream).await, last, "stream {stream}");
        }
        let survey = store.survey(session).await.unwrap();
        assert_eq!((survey.streams.len(), survey.next_stream, survey.kept), (0, 101, kept));
    }
}

#[tokio::test]
async fn a_second_process_is_refused() {
    let folder = TempDir::new().unwrap();
    let _first = Disk::open(folder.path(), Sync::Os).unwrap();
    let second = Disk::open(folder.path(), Sync::Os).unwrap_err();
    assert!(matches!(second, DiskError::InUse(_)), "{second}");
    assert!(second.to_string().ends_with("is in use by another process"));
}

#[tokio::test]
async fn a_store_that_is_closed_says_so() {
    let folder = TempDir::new().unwrap();
    let store = Disk::open(folder.path(), Sync::Os).unwrap();
    let late = store.delete(RecordKey::session(key(1)), tenure_session::port::store::Version(1));
    drop(store);
    assert!(matches!(late.await, Err(StoreError::Unavailable(_))));
}

const CHILD: &str = "TENURE_TEST_STORE_CHILD";

/// Runs in the process that is killed below.
async fn write_until_killed(folder: &Path) {
    let store = Arc::new(Disk::open(folder, Sync::Os).unwrap());
    let mut writers = tokio::task::JoinSet::new();
    for session in 0..8u8 {
        let store = Arc::clone(&store);
        writers.spawn(async move {
            let expected = store.owner(key(session)).await.unwrap().map(|(_, epoch)| epoch);
            let epoch = store.claim(key(session), NodeId::random(), expected).await.unwrap();
            let mut n = bodies(&store, key(session), 0).await.len();
            loop {
                store.append(key(session), epoch, vec![event(0, &n.to_string())]).await.unwrap();
                // Printed only after the acknowledgement.
                println!("acked {session} {n}");
                n += 1;
            }
        });
    }
    writers.join_all().await;
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_by_a_kill() {
    // The test starts itself as another process, which writes and is killed.
    if let Ok(folder) = std::env::var(CHILD) {
        return write_until_killed(Path::new(&folder)).await;
    }
    let folder = TempDir::new().unwrap();
    for round in 1..=5usize {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "disk::keep::nothing_acknowledged_is_lost_by_a_kill", "--nocapture"])
            .env(CHILD, folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut acked = [None::<usize>; 8];
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut count = 0;
        while let Some(Ok(line)) = lines.next() {
            let Some(line) = line.split("acked ").nth(1) else { continue };
            let (session, n) = line.split_once(' ').unwrap();
            acked[session.parse::<usize>().unwrap()] = n.parse().ok();
            count += 1;
            if count == 400 * round {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(count >= 400 * round, "the child ended by itself after {count} writes");
        let store = Disk::open(folder.path(), Sync::Os).unwrap();
        for (session, last) in acked.into_iter().enumerate() {
            let bodies = bodies(&store, key(u8::try_from(session).unwrap()), 0).await;
            let expected: Vec<String> = (0..bodies.len()).map(|n| n.to_string()).collect();
            assert_eq!(bodies, expected, "in order, none missing, none twice");
            assert!(last.is_none_or(|last| last < bodies.len()), "round {round}: acknowledged and lost");
        }
    }
}

#[tokio::test]
async fn a_new_store_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("a/b");
    let _open = Disk::open(&store, Sync::Os).unwrap();
    assert_eq!(std::fs::metadata(store).unwrap().permissions().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn a_refused_writer_finds_the_write_that_won() {
    let folder = TempDir::new().unwrap();
    let store = Arc::new(Disk::open(folder.path(), Sync::Os).unwrap());
    for round in 0..200u8 {
        let record = RecordKey::session(key(round));
        let writers: Vec<_> =
            (0..8).map(|_| store.put(record, Bytes::from_static(b"v"), Expected::Absent, None)).collect();
        let mut tasks = tokio::task::JoinSet::new();
        for writer in writers {
            let store = Arc::clone(&store);
            tasks.spawn(async move {
                if let Err(StoreError::Conflict { current }) = writer.await {
                    let found = store.get(record).await.unwrap().expect("the one that won");
                    assert_eq!(Some(found.version), current);
                }
            });
        }
        tasks.join_all().await;
    }
}

#[tokio::test]
async fn a_process_that_loses_all_it_wrote_is_not_followed_by_the_same_numbers() {
    let folder = TempDir::new().unwrap();
    let claim = async || {
        let store = Disk::open(folder.path(), Sync::Os).unwrap();
        let expected = store.owner(key(1)).await.unwrap().map(|(_, epoch)| epoch);
        store.claim(key(1), NodeId::random(), expected).await.unwrap()
    };
    let first = claim().await;
    // Opened and closed without a write, as if all writes had been lost.
    drop(Disk::open(folder.path(), Sync::Os).unwrap());
    let third = claim().await;
    assert!(
        third.0 > first.0 + 2 * (1 << 20),
        "{third:?} after {first:?}: the numbers between are never used again"
    );
}
