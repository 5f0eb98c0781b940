//! A disk that really fills up: a small filesystem in memory, mounted for the test.
//!
//! Mounting needs permission. Without it these tests fail and say so.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use tenure_session::id::{NodeId, Position, SessionKey, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{
    EntryPlace, Epoch, Expected, Grade, Keep, NewEvent, RecordKey, SavedLog, Space, Store, StoreError,
};
use tenure_store::disk::{Disk, DiskOptions, Health};

use super::tools::{ALL, event, files, key, noise, until};

const SECONDS: Duration = Duration::from_secs(60);

/// A filesystem of a few megabytes; unmounted when dropped, also by a panic.
struct Small {
    folder: TempDir,
}

impl Small {
    fn mount(mib: usize) -> Self {
        let small = Self { folder: TempDir::new().unwrap() };
        let size = format!("size={mib}m");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(small.folder.path())
            .output()
            .expect("there is a `mount` command");
        let said = String::from_utf8_lossy(&mounted.stderr).into_owned();
        assert!(mounted.status.success(), "this test has to mount a small filesystem, as root: {said}");
        small
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// Writes a file that takes up space.
    fn ballast(&self, mib: usize) -> PathBuf {
        self.ballast_bytes(mib << 20)
    }

    fn ballast_bytes(&self, bytes: usize) -> PathBuf {
        let path = self.folder.path().join("ballast");
        std::fs::write(&path, vec![1; bytes]).unwrap();
        path
    }
}

impl Small {
    /// Writes a file that takes up all free space.
    fn ballast_to_the_last_byte(&self) -> PathBuf {
        let path = self.folder.path().join("ballast");
        let mut file = std::fs::File::create(&path).unwrap();
        for piece in [1 << 20, 4 << 10] {
            while std::io::Write::write_all(&mut file, &vec![1; piece]).is_ok() {}
        }
        path
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // A lazy unmount, because a panic may leave a store open in it.
        let unmounted = Command::new("umount").arg("-l").arg(self.folder.path()).status();
        if !std::thread::panicking() {
            assert!(unmounted.unwrap().success());
        }
    }
}

fn large(number: u64) -> NewEvent {
    let body = noise(number, 16 << 10);
    NewEvent { stream: StreamId::new(0), body, place: EntryPlace::Middle, at: Time(1_000) }
}

/// Appends until the store refuses; returns how many it took, and the error.
async fn fill(store: &Disk, session: SessionKey, epoch: Epoch, from: u64) -> (u64, StoreError) {
    let mut count = from;
    loop {
        match store.append(session, epoch, vec![large(count)]).await {
            Ok(_) => count += 1,
            Err(error) => return (count, error),
        }
    }
}

/// Whether a session holds exactly the first events of [`large`].
async fn assert_holds(store: &Disk, session: SessionKey, at_least: u64) -> u64 {
    let events = store.read(session, StreamId::new(0), Position::START, ALL).await.unwrap().events;
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event.body, noise(number as u64, 16 << 10), "event {number} of {session:?}");
    }
    let count = events.len() as u64;
    assert!(count >= at_least, "{session:?} has {count} events of {at_least} acknowledged ones");
    count
}

async fn claims(store: &Disk, sessions: u8) -> Vec<Epoch> {
    let mut epochs = Vec::new();
    for session in 0..sessions {
        epochs.push(store.claim(key(session), NodeId::random(), None).await.unwrap());
    }
    epochs
}

/// Fills a store with many concurrent writers until all are refused.
async fn fill_by_many(store: &Arc<Disk>, epochs: &[Epoch], from: &[u64]) -> Vec<(u64, StoreError)> {
    let mut writers = Vec::new();
    for (session, (epoch, from)) in (0..).zip(epochs.iter().copied().zip(from.iter().copied())) {
        let store = Arc::clone(store);
        writers.push(tokio::spawn(async move { fill(&store, key(session), epoch, from).await }));
    }
    let mut taken = Vec::new();
    for writer in writers {
        taken.push(writer.await.unwrap());
    }
    taken
}

