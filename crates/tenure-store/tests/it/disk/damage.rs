//! A damaged store is not opened, a check reports its damage, and a repair saves everything undamaged.

use std::path::{Path, PathBuf};

use tenure_session::id::{NodeId, Position, SessionKey, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{Expected, ReadLimit, RecordKey, SavedLog, Space, Store, StoreError};
use tenure_store::disk::{Damage, DamageKind, Disk, DiskError, Report, Sync, check, repair};

use super::sample::{BATCHES, EVENTS, Left, SESSIONS, Sample, cut, end, flip, session};
use super::tools::{ALL, files, key, noise};

fn checked(sample: &Sample) -> Report {
    check(sample.path(), |_| {}).unwrap()
}

/// Repairs the store, and checks that it is sound and that the damaged data is still there.
fn repaired(sample: &Sample) -> Report {
    let report = repair(sample.path(), |_| {}).unwrap();
    let kept = report.kept.clone().expect("the damaged data is kept");
    assert!(kept.join("keyspaces").is_dir() && kept.starts_with(sample.path()), "{}", kept.display());
    let now = checked(sample);
    assert!(now.is_sound(), "{now:?}");
    assert_eq!(now.totals.events, report.totals.events);
    report
}

fn refusal(sample: &Sample) -> DiskError {
    Disk::open(sample.path(), Sync::Os).unwrap_err()
}

fn damage(sample: &Sample, file: &Path, kind: DamageKind, is_refused: bool, lost: Option<u64>) -> Damage {
    Damage { file: inside(sample, file), kind, is_refused, lost }
}

fn inside(sample: &Sample, file: &Path) -> PathBuf {
    file.strip_prefix(sample.path()).unwrap().to_owned()
}

#[track_caller]
fn assert_damaged(error: &DiskError, sample: &Sample, file: &Path) {
    let DiskError::Damaged { path, files, .. } = error else { panic!("{error}") };
    assert_eq!((path.as_path(), files.as_slice()), (sample.path(), [inside(sample, file)].as_slice()));
    let (store, file) = (sample.path().display(), inside(sample, file));
    assert_eq!(error.to_string(), format!("`{store}` is damaged in `{}`", file.display()));
}

#[tokio::test]
async fn a_sound_store_is_counted_and_left_alone() {
    for sample in [Sample::write().await, Sample::write_tables().await] {
        let report = checked(&sample);
        assert!(report.is_sound() && !report.has_lost(), "{report:?}");
        let totals = report.totals;
        let sessions = SESSIONS as u64;
        assert_eq!((totals.sessions, totals.other_records, totals.owners), (sessions, 0, sessions));
        assert_eq!((totals.deadlines, totals.events, totals.notes), (sessions, sessions * EVENTS as u64, 0));
        assert_eq!(repair(sample.path(), |_| {}).unwrap(), report);
        assert_eq!(sample.left().await, Left::all());
        let names = std::fs::read_dir(sample.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(names.count(), 3, "the data, the mark and the numbers");
    }
}

#[tokio::test]
async fn one_flipped_bit_in_a_journal_costs_one_batch() {
    let sample = Sample::write().await;
    for percent in [7, 31, 52, 75, 97] {
        let sample = sample.copy();
        let journal = sample.journal();
        flip(&journal, percent);
        assert_damaged(&refusal(&sample), &sample, &journal);
        let before = std::fs::read(&journal).unwrap();
        let report = checked(&sample);
        assert!(before == std::fs::read(&journal).unwrap(), "neither opening nor checking changes anything");
        assert_eq!(repaired(&sample).missing_batches, report.missing_batches);
        let left = sample.left().await;
        // A damaged head is corrected; any other damage loses the batch.
        assert!(report.missing_batches <= 1, "{report:?}");
        assert_eq!(left.writes(), BATCHES - report.missing_batches, "at {percent} %");
        assert_eq!(
            report.damage,
            [damage(&sample, &journal, DamageKind::Journal, true, Some(report.missing_batches))]
        );
        assert_eq!(left.expired, left.records);
    }
}

#[tokio::test]
async fn the_session_of_a_damaged_batch_is_named() {
    let sample = Sample::write().await;
    // The body of an event is most of its batch, so this hits one.
    flip(&sample.journal(), 50);
    let report = checked(&sample);
    repaired(&sample);
    let left = sample.left().await;
    let hurt = left.events.iter().position(|count| *count == EVENTS - 1).unwrap();
    assert_eq!(report.sessions.keys().collect::<Vec<_>>(), [&session(hurt).label()]);
}

#[tokio::test]
async fn a_data_session_is_counted_and_named_as_one() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = Disk::open(folder.path(), Sync::Os).unwrap();
    let state = |number| RecordKey { space: Space::State, key: session(number) };
    for number in 0..3 {
        store.put(state(number), noise(number as u64, 4000), Expected::Absent, Some(Time(9))).await.unwrap();
    }
    drop(store);
    let sample = Sample::of(folder);
    let report = checked(&sample);
    let totals = report.totals;
    assert_eq!((totals.sessions, totals.data_sessions, totals.other_records), (0, 3, 0));
    assert_eq!((report.is_sound(), totals.deadlines), (true, 3));
    // The second of three events, each of which is nearly all of its batch.
    flip(&sample.journal(), 50);
    let report = repaired(&sample);
    assert_eq!(report.sessions.keys().collect::<Vec<_>>(), [&state(1).label()]);
    assert!(state(1).label().starts_with("d-"));
    assert_eq!(checked(&sample).totals.data_sessions, 2);
}

#[tokio::test]
async fn a_task_is_counted_and_named_as_one() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = Disk::open(folder.path(), Sync::Os).unwrap();
    let task = RecordKey { space: Space::Task, key: session(1) };
    store.put(task, noise(1, 400), Expected::Absent, Some(Time(9))).await.unwrap();
    assert_eq!(store.expired(Space::Task, Time(9), 9).await.unwrap().len(), 1);
    drop(store);
    let totals = checked(&Sample::of(folder)).totals;
    assert_eq!((totals.tasks, totals.data_sessions, totals.other_records), (1, 0, 0));
    assert!(task.label().starts_with("t-"));
}

