//! The clauses that have to hold during concurrent writes: every test here runs a writer on its own thread.
//!
//! The moment that a test has to hit is short, so every test makes many tries.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Waker};

use parking_lot::Mutex;
use tenure_session::id::{NodeId, Position, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{
    EntryPlace, Expected, Keep, NewEvent, ReadLimit, RecordKey, Space, StoreError, StreamEvents, Version,
};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::{KEEP_ALL, READ_ALL, SharedStore, bytes, event, key, owned};

/// Runs the writer on its own thread, so that it also runs concurrently with the reader of an engine without threads.
fn beside(rounds: usize, mut round: impl AsyncFnMut(usize) + Send + 'static) -> JoinHandle<()> {
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        runtime.block_on(async {
            for number in 0..rounds {
                round(number).await;
            }
        });
    })
}

pub(super) async fn clause_5_expired_names_the_version_that_is_due(store: SharedStore) {
    const NOW: Time = Time(1_000);
    const KEYS: usize = 128;
    // Versions are unique per record, so the record and the version identify a write.
    let deadlines: Arc<Mutex<HashMap<(RecordKey, Version), Time>>> = Arc::default();
    let mut records: Vec<_> =
        (0..KEYS).map(|_| (RecordKey { space: Space::State, key: key() }, Expected::Absent)).collect();
    let (renewing, written) = (Arc::clone(&store), Arc::clone(&deadlines));
    let writer = beside(10, async move |round| {
        let deadline = if round % 2 == 0 { Time(1) } else { Time(1_000_000) };
        for (key, expected) in &mut records {
            let version = renewing.put(*key, bytes("x"), *expected, Some(deadline)).await.expect("puts");
            written.lock().insert((*key, version), deadline);
            *expected = Expected::Version(version);
        }
    });
    let mut listed = Vec::new();
    while !writer.is_finished() {
        listed.extend(store.expired(Space::State, NOW, 2 * KEYS).await.expect("lists"));
    }
    writer.await.expect("writes");
    let deadlines = deadlines.lock();
    let renewed = listed.iter().filter(|due| deadlines[due] > NOW).count();
    assert_eq!(renewed, 0, "of {} that were listed as due, so many were renewed", listed.len());
}

pub(super) async fn clause_12_a_read_beside_a_drop_has_no_hole(store: SharedStore) {
    // The sessions, each with its positions at the time of the drop.
    let sessions = Arc::new(Mutex::new(Vec::new()));
    let (dropping, written) = (Arc::clone(&store), Arc::clone(&sessions));
    let writer = beside(100, async move |_| {
        let (session, epoch) = owned(&dropping).await;
        let batch = (0..200).map(|_| event(1, "x")).collect();
        let positions = dropping.append(session, epoch, batch).await.expect("appends");
        written.lock().push((session, positions));
        dropping.drop_session(session).await.expect("drops");
    });
    while !writer.is_finished() {
        tokio::task::yield_now().await;
        let Some((session, positions)) = sessions.lock().last().cloned() else { continue };
        let stretch = store.read(session, StreamId::new(1), Position::START, READ_ALL).await.expect("reads");
        let read: Vec<Position> = stretch.events.iter().map(|event| event.position).collect();
        assert!(positions.starts_with(&read), "a hole: {read:?}");
    }
    writer.await.expect("writes");
}

pub(super) async fn clause_14_a_survey_is_of_one_moment(store: SharedStore) {
    const EVENTS: usize = 20;
    let (session, epoch) = owned(&store).await;
    let append =
        move |store: &SharedStore| store.append(session, epoch, (0..EVENTS).map(|_| event(1, "x")).collect());
    append(&store).await.expect("appends");
    let writing = Arc::clone(&store);
    let writer = beside(200, async move |_| {
        append(&writing).await.expect("appends");
        writing.trim(session, Keep { events: EVENTS, ..KEEP_ALL }).await.expect("trims");
        writing.trim(session, Keep { events: 0, ..KEEP_ALL }).await.expect("trims");
    });
    let mut last = Position::START;
    while !writer.is_finished() {
        let survey = store.survey(session).await.expect("surveys");
        let kept = survey.kept;
        assert_eq!(kept.events % EVENTS, 0, "half a batch: {survey:?}");
        assert_eq!(kept.oldest.is_some(), kept.events > 0, "{survey:?}");
        assert_eq!((survey.streams.len(), survey.next_stream), (1, 2), "it is open: {survey:?}");
        assert!(survey.streams[0].last >= last, "{last:?} was there already: {survey:?}");
        last = survey.streams[0].last;
    }
    writer.await.expect("writes");
}

/// The first known event that a stretch leaves out without reporting a gap.
fn missing(known: &[Position], after: Position, stretch: &StreamEvents) -> Option<Position> {
    let last = stretch.events.last().map_or(Position(u64::MAX), |event| event.position);
    let from = known.partition_point(|position| *position <= after.max(stretch.trimmed));
    let between = known[from..].iter().take_while(|position| **position < last);
    let is_returned = |position: Position| stretch.events.iter().any(|event| event.position == position);
    between.copied().find(|position| !is_returned(*position))
}