fn open(folder: &Path, reserve_bytes: Option<u64>) -> Disk {
    Disk::open_with(folder, DiskOptions { reserve_bytes, ..DiskOptions::default() }).unwrap()
}

#[tokio::test]
async fn a_full_disk_refuses_what_grows_and_works_again_when_there_is_room() {
    let small = Small::mount(64);
    let store = Arc::new(open(&small.store(), None));
    let epochs = claims(&store, 16).await;
    let (old, fresh) = (RecordKey::session(key(1)), RecordKey::session(key(99)));
    let value = Bytes::from_static(b"twelve bytes");
    let version = store.put(old, value.clone(), Expected::Absent, Some(Time(5))).await.unwrap();
    assert_eq!((store.health(), store.trouble()), (Health::Ok, None));

    let ballast = small.ballast(40);
    // The engine may free space after a refusal, so fill until it has nothing left to free.
    let mut from = [0; 16].to_vec();
    let taken = loop {
        let taken = fill_by_many(&store, &epochs, &from).await;
        for (_, error) in &taken {
            assert_eq!(*error, StoreError::Full);
        }
        let counts: Vec<_> = taken.iter().map(|(count, _)| *count).collect();
        if counts == from && store.health() != Health::Ok {
            break taken;
        }
        from = counts;
    };
    let counts: Vec<_> = taken.iter().map(|(count, _)| *count).collect();
    assert!(counts.iter().all(|count| *count > 1), "each writer gets something in: {counts:?}");
    let Health::Full { free, reserve } = store.health() else { panic!("{:?}", store.health()) };
    // A little more than the reserve may be free: then the next event would need more than that.
    assert!(0 < free && free < reserve + (32 << 10), "{free} of {reserve}");
    let trouble = store.trouble().unwrap();
    assert!(trouble.what.starts_with("the disk is full: "), "{trouble:?}");
    assert_eq!(trouble.grade, Grade::Degraded);

    // Writes that grow the store are refused with `Full`, but a conflict is still reported as one.
    let full = StoreError::Full;
    assert_eq!(store.put(fresh, value.clone(), Expected::Absent, None).await, Err(full.clone()));
    let longer = Bytes::from_static(b"thirteen byte");
    assert_eq!(store.put(old, longer, Expected::Version(version), None).await, Err(full.clone()));
    assert_eq!(store.claim(key(50), NodeId::random(), None).await, Err(full.clone()));
    assert_eq!(store.restore(key(50), SavedLog::default()).await, Err(full));
    let conflict = store.put(old, value.clone(), Expected::Absent, None).await;
    assert_eq!(conflict, Err(StoreError::Conflict { current: Some(version) }));
    // An existing session can be woken, because that does not grow the store.
    store.claim(key(3), NodeId::random(), Some(epochs[3])).await.expect("a claim of what is owned already");
    // Writes that do not grow the store and removals work, and everything can be read.
    let version = store.put(old, value.clone(), Expected::Version(version), None).await.unwrap();
    assert_eq!(store.get(old).await.unwrap().unwrap().value, value);
    store.delete(old, version).await.unwrap();
    let keep = Keep { events: 1, bytes: usize::MAX, since: Time(0) };
    assert_eq!(store.trim(key(14), keep).await.unwrap().events, 1);
    store.drop_session(key(15)).await.unwrap();
    store.release(key(13), epochs[13]).await.unwrap();
    assert_eq!(assert_holds(&store, key(0), 0).await, taken[0].0);

    std::fs::remove_file(ballast).unwrap();
    until("service resumes", SECONDS, async || store.health() == Health::Ok).await;
    assert_eq!(store.trouble(), None);
    store.put(fresh, value, Expected::Absent, None).await.unwrap();
    store.append(key(0), epochs[0], vec![large(taken[0].0)]).await.unwrap();
    drop(store);
    let store = open(&small.store(), None);
    assert_eq!(assert_holds(&store, key(0), 0).await, taken[0].0 + 1);
    for session in 1..=13 {
        assert_eq!(assert_holds(&store, key(session), 0).await, taken[usize::from(session)].0);
    }
    assert!(store.get(fresh).await.unwrap().is_some());
    assert_eq!(store.get(old).await.unwrap(), None);
}