#[tokio::test]
async fn a_cut_journal_keeps_what_is_before_the_cut() {
    let sample = Sample::write().await;
    let journal = sample.journal();
    cut(&journal, 60);
    let error = refusal(&sample);
    let DiskError::Lost { missing, .. } = error else { panic!("{error}") };
    let said = format!(
        "`{}` has lost its last {missing} batches of writes: its journal is damaged",
        sample.path().display()
    );
    assert_eq!(error.to_string(), said);
    let report = repaired(&sample);
    assert_eq!(report.missing_batches, missing);
    assert_eq!(report.damage, [damage(&sample, &journal, DamageKind::Journal, true, Some(missing))]);
    let left = sample.left().await;
    assert_eq!(left.writes(), BATCHES - missing);
    assert!(left.records == SESSIONS && left.owners == SESSIONS, "they were written first");
    // Events were written one round after the other, so sessions differ by one at most.
    let (least, most) = (left.events.iter().min().unwrap(), left.events.iter().max().unwrap());
    assert!(most - least <= 1 && *least > EVENTS / 2, "{left:?}");
}

#[tokio::test]
async fn one_flipped_bit_in_a_table_costs_one_block() {
    let sample = Sample::write_tables().await;
    let table = sample.table(5);
    flip(&table, 40);
    let report = checked(&sample);
    let [found] = &report.damage[..] else { panic!("{report:?}") };
    let lost = found.lost.unwrap();
    assert_eq!(*found, damage(&sample, &table, DamageKind::Table("events".to_owned()), false, Some(lost)));
    // A block is 4 KiB, and an event takes 350 bytes of it.
    assert!((1..=14).contains(&lost), "{lost}");
    repaired(&sample);
    let left = sample.left().await;
    assert_eq!((left.records, left.owners, left.expired), (SESSIONS, SESSIONS, SESSIONS));
    assert_eq!(left.events(), SESSIONS * EVENTS - usize::try_from(lost).unwrap());
    // The report names the sessions in and next to the block, with every session that lost something.
    assert!((1..=3).contains(&report.sessions.len()), "{:?}", report.sessions);
    for (number, count) in left.events.iter().enumerate() {
        let missing = report.sessions.get(&session(number).label());
        assert!(*count == EVENTS || missing.is_some_and(|missing| missing.events && !missing.record));
    }
}

