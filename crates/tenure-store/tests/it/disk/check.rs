//! A check reports what is lost and nothing else: after any history and any damage, the contents that a repair leaves
//! are compared with the report of the check.

use std::path::Path;

use bytes::Bytes;
use tempfile::TempDir;
use tenure_session::id::{NodeId, SessionKey, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{
    EntryPlace, Epoch, Expected, Keep, NewEvent, Record, RecordKey, SavedLog, Space, Store,
};
use tenure_store::copy::save_log;
use tenure_store::disk::{Disk, Missing, Report, Sync, check, repair};

use super::sample::{Sample, end, session};
use super::tools::noise;

const SESSIONS: usize = 8;

/// A session that is gone in the end, and one whose streams are trimmed away.
const DROPPED: usize = 3;
const TRIMMED: usize = 4;

fn log_of_rmcp() -> SessionKey {
    session(100)
}

fn record(space: Space, number: usize) -> RecordKey {
    RecordKey { space, key: session(number) }
}

/// The bytes of a record or an event, which identify it in a file.
fn bytes(round: u64, number: usize, what: u64) -> Bytes {
    noise(round * 1_000_000 + number as u64 * 1000 + what, 120)
}

async fn claimed(store: &Disk, key: SessionKey) -> Epoch {
    let before = store.owner(key).await.unwrap().map(|(_, epoch)| epoch);
    store.claim(key, NodeId::random(), before).await.unwrap()
}

async fn put(store: &Disk, key: RecordKey, value: Bytes, deadline: Option<Time>) {
    let found = store.get(key).await.unwrap();
    let expected = found.map_or(Expected::Absent, |record| Expected::Version(record.version));
    store.put(key, value, expected, deadline).await.unwrap();
}

/// One round of everything that a server does to a store.
async fn work(store: &Disk, round: u64) {
    for number in 0..SESSIONS {
        let key = session(number);
        let epoch = claimed(store, key).await;
        put(
            store,
            RecordKey::session(key),
            bytes(round, number, 0),
            Some(Time(round * 1000 + number as u64)),
        )
        .await;
        let request = 1 + u32::try_from(round).unwrap();
        for (what, (stream, place)) in (1..).zip([
            (0, EntryPlace::Middle),
            (request, EntryPlace::Note),
            (request, EntryPlace::Middle),
            (0, EntryPlace::Middle),
            (request, EntryPlace::End),
        ]) {
            let body = bytes(round, number, what);
            let event = NewEvent { stream: StreamId::new(stream), body, place, at: Time(9) };
            store.append(key, epoch, vec![event]).await.unwrap();
        }
        let events = if number == TRIMMED { 0 } else { 5 };
        store.trim(key, Keep { events, bytes: usize::MAX, since: Time(0) }).await.unwrap();
    }
    for (what, space) in (50..).zip([Space::State, Space::Task, Space::Call]) {
        for number in 0..3 {
            put(store, record(space, number), bytes(round, number, what), Some(Time(77 + round))).await;
        }
    }
    put(store, record(Space::Store, 1), bytes(round, 1, 60), None).await;
    // An rmcp stream: its record names its log, which has no record of its own.
    let log = [&[2], &log_of_rmcp().as_bytes()[..]].concat();
    put(store, record(Space::Rmcp, 1), log.into(), Some(Time(99))).await;
    let epoch = claimed(store, log_of_rmcp()).await;
    let event = NewEvent {
        stream: StreamId::new(0),
        body: bytes(round, 1, 70),
        place: EntryPlace::Middle,
        at: Time(9),
    };
    store.append(log_of_rmcp(), epoch, vec![event]).await.unwrap();
    if round == 1 {
        for key in [RecordKey::session(session(DROPPED)), record(Space::Task, 2)] {
            let version = store.get(key).await.unwrap().unwrap().version;
            store.delete(key, version).await.unwrap();
        }
        store.drop_session(session(DROPPED)).await.unwrap();
        put(store, RecordKey::session(session(TRIMMED)), Bytes::from_static(b"over"), None).await;
    }
}

/// A store that has been closed and opened, with some of it in tables and the rest in its journal.
async fn busy() -> Sample {
    let folder = TempDir::new().unwrap();
    work(&Disk::open(folder.path(), Sync::Os).unwrap(), 0).await;
    let sample = Sample::of(folder);
    sample.flush();
    work(&Disk::open(sample.path(), Sync::Os).unwrap(), 1).await;
    Sample::of(sample.folder)
}

/// A copy of the files of an open store: what a kill would leave at this moment.
fn killed(folder: &Path) -> Sample {
    let copy = TempDir::new().unwrap();
    super::tools::copy_at_one_moment(folder, copy.path());
    Sample::of(copy)
}

/// Everything that can be read from a store.
#[derive(PartialEq, Debug)]
struct Contents {
    records: Vec<(RecordKey, Record)>,
    logs: Vec<(bool, SavedLog)>,
}

async fn contents(sample: &Sample) -> Contents {
    // Opening changes the store, so open a copy.
    let copy = sample.copy();
    let store = Disk::open(copy.path(), Sync::Os).unwrap();
    let (mut records, mut logs) = (Vec::new(), Vec::new());
    for space in Space::ALL {
        for (key, record) in store.list(space, None, usize::MAX).await.unwrap() {
            records.push((RecordKey { space, key }, record));
        }
    }
    for key in (0..SESSIONS).map(session).chain([log_of_rmcp()]) {
        logs.push((store.owner(key).await.unwrap().is_some(), save_log(&store, key).await.unwrap()));
    }
    Contents { records, logs }
}

fn checked(sample: &Sample) -> Report {
    check(sample.path(), |_| {}).unwrap()
}

/// Flips a bit in the middle of these bytes in a file.
fn flip(file: &Path, bytes: &[u8]) {
    let mut content = std::fs::read(file).unwrap();
    // The whole may be compressed, so search for its middle.
    let needle = &bytes[40..80];
    let at = content.windows(needle.len()).position(|window| window == needle).expect("it is in the file");
    content[at + 20] ^= 0x20;
    std::fs::write(file, content).unwrap();
}

#[tokio::test]
async fn a_store_that_was_busy_has_lost_nothing_however_it_ended() {
    let closed = busy().await;
    let whole = contents(&closed).await;

    let in_tables = closed.copy();
    in_tables.flush();
    let without_journal = in_tables.copy();
    std::fs::OpenOptions::new().write(true).open(without_journal.journal()).unwrap().set_len(0).unwrap();

    let open = Disk::open(closed.path(), Sync::Os).unwrap();
    let killed_at_rest = killed(closed.path());
    // The mark from before the last writes, as if the kill had come before the next sync.
    let mark = std::fs::read(closed.path().join("high-water")).unwrap();
    put(&open, record(Space::State, 1), bytes(2, 1, 50), None).await;
    let killed_at_work = killed(closed.path());
    std::fs::write(killed_at_work.path().join("high-water"), mark).unwrap();
    let killed_while_writing = killed_at_work.copy();
    let journal = killed_while_writing.journal();
    let length = end(&std::fs::read(&journal).unwrap()) as u64;
    std::fs::OpenOptions::new().write(true).open(&journal).unwrap().set_len(length - 30).unwrap();
    drop(open);

    let closed = closed.copy();
    let table = [
        ("closed", &closed),
        ("closed, all of it in tables and in the journal", &in_tables),
        ("closed, all of it in tables alone", &without_journal),
        ("killed", &killed_at_rest),
        ("killed before the last write was synced", &killed_at_work),
        ("killed in the middle of a write", &killed_while_writing),
    ];
    for (how, sample) in table {
        let report = checked(sample);
        assert!(report.is_sound() && !report.has_lost(), "{how}: {report:?}");
        assert!(report.sessions.is_empty() && report.doubtful == 0, "{how}: {report:?}");
    }
    assert_eq!(contents(&killed_at_rest).await, whole);
    assert_eq!(contents(&without_journal).await, whole);
}

/// Checks that the report names damage but no loss, and that a repair brings everything back.
async fn assert_nothing_lost(what: &str, sample: &Sample, whole: &Contents) {
    let report = checked(sample);
    assert!(!report.is_sound(), "{what}: it is damaged all the same");
    assert!(!report.has_lost(), "{what}: {report:?}");
    assert_eq!((report.missing_batches, report.doubtful), (0, 0), "{what}: {report:?}");
    assert!(report.damage.iter().all(|damage| damage.lost == Some(0)), "{what}: {report:?}");
    assert!(report.sessions.is_empty(), "{what}: {report:?}");
    repair(sample.path(), |_| {}).unwrap();
    assert!(contents(sample).await == *whole, "{what}: all of it is there after the repair");
}

#[tokio::test]
async fn what_is_damaged_in_one_place_and_there_in_another_is_not_called_lost() {
    let closed = busy().await;
    let whole = contents(&closed).await;
    let in_tables = closed.copy();
    in_tables.flush();

    // Bytes in the journal, each in a batch of its own.
    let journal = [
        ("a record that was written anew", bytes(0, 1, 0)),
        ("an event that was trimmed since", bytes(0, 1, 1)),
        ("a note whose stream is complete", bytes(0, 1, 2)),
        ("a task that was deleted since", bytes(0, 2, 51)),
        ("a kept call that was written anew", bytes(0, 1, 52)),
        ("the record of a session that is gone", bytes(0, DROPPED, 0)),
    ];
    for (what, bytes) in journal {
        let sample = closed.copy();
        flip(&sample.journal(), &bytes);
        assert_nothing_lost(what, &sample, &whole).await;
    }
    for (what, bytes) in
        [("an event in a table too", bytes(1, 5, 4)), ("a record in a table too", bytes(1, 5, 0))]
    {
        let sample = in_tables.copy();
        flip(&sample.journal(), &bytes);
        assert_nothing_lost(what, &sample, &whole).await;
    }
    // The journal holds everything that was ever written.
    for (what, keyspace) in [("records", 2), ("owners", 4), ("events", 5)] {
        let gone = in_tables.copy();
        for table in gone.files(&format!("keyspaces/{keyspace}")) {
            std::fs::remove_file(table).unwrap();
        }
        assert_nothing_lost(what, &gone, &whole).await;
    }
}

#[tokio::test]
async fn what_is_lost_is_called_so_by_its_name() {
    let closed = busy().await;
    let whole = contents(&closed).await;
    let label = |number: usize| session(number).label();
    let none = Missing::default();
    let table = [
        ("the newest record", bytes(1, 1, 0), label(1), Missing { newer_record: true, ..none }),
        ("an event", bytes(1, 1, 4), label(1), Missing { events: true, ..none }),
        ("a state", bytes(1, 1, 50), record(Space::State, 1).label(), Missing { newer_record: true, ..none }),
    ];
    for (what, bytes, label, missing) in table {
        let sample = closed.copy();
        flip(&sample.journal(), &bytes);
        let report = checked(&sample);
        assert!(report.has_lost() && report.missing_batches == 1, "{what}: {report:?}");
        assert_eq!(report.sessions.iter().collect::<Vec<_>>(), [(&label, &missing)], "{what}");
        repair(sample.path(), |_| {}).unwrap();
        assert!(contents(&sample).await != whole, "{what}: something is gone");
    }

    // A session that exists only in the damaged batch.
    let folder = TempDir::new().unwrap();
    let store = Disk::open(folder.path(), Sync::Os).unwrap();
    for number in 0..3 {
        put(&store, RecordKey::session(session(number)), bytes(0, number, 0), None).await;
    }
    drop(store);
    let sample = Sample::of(folder);
    flip(&sample.journal(), &bytes(0, 1, 0));
    let report = checked(&sample);
    assert!(report.has_lost(), "{report:?}");
    assert_eq!(report.sessions.iter().collect::<Vec<_>>(), [(&label(1), &Missing { record: true, ..none })]);

    // Tables whose entries are not in the journal.
    let in_tables = closed.copy();
    in_tables.flush();
    std::fs::OpenOptions::new().write(true).open(in_tables.journal()).unwrap().set_len(0).unwrap();
    for table in in_tables.files("keyspaces/5") {
        std::fs::remove_file(table).unwrap();
    }
    let report = checked(&in_tables);
    assert!(report.has_lost() && report.damage.iter().any(|damage| damage.lost.is_none()), "{report:?}");
    repair(in_tables.path(), |_| {}).unwrap();
    assert!(contents(&in_tables).await != whole);
}

#[tokio::test]
async fn losses_at_the_ends_and_beginnings_of_journals_are_counted() {
    const TRAILER: &[u8] = b"FJL\x03";
    let closed = busy().await;
    let journal = std::fs::read(closed.journal()).unwrap();
    let mut ends: Vec<_> =
        journal.windows(TRAILER.len()).enumerate().filter(|(_, it)| *it == TRAILER).collect();
    let (last_of_first, _) = ends.drain(..).nth_back(40).unwrap();
    let (first, second) = journal.split_at(last_of_first + TRAILER.len());
    // As if the engine had begun another journal in the middle.
    let (at_end, at_beginning) = (closed.copy(), closed.copy());
    for (sample, first, second) in [
        (&at_end, &first[..first.len() - 10], second.to_vec()),
        // The head of the first batch of the second journal.
        (&at_beginning, first, [&[0xff; 5], &second[5..]].concat()),
    ] {
        let path = sample.journal();
        assert_eq!(path.file_name().unwrap(), "0.jnl");
        std::fs::write(path.with_file_name("1.jnl"), second).unwrap();
        std::fs::write(&path, first).unwrap();
        let report = checked(sample);
        assert!(report.has_lost() && report.missing_batches == 1, "{report:?}");
    }
}

#[tokio::test]
async fn a_log_of_rmcp_has_no_record_of_its_own_that_could_be_lost() {
    let folder = TempDir::new().unwrap();
    let store = Disk::open(folder.path(), Sync::Os).unwrap();
    for number in 0..60 {
        claimed(&store, session(number)).await;
        put(&store, RecordKey::session(session(number)), noise(number as u64, 200), None).await;
        let log = session(200 + number);
        claimed(&store, log).await;
        put(&store, record(Space::Rmcp, number), [&[2], &log.as_bytes()[..]].concat().into(), None).await;
    }
    drop(store);
    let sample = Sample::of(folder);
    sample.flush();
    std::fs::OpenOptions::new().write(true).open(sample.journal()).unwrap().set_len(0).unwrap();
    // Most records in the table are sessions, and they come first.
    super::sample::flip(&sample.table(2), 30);
    let report = checked(&sample);
    let lost = report.damage[0].lost.unwrap();
    assert!(lost > 1, "{report:?}");
    assert_eq!(report.sessions.len() as u64, lost, "{report:?}");
    for number in 0..60 {
        assert!(!report.sessions.contains_key(&session(200 + number).label()), "{report:?}");
    }
}