#[tokio::test]
async fn a_store_that_refuses_events_counts_as_full_however_little_is_missing() {
    // An event takes 16 KiB in the journal, and twice as much of the reserve for its table and a merge. With about three
    // of these ballasts more than the reserve stays free, and less than the next event needs.
    for step in 0..12 {
        let small = Small::mount(16);
        let _ballast = small.ballast_bytes(step * (4 << 10));
        let store = open(&small.store(), None);
        let epoch = store.claim(key(0), NodeId::random(), None).await.unwrap();
        let (mut count, mut error) = fill(&store, key(0), epoch, 0).await;
        while store.health() == Health::Ok {
            // The engine may have freed space since the refusal, but then there is room for another event.
            let (more, again) = fill(&store, key(0), epoch, count).await;
            assert!(more > count, "{again} at step {step}, and it is healthy");
            (count, error) = (more, again);
        }
        assert_eq!(error, StoreError::Full);
    }
}

#[tokio::test]
async fn a_disk_that_is_full_for_real_stops_writes_until_there_is_room_and_loses_nothing_acknowledged() {
    let small = Small::mount(32);
    let store = Arc::new(open(&small.store(), Some(0)));
    let epochs = claims(&store, 4).await;
    let ballast = small.ballast(20);
    let taken = fill_by_many(&store, &epochs, &[0; 4]).await;
    assert!(taken.iter().any(|(_, error)| *error == StoreError::Unknown), "{taken:?}");
    assert_eq!(store.health(), Health::Poisoned);
    let trouble = store.trouble().unwrap();
    assert!(trouble.what.starts_with("the engine failed to write"), "{trouble:?}");
    assert_eq!(trouble.grade, Grade::Degraded, "it comes back by itself");
    // While there is no room, reads work and writes are refused.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(store.health(), Health::Poisoned);
    for (session, (count, _)) in (0..).zip(&taken) {
        assert_holds(&store, key(session), *count).await;
    }
    let late = store.append(key(0), epochs[0], vec![event(0, "late")]).await;
    let Err(StoreError::Unavailable(why)) = late else { panic!("{late:?}") };
    assert_eq!(why, "an earlier write failed; it is opened anew as soon as that can succeed");

    std::fs::remove_file(ballast).unwrap();
    until("the store works again", SECONDS, async || store.health() == Health::Ok).await;
    assert_eq!(store.trouble(), None);
    let mut held = Vec::new();
    for (session, (count, _)) in (0..).zip(&taken) {
        let found = assert_holds(&store, key(session), *count).await;
        assert!(found <= count + 1, "one was in doubt, not {}", found - count);
        held.push(found);
    }
    // The owners are unchanged.
    store.append(key(0), epochs[0], vec![large(held[0])]).await.unwrap();
    drop(store);
    let store = open(&small.store(), Some(0));
    assert_eq!(assert_holds(&store, key(0), 0).await, held[0] + 1);
}