#[tokio::test]
async fn a_flipped_bit_in_records_names_the_sessions_that_lost_theirs() {
    let sample = Sample::write_tables().await;
    let table = sample.table(2);
    flip(&table, 30);
    let report = repaired(&sample);
    let lost = report.damage[0].lost.unwrap();
    let left = sample.left().await;
    assert_eq!(left.records, SESSIONS - usize::try_from(lost).unwrap());
    assert_eq!((left.owners, left.events()), (SESSIONS, SESSIONS * EVENTS));
    assert_eq!(left.expired, left.records, "the index is made from the records that are left");
    assert_eq!(report.sessions.values().filter(|missing| missing.record).count() as u64, lost);
}

#[tokio::test]
async fn a_cut_table_keeps_its_whole_blocks() {
    let sample = Sample::write_tables().await;
    let table = sample.table(5);
    cut(&table, 90);
    assert_damaged(&refusal(&sample), &sample, &table);
    let report = repaired(&sample);
    // The lost end of the table held its metadata.
    assert_eq!(report.damage, [damage(&sample, &table, DamageKind::Table("events".to_owned()), true, None)]);
    let left = sample.left().await;
    assert_eq!((left.records, left.owners, left.expired), (SESSIONS, SESSIONS, SESSIONS));
    assert_eq!(left.events() as u64, report.totals.events);
    let all = SESSIONS * EVENTS;
    assert!(all * 85 / 100 < left.events() && left.events() < all, "{} of {all} events", left.events());
    for (number, count) in left.events.iter().enumerate() {
        assert!(*count == EVENTS || report.sessions.contains_key(&session(number).label()));
    }
}

#[tokio::test]
async fn a_table_that_is_gone_costs_what_was_in_it() {
    let sample = Sample::write_tables().await;
    let table = sample.table(5);
    std::fs::remove_file(&table).unwrap();
    assert_damaged(&refusal(&sample), &sample, &table);
    let report = repaired(&sample);
    assert_eq!(report.damage, [damage(&sample, &table, DamageKind::Table("events".to_owned()), true, None)]);
    let left = sample.left().await;
    assert_eq!((left.records, left.owners, left.expired, left.events()), (SESSIONS, SESSIONS, SESSIONS, 0));
}

#[tokio::test]
async fn what_is_still_in_the_journal_makes_up_for_tables() {
    let sample = Sample::write().await;
    sample.flush();
    std::fs::remove_file(sample.table(5)).unwrap();
    cut(&sample.table(2), 10);
    let report = repaired(&sample);
    assert_eq!(report.damage.len(), 2);
    assert!(!report.has_lost(), "{report:?}");
    assert_eq!(sample.left().await, Left::all());
}