pub(super) async fn clause_19_a_read_beside_a_trim_tells_of_every_gap(store: SharedStore) {
    const STREAM: StreamId = StreamId::new(1);
    let (session, epoch) = owned(&store).await;
    let known: Arc<Mutex<Vec<Position>>> = Arc::default();
    let (trimming, appended) = (Arc::clone(&store), Arc::clone(&known));
    let writer = beside(200, async move |_| {
        let batch = (0..40).map(|_| event(1, "x")).collect();
        let positions = trimming.append(session, epoch, batch).await.expect("appends");
        appended.lock().extend(positions);
        trimming.trim(session, Keep { events: 60, ..KEEP_ALL }).await.expect("trims");
    });
    // The reader is slower than the writer, so that it reads where events are being trimmed.
    let (limit, mut after) = (ReadLimit { events: 7, ..READ_ALL }, Position::START);
    while !writer.is_finished() {
        let there = known.lock().len();
        let stretch = store.read(session, STREAM, after, limit).await.expect("reads");
        let gone = missing(&known.lock()[..there], after, &stretch);
        assert_eq!(gone, None, "left out after {after:?}, trimmed is {:?}", stretch.trimmed);
        after = stretch.events.last().map_or(after, |event| event.position);
    }
    writer.await.expect("writes");
}

pub(super) async fn clause_20_a_read_beside_the_last_trim_of_a_stream_tells_of_it(store: SharedStore) {
    let (session, epoch) = owned(&store).await;
    // The positions that were appended to each stream, by its number.
    let known: Arc<Mutex<Vec<Vec<Position>>>> = Arc::default();
    let (trimming, appended) = (Arc::clone(&store), Arc::clone(&known));
    let writer = beside(150, async move |round| {
        let stream = u32::try_from(round).expect("few rounds");
        let mut batch: Vec<NewEvent> = (0..20).map(|_| event(stream, "x")).collect();
        batch.push(NewEvent { place: EntryPlace::End, ..event(stream, "x") });
        let positions = trimming.append(session, epoch, batch).await.expect("appends");
        appended.lock().push(positions);
        // Trims a part of the previous stream first, which leaves a mark, and then all the rest of it.
        for events in [30, 21] {
            trimming.trim(session, Keep { events, ..KEEP_ALL }).await.expect("trims");
        }
    });
    while !writer.is_finished() {
        let streams = known.lock().len();
        for number in streams.saturating_sub(2)..streams {
            let stream = StreamId::new(u32::try_from(number).expect("few rounds"));
            let stretch = store.read(session, stream, Position::START, READ_ALL).await.expect("reads");
            let gone = missing(&known.lock()[number], Position::START, &stretch);
            assert_eq!(gone, None, "left out of stream {number}, trimmed is {:?}", stretch.trimmed);
        }
        tokio::task::yield_now().await;
    }
    writer.await.expect("writes");
}

/// Begins an operation and leaves before it is answered.
fn leave<T>(operation: impl Future<Output = T>) {
    let mut operation = std::pin::pin!(operation);
    // An engine that answers at once has done it; that is one of the two outcomes.
    let polled = operation.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    drop(polled);
}

pub(super) async fn clause_22_a_put_settles_an_earlier_one_without_an_answer(store: SharedStore) {
    for _ in 0..50 {
        let key = RecordKey::session(key());
        let first = store.put(key, bytes("a"), Expected::Absent, None).await.expect("creates");
        leave(store.put(key, bytes("left"), Expected::Version(first), None));
        let second = match store.put(key, bytes("b"), Expected::Version(first), None).await {
            Ok(version) => version,
            Err(StoreError::Conflict { current: Some(left) }) => {
                store.put(key, bytes("b"), Expected::Version(left), None).await.expect("replaces it")
            }
            other => panic!("{other:?}"),
        };
        // Gives the engine time for the one that was left, if it still had it.
        store.list(Space::Session, None, 1).await.expect("lists");
        let kept = store.get(key).await.expect("gets").expect("is there");
        assert_eq!((kept.version, kept.value), (second, bytes("b")));
    }
}

pub(super) async fn clause_22_a_claim_settles_an_earlier_append_without_an_answer(store: SharedStore) {
    for _ in 0..50 {
        let (session, epoch) = owned(&store).await;
        leave(store.append(session, epoch, vec![event(0, "left")]));
        let epoch = store.claim(session, NodeId::random(), Some(epoch)).await.expect("claims again");
        let settled = super::bodies(&store, session, 0, Position::START).await;
        assert!(settled.is_empty() || settled == ["left"], "{settled:?}");
        store.append(session, epoch, vec![event(0, "next")]).await.expect("appends");
        let all = super::bodies(&store, session, 0, Position::START).await;
        assert_eq!(all, [settled, vec!["next".to_owned()]].concat(), "nothing came in between");
    }
}