#[tokio::test]
async fn a_disk_that_others_fill_to_the_last_byte_is_got_over_when_there_is_room() {
    let small = Small::mount(64);
    let store = Arc::new(open(&small.store(), None));
    let epochs = claims(&store, 2).await;
    let (gone, fresh) = (|number| RecordKey::session(key(number)), RecordKey::session(key(255)));
    let value = Bytes::from(vec![7; 4 << 10]);
    let mut versions = Vec::new();
    for number in 0..200 {
        versions.push(store.put(gone(number), value.clone(), Expected::Absent, None).await.unwrap());
    }
    store.append(key(0), epochs[0], vec![large(0)]).await.unwrap();

    let ballast = small.ballast_to_the_last_byte();
    // A removal needs journal space too. Whether it is refused or fails, the store recovers.
    let mut outcomes = Vec::new();
    for (number, version) in (0..).zip(&versions) {
        outcomes.push(store.delete(gone(number), *version).await);
    }
    assert!(outcomes.last().unwrap().is_err(), "{outcomes:?}");
    // The engine needs space for its own work too; give it time to try.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(assert_holds(&store, key(0), 1).await, 1, "reads work");

    std::fs::remove_file(ballast).unwrap();
    until("the store works again", SECONDS, async || store.health() == Health::Ok).await;
    store.put(fresh, value, Expected::Absent, None).await.unwrap();
    store.append(key(0), epochs[0], vec![large(1)]).await.unwrap();
    for (number, (version, outcome)) in (0..).zip(versions.iter().zip(outcomes)) {
        let left = store.get(gone(number)).await.unwrap();
        match outcome {
            Ok(()) => assert_eq!(left, None, "what was done stays done"),
            Err(StoreError::Unknown) => {}
            Err(_) => assert_eq!(left.map(|record| record.version), Some(*version)),
        }
        drop(store.delete(gone(number), *version).await);
    }
    drop(store);
    let store = open(&small.store(), None);
    assert_eq!(assert_holds(&store, key(0), 2).await, 2);
    assert_eq!(store.list(Space::Session, None, 999).await.unwrap().len(), 1);
    assert!(store.get(fresh).await.unwrap().is_some());
}

#[tokio::test]
async fn a_full_store_makes_room_by_what_it_removes() {
    let small = Small::mount(128);
    let store = Arc::new(open(&small.store(), None));
    let (epochs, taken) = filled(&store).await;
    assert_makes_room(&store, &epochs, &taken).await;
}

#[tokio::test]
async fn a_store_that_was_full_for_a_while_makes_room_by_what_it_removes() {
    let small = Small::mount(128);
    let (same, value) = (RecordKey::session(key(1)), noise(0, 4 << 10));
    let store = Arc::new(open(&small.store(), None));
    let mut version = store.put(same, value.clone(), Expected::Absent, None).await.unwrap();
    let (epochs, taken) = filled(&store).await;
    // Writes that do not grow the store need journal space too, so the store surely becomes full and writes its memory
    // into tables.
    while store.health() == Health::Ok {
        version = store.put(same, value.clone(), Expected::Version(version), None).await.unwrap();
    }
    // Now all data is in tables, and also in the journal, which the engine keeps. Writing some of it may have freed
    // space.
    let written: u64 = taken.iter().map(|(count, _)| count * (16 << 10)).sum();
    let is_written = async || tables(&small.store()) >= written || store.health() == Health::Ok;
    until("all of it is in tables", SECONDS, is_written).await;
    assert_makes_room(&store, &epochs, &taken).await;
}

/// Fills a store until it takes no more events.
async fn filled(store: &Arc<Disk>) -> (Vec<Epoch>, Vec<(u64, StoreError)>) {
    let epochs = claims(store, 8).await;
    let taken = fill_by_many(store, &epochs, &[0; 8]).await;
    assert!(taken.iter().all(|(_, error)| *error == StoreError::Full), "{taken:?}");
    (epochs, taken)
}

/// The bytes of all tables.
fn tables(store: &Path) -> u64 {
    let is_table = |path: &Path| path.parent().is_some_and(|folder| folder.ends_with("tables"));
    // A file may go between two looks.
    let length = |path: &PathBuf| std::fs::metadata(path).map_or(0, |data| data.len());
    files(store, is_table).iter().map(length).sum()
}

/// Removes all sessions but the first, and checks that the first can be written to again.
async fn assert_makes_room(store: &Disk, epochs: &[Epoch], taken: &[(u64, StoreError)]) {
    for session in 1..8 {
        store.drop_session(key(session)).await.unwrap();
    }
    // The engine needs space to merge the rest, so the store may be full once more.
    let next = AtomicU64::new(taken[0].0);
    until("a megabyte can be written", Duration::from_secs(30), async || {
        let number = next.load(Ordering::Relaxed);
        if store.append(key(0), epochs[0], vec![large(number)]).await.is_ok() {
            next.store(number + 1, Ordering::Relaxed);
        }
        number > taken[0].0 + 64
    })
    .await;
    assert_eq!(assert_holds(store, key(0), 0).await, next.into_inner());
}