#[tokio::test]
async fn a_damaged_or_missing_manifest_costs_nothing() {
    let whole = Sample::write_tables().await;
    let manifest = |sample: &Sample, name: &str| {
        let folder = sample.path().join("data/keyspaces/5");
        let files = files(&folder, |path| path.file_name().unwrap().to_str().unwrap().starts_with(name));
        files.into_iter().max().unwrap()
    };
    let (flipped, gone, pointer) = (whole.copy(), whole.copy(), whole.copy());
    flip(&manifest(&flipped, "v"), 50);
    std::fs::remove_file(manifest(&gone, "v")).unwrap();
    // The engine deletes a keyspace whose pointer is gone.
    std::fs::remove_file(manifest(&pointer, "current")).unwrap();
    let file = inside(&pointer, &pointer.path().join("data/keyspaces/5/current"));
    for (sample, file) in [(&flipped, None), (&gone, None), (&pointer, Some(file))] {
        let file = file.unwrap_or_else(|| inside(&whole, &manifest(&whole, "v")));
        assert_damaged(&refusal(sample), sample, &sample.path().join(&file));
        let report = repaired(sample);
        // The manifest may have listed a table that is gone, so the report must not say that nothing is lost.
        assert_eq!(
            report.damage,
            [Damage { file, kind: DamageKind::Manifest, is_refused: true, lost: None }]
        );
        assert_eq!(sample.left().await, Left::all());
    }
}

#[tokio::test]
async fn without_its_cornerstones_the_engine_may_not_touch_anything() {
    let (own, version) = (Sample::write_tables().await, Sample::write_tables().await);
    std::fs::remove_dir_all(own.path().join("data/keyspaces/0")).unwrap();
    assert_damaged(&refusal(&own), &own, &own.path().join("data/keyspaces/0/current"));
    let file = version.path().join("data/version");
    flip(&file, 50);
    assert_damaged(&refusal(&version), &version, &file);
    for sample in [own, version] {
        assert!(!repaired(&sample).has_lost());
        assert_eq!(sample.left().await, Left::all());
    }
}

#[tokio::test]
async fn a_damaged_mark_is_told_and_made_anew() {
    let sample = Sample::write().await;
    let mark = sample.path().join("high-water");
    let whole = std::fs::read(&mark).unwrap();
    flip(&mark, 90);
    assert_eq!(sample.left().await, Left::all(), "it opens");
    flip(&mark, 90);
    let report = repair(sample.path(), |_| {}).unwrap();
    assert_eq!(report.damage, [damage(&sample, &mark, DamageKind::Mark, false, Some(0))]);
    assert_eq!((report.kept, std::fs::read(&mark).unwrap()), (None, whole));
    assert!(checked(&sample).is_sound());
}

#[tokio::test]
async fn an_index_that_is_off_is_found_and_mended() {
    let sample = Sample::write().await;
    {
        let database = fjall::Database::builder(sample.path().join("data")).open().unwrap();
        let index = database.keyspace("deadlines", Default::default).unwrap();
        let first = index.first_key_value().unwrap().key().unwrap();
        index.remove(first).unwrap();
        index.insert([7; 25], []).unwrap();
        index.insert([0; 3], []).unwrap();
    }
    let report = checked(&sample);
    assert_eq!((report.missing_deadlines, report.stale_deadlines), (1, 2));
    assert!(!report.is_sound() && !report.has_lost());
    repaired(&sample);
    assert_eq!(sample.left().await, Left::all());
}

#[tokio::test]
async fn a_repair_that_was_cut_short_goes_on() {
    let sample = Sample::write().await;
    let (data, fresh) = (sample.path().join("data"), sample.path().join("data.repairing"));
    // A repair that was cut short just before its last rename.
    std::fs::rename(&data, &fresh).unwrap();
    assert_damaged(&refusal(&sample), &sample, &fresh);
    assert!(!data.exists(), "no empty store is put in its place");
    assert!(repair(sample.path(), |_| {}).unwrap().is_sound());
    assert_eq!(sample.left().await, Left::all());
    // A repair that was cut short earlier: the old data is still in its place.
    std::fs::create_dir_all(fresh.join("keyspaces")).unwrap();
    flip(&sample.journal(), 50);
    repaired(&sample);
    assert!(!fresh.exists());
}

#[tokio::test]
async fn data_that_is_gone_is_not_replaced_by_an_empty_store() {
    let sample = Sample::write().await;
    std::fs::remove_dir_all(sample.path().join("data")).unwrap();
    let error = refusal(&sample);
    assert!(matches!(error, DiskError::Lost { missing, .. } if missing == BATCHES), "{error}");
    assert!(!sample.path().join("data").exists());
}

