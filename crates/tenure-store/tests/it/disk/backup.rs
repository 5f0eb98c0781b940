//! A backup of a store in use is complete, consistent, and a store of its own.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use tenure_session::id::{NodeId, SessionKey};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{Epoch, Expected, RecordKey, Store};
use tenure_store::disk::{Disk, DiskError, DiskOptions, Sync, check};

use super::sample::{Left, SESSIONS, Sample};
use super::tools::{bodies, event, key};

const WRITERS: u8 = 16;

/// Appends an event and then counts it in a record, again and again.
async fn count_up(store: &Disk, session: SessionKey, epoch: Epoch, counted: &AtomicU64, stop: &AtomicBool) {
    let (record, mut expected, mut count) = (RecordKey::session(session), Expected::Absent, 0);
    while !stop.load(Ordering::Acquire) {
        store.append(session, epoch, vec![event(0, &count.to_string())]).await.unwrap();
        count += 1;
        let value = Bytes::from(count.to_string());
        expected = Expected::Version(store.put(record, value, expected, None).await.unwrap());
        counted.fetch_add(1, Ordering::AcqRel);
    }
}

async fn count_of(store: &Disk, session: SessionKey) -> usize {
    let record = store.get(RecordKey::session(session)).await.unwrap();
    record.map_or(0, |record| String::from_utf8_lossy(&record.value).parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_is_one_moment_of_the_store() {
    let (folder, to) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let store = Arc::new(Disk::open(folder.path(), Sync::Os).unwrap());
    let (counted, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut writers = tokio::task::JoinSet::new();
    for session in 0..WRITERS {
        let epoch = store.claim(key(session), NodeId::random(), None).await.unwrap();
        let (store, counted, stop) = (Arc::clone(&store), Arc::clone(&counted), Arc::clone(&stop));
        writers.spawn(async move { count_up(&store, key(session), epoch, &counted, &stop).await });
    }
    let reach = async |count| {
        super::tools::until("writers get on", std::time::Duration::from_secs(20), async || {
            counted.load(Ordering::Acquire) >= count
        })
        .await;
    };
    // Several copies at different moments, each while the writers go on.
    let mut copies = Vec::new();
    for number in 1..=3u64 {
        reach(number * 500).await;
        let before = counted.load(Ordering::Acquire);
        let copy = to.path().join(number.to_string());
        let totals = store.backup(&copy, |_| {}).await.unwrap();
        let during = counted.load(Ordering::Acquire) - before;
        assert!(during > 0, "the writers wait for the backup");
        assert!(totals.events >= before && totals.owners == u64::from(WRITERS), "{totals:?}");
        copies.push((copy, totals));
    }
    stop.store(true, Ordering::Release);
    writers.join_all().await;
    for (copy, totals) in copies {
        let report = check(&copy, |_| {}).unwrap();
        assert!(report.is_sound(), "{report:?}");
        assert_eq!(report.totals, totals);
        let copied = Disk::open(&copy, Sync::Os).unwrap();
        let mut sum = 0;
        for session in 0..WRITERS {
            let bodies = bodies(&copied, key(session), 0).await;
            let expected: Vec<String> = (0..bodies.len()).map(|number| number.to_string()).collect();
            assert_eq!(bodies, expected, "in order, none missing");
            // An event is written before its count, so the count equals the number of events or is one behind.
            let count = count_of(&copied, key(session)).await;
            assert!(count == bodies.len() || count + 1 == bodies.len(), "{count} of {}", bodies.len());
            sum += bodies.len() as u64;
        }
        assert_eq!(sum, totals.events);
    }
}

#[tokio::test]
async fn a_backup_is_a_store_of_its_own() {
    let sample = Sample::write().await;
    let to = TempDir::new().unwrap();
    let mut copy = Sample { folder: TempDir::new().unwrap() };
    {
        let store = Disk::open(sample.path(), Sync::Os).unwrap();
        let stages = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let told = Arc::clone(&stages);
        store.backup(copy.path(), move |stage| told.lock().push(stage)).await.unwrap();
        let last = stages.lock().last().copied().unwrap();
        assert!(last.done == last.of && last.of > 0, "{last:?}");
        // Later writes are not in it.
        store.claim(key(1), NodeId::random(), None).await.unwrap();
        store.backup(&to.path().join("a/new/one"), |_| {}).await.unwrap();
        // A backup does not overwrite an existing one.
        let again = store.backup(copy.path(), |_| {}).await.unwrap_err();
        let DiskError::Io { cause, .. } = again else { panic!("{again}") };
        assert_eq!(cause.kind(), std::io::ErrorKind::DirectoryNotEmpty);
    }
    assert_eq!(copy.left().await, Left::all());
    {
        let store = Disk::open(copy.path(), Sync::Os).unwrap();
        assert_eq!(store.owner(key(1)).await.unwrap(), None);
        // Its numbers continue above those of the original.
        let epoch = store.claim(key(1), NodeId::random(), None).await.unwrap();
        assert!(epoch.0 > (SESSIONS * 32) as u64, "{epoch:?}");
    }
    // It has a mark of its own.
    std::fs::remove_dir_all(copy.path().join("data")).unwrap();
    assert!(matches!(Disk::open(copy.path(), Sync::Os), Err(DiskError::Lost { .. })));
    copy.folder = TempDir::new().unwrap();
    // An unfinished backup does not count as a store.
    std::fs::create_dir(copy.path().join("data.copying")).unwrap();
    assert!(matches!(Disk::open(copy.path(), Sync::Os), Err(DiskError::Damaged { .. })));
}

#[tokio::test]
async fn a_backup_goes_on_behind_everything_that_its_original_gave_out_since() {
    let folder = tempfile::tempdir().unwrap();
    let (first, copy) = (folder.path().join("first"), folder.path().join("copy"));
    let monday = Time(1_790_000_000_000);
    let tuesday = monday.after(Duration::from_secs(24 * 60 * 60));
    let open = |path: &Path, now| {
        Disk::open_with(path, DiskOptions { now: Some(now), ..DiskOptions::default() }).unwrap()
    };
    let key = key(1);
    // Opened twice, because a new store begins at 1.
    drop(open(&first, monday));
    let store = open(&first, monday);
    let epoch = store.claim(key, NodeId::random(), None).await.unwrap();
    store.append(key, epoch, vec![event(0, "in the backup")]).await.unwrap();
    store.backup(&copy, |_| {}).await.unwrap();
    drop(store);
    // The original is used for another day.
    let store = open(&first, tuesday);
    let epoch = store.claim(key, NodeId::random(), Some(epoch)).await.unwrap();
    let told = store.append(key, epoch, vec![event(0, "told")]).await.unwrap();
    drop(store);
    // The original is lost, and the backup takes its place.
    let store = open(&copy, tuesday.after(Duration::from_millis(1_000)));
    let (_, epoch) = store.owner(key).await.unwrap().unwrap();
    let epoch = store.claim(key, NodeId::random(), Some(epoch)).await.unwrap();
    let fresh = store.append(key, epoch, vec![event(0, "fresh")]).await.unwrap();
    assert!(fresh > told, "a client that was told {told:?} would not be told {fresh:?}");
}