#[tokio::test]
async fn the_unsynced_end_of_a_journal_may_be_in_any_state() {
    let sample = Sample::write().await;
    let mark = sample.path().join("high-water");
    let before = std::fs::read(&mark).unwrap();
    let journal = sample.journal();
    let promised = end(&std::fs::read(&journal).unwrap());
    {
        let store = Disk::open(sample.path(), Sync::Os).unwrap();
        for number in 0..3 {
            store.claim(key(number), NodeId::random(), None).await.unwrap();
        }
    }
    std::fs::write(&mark, before).unwrap();
    let whole = std::fs::read(&journal).unwrap();
    // One byte of the unsynced part is wrong, and good batches may follow it.
    let places: Vec<usize> = (promised..end(&whole)).step_by(23).collect();
    assert!(places.len() > 15, "{places:?}");
    for at in places {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x20;
        std::fs::write(&journal, bytes).unwrap();
        let store = Disk::open(sample.path(), Sync::Os).unwrap();
        assert_eq!(store.tail(session(SESSIONS - 1)).await.unwrap().0, BATCHES);
        // Writes before the byte are there, writes after it are not.
        let mut claimed = Vec::new();
        for number in 0..3 {
            claimed.push(store.owner(key(number)).await.unwrap().is_some());
        }
        assert!(claimed.is_sorted_by(|one, two| one >= two) && !claimed[2], "{claimed:?}");
    }
}

#[tokio::test]
async fn a_store_in_use_is_neither_checked_nor_repaired() {
    let sample = Sample::write().await;
    let _open = Disk::open(sample.path(), Sync::Os).unwrap();
    assert!(matches!(check(sample.path(), |_| {}), Err(DiskError::InUse(_))));
    assert!(matches!(repair(sample.path(), |_| {}), Err(DiskError::InUse(_))));
}

#[tokio::test]
async fn numbers_leap_over_what_was_lost() {
    let sample = Sample::write().await;
    cut(&sample.journal(), 60);
    repaired(&sample);
    let store = Disk::open(sample.path(), Sync::Os).unwrap();
    let epoch = store.claim(key(1), NodeId::random(), None).await.unwrap();
    assert!(epoch.0 > 1 << 32, "{epoch:?}");
}

/// How many events of a session can be read one by one from its beginning.
async fn readable(store: &Disk, session: SessionKey) -> usize {
    let (mut after, mut count) = (Position::START, 0);
    let one = ReadLimit { events: 1, ..ALL };
    while let Ok(stretch) = store.read(session, StreamId::new(0), after, one).await {
        let Some(event) = stretch.events.first() else { break };
        (after, count) = (event.position, count + 1);
    }
    count
}

#[tokio::test]
async fn events_that_could_not_be_dropped_all_are_all_still_there() {
    let sample = Sample::write_tables().await;
    // The store opens; only a read notices the damage.
    flip(&sample.table(5), 50);
    let store = Disk::open(sample.path(), Sync::Os).unwrap();
    let mut hurt = None;
    for number in 0..SESSIONS {
        let count = readable(&store, session(number)).await;
        hurt = hurt.or((count < EVENTS).then_some((session(number), count)));
    }
    let (session, count) = hurt.expect("some session is damaged");
    assert!(count > 0, "some of its events come before the damage");
    assert!(matches!(store.drop_session(session).await, Err(StoreError::Unavailable(_))));
    assert!(matches!(store.restore(session, SavedLog::default()).await, Err(StoreError::Unavailable(_))));
    // If the failed write had left changes in the batch, the next write would commit them.
    store.claim(key(1), NodeId::random(), None).await.unwrap();
    assert_eq!(readable(&store, session).await, count);
    assert!(store.owner(session).await.unwrap().is_some());
}
