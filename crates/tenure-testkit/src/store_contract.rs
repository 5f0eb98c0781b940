//! The store port's clauses as tests; every engine runs all of them.
//!
//! Each function is named after its clause and takes an empty store. [`all`] runs them on fresh stores.

mod beside;

use std::sync::Arc;

use bytes::Bytes;
use tenure_session::id::{NodeId, Position, SessionId, SessionKey, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{
    EntryPlace, Epoch, Expected, Keep, NewEvent, ReadLimit, RecordKey, SavedLog, SavedStream, Space, Store,
    StoreError, Survey, Version,
};

type SharedStore = Arc<dyn Store>;

const READ_ALL: ReadLimit = ReadLimit { events: usize::MAX, bytes: usize::MAX };
const KEEP_ALL: Keep = Keep { events: usize::MAX, bytes: usize::MAX, since: Time(0) };

/// Runs every clause, each on a new store.
pub async fn all(open: impl Fn() -> SharedStore) {
    clause_1_put_absent_creates_or_conflicts(open()).await;
    clause_2_put_version_replaces_only_that_version(open()).await;
    clause_3_versions_only_grow(open()).await;
    clause_4_delete_needs_the_version(open()).await;
    clause_5_expired_lists_what_is_due(open()).await;
    beside::clause_5_expired_names_the_version_that_is_due(open()).await;
    clause_6_list_walks_all_once(open()).await;
    clause_7_claim_fences(open()).await;
    clause_8_append_with_an_old_epoch_changes_nothing(open()).await;
    clause_9_positions_grow_and_are_unique(open()).await;
    clause_10_read_is_exact(open()).await;
    clause_11_trim_forgets_the_oldest(open()).await;
    clause_12_drop_session_forgets_only_it(open()).await;
    beside::clause_12_a_read_beside_a_drop_has_no_hole(open()).await;
    clause_13_a_note_stands_until_its_stream_ends(open()).await;
    clause_14_survey_tells_of_every_stream(open()).await;
    beside::clause_14_a_survey_is_of_one_moment(open()).await;
    clause_15_restore_puts_back_what_was_read(open(), open()).await;
    clause_17_concurrent_puts_have_one_winner(open()).await;
    clause_18_peek_says_what_get_says_or_nothing(open()).await;
    beside::clause_19_a_read_beside_a_trim_tells_of_every_gap(open()).await;
    clause_20_a_stream_that_was_trimmed_away_says_so(open(), open()).await;
    beside::clause_20_a_read_beside_the_last_trim_of_a_stream_tells_of_it(open()).await;
    clause_21_a_restored_session_gives_out_no_position_again(open(), open()).await;
    beside::clause_22_a_put_settles_an_earlier_one_without_an_answer(open()).await;
    beside::clause_22_a_claim_settles_an_earlier_append_without_an_answer(open()).await;
}

fn key() -> SessionKey {
    SessionId::random().key()
}

fn record() -> RecordKey {
    RecordKey::session(key())
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn event(stream: u32, body: &str) -> NewEvent {
    NewEvent { stream: StreamId::new(stream), body: bytes(body), place: EntryPlace::Middle, at: Time(1_000) }
}

async fn owned(store: &SharedStore) -> (SessionKey, Epoch) {
    let key = key();
    let epoch = store.claim(key, NodeId::random(), None).await.expect("a first claim");
    (key, epoch)
}

async fn bodies(store: &SharedStore, session: SessionKey, stream: u32, after: Position) -> Vec<String> {
    let stretch = store.read(session, StreamId::new(stream), after, READ_ALL).await.expect("read");
    stretch.events.iter().map(|event| String::from_utf8_lossy(&event.body).into_owned()).collect()
}

async fn clause_1_put_absent_creates_or_conflicts(store: SharedStore) {
    let key = record();
    let version = store.put(key, bytes("a"), Expected::Absent, None).await.expect("creates");
    let again = store.put(key, bytes("b"), Expected::Absent, None).await;
    assert_eq!(again, Err(StoreError::Conflict { current: Some(version) }));
    let kept = store.get(key).await.expect("get").expect("there");
    assert_eq!((kept.value, kept.version), (bytes("a"), version));
}

async fn clause_2_put_version_replaces_only_that_version(store: SharedStore) {
    let key = record();
    let none = store.put(key, bytes("a"), Expected::Version(Version(7)), None).await;
    assert_eq!(none, Err(StoreError::Conflict { current: None }));
    let first = store.put(key, bytes("a"), Expected::Absent, None).await.expect("creates");
    let second = store.put(key, bytes("b"), Expected::Version(first), None).await.expect("replaces");
    let late = store.put(key, bytes("c"), Expected::Version(first), None).await;
    assert_eq!(late, Err(StoreError::Conflict { current: Some(second) }));
    assert_eq!(store.get(key).await.expect("get").expect("there").value, bytes("b"));
}

async fn clause_3_versions_only_grow(store: SharedStore) {
    let key = record();
    let first = store.put(key, bytes("a"), Expected::Absent, None).await.expect("creates");
    let second = store.put(key, bytes("b"), Expected::Version(first), None).await.expect("replaces");
    store.delete(key, second).await.expect("deletes");
    assert_eq!(store.get(key).await.expect("get"), None);
    let third = store.put(key, bytes("c"), Expected::Absent, None).await.expect("creates again");
    assert!(first < second && second < third, "{first:?} {second:?} {third:?}");
}

async fn clause_18_peek_says_what_get_says_or_nothing(store: SharedStore) {
    async fn compare(store: &SharedStore, key: RecordKey, expected: Option<&str>) {
        let peeked = store.peek(key).map(|found| found.expect("peek"));
        let got = store.get(key).await.expect("get");
        assert_eq!(got.as_ref().map(|record| record.value.clone()), expected.map(bytes));
        for peeked in [peeked, store.peek(key).map(|found| found.expect("peek"))].into_iter().flatten() {
            assert_eq!(peeked, got);
        }
    }
    let key = record();
    compare(&store, key, None).await;
    let first = store.put(key, bytes("a"), Expected::Absent, Some(Time(7))).await.expect("creates");
    compare(&store, key, Some("a")).await;
    let second = store.put(key, bytes("b"), Expected::Version(first), None).await.expect("replaces");
    compare(&store, key, Some("b")).await;
    store.delete(key, second).await.expect("deletes");
    compare(&store, key, None).await;
}

async fn clause_4_delete_needs_the_version(store: SharedStore) {
    let key = record();
    let version = store.put(key, bytes("a"), Expected::Absent, None).await.expect("creates");
    let wrong = store.delete(key, Version(version.0 + 1)).await;
    assert_eq!(wrong, Err(StoreError::Conflict { current: Some(version) }));
    store.delete(key, version).await.expect("deletes");
    assert_eq!(store.delete(key, version).await, Err(StoreError::Conflict { current: None }));
}

async fn clause_5_expired_lists_what_is_due(store: SharedStore) {
    let (early, late, never, moved) = (record(), record(), record(), record());
    let put = |key, at: Option<u64>| store.put(key, bytes("x"), Expected::Absent, at.map(Time));
    let late_version = put(late, Some(20)).await.expect("late");
    let early_version = put(early, Some(10)).await.expect("early");
    put(never, None).await.expect("never");
    let version = put(moved, Some(5)).await.expect("moved");
    store.put(moved, bytes("y"), Expected::Version(version), Some(Time(99))).await.expect("moved later");
    assert_eq!(store.expired(Space::Session, Time(9), 10).await, Ok(vec![]));
    assert_eq!(store.expired(Space::Session, Time(10), 10).await, Ok(vec![(early, early_version)]));
    let both = store.expired(Space::Session, Time(20), 10).await.expect("both");
    assert_eq!(both, vec![(early, early_version), (late, late_version)]);
    assert_eq!(store.expired(Space::Session, Time(20), 1).await.expect("one").len(), 1);
    assert!(store.get(early).await.expect("get").is_some(), "expired only lists");
    store.delete(early, early_version).await.expect("deletes");
    assert_eq!(store.expired(Space::Session, Time(20), 10).await, Ok(vec![(late, late_version)]));
}

async fn clause_6_list_walks_all_once(store: SharedStore) {
    let mut expected: Vec<SessionKey> = Vec::new();
    for _ in 0..25 {
        let key = key();
        store.put(RecordKey::session(key), bytes("x"), Expected::Absent, None).await.expect("puts");
        expected.push(key);
    }
    expected.sort_unstable();
    let (mut walked, mut after) = (Vec::new(), None);
    loop {
        let page = store.list(Space::Session, after, 7).await.expect("lists");
        assert!(page.len() <= 7);
        let Some((last, _)) = page.last() else { break };
        after = Some(*last);
        walked.extend(page.into_iter().map(|(key, _)| key));
    }
    assert_eq!(walked, expected);
}

async fn clause_7_claim_fences(store: SharedStore) {
    let session = key();
    assert_eq!(store.owner(session).await, Ok(None));
    let (one, two) = (NodeId::random(), NodeId::random());
    let first = store.claim(session, one, None).await.expect("first");
    assert_eq!(store.claim(session, two, None).await, Err(StoreError::Fenced));
    let second = store.claim(session, two, Some(first)).await.expect("second");
    assert!(second > first);
    assert_eq!(store.owner(session).await, Ok(Some((two, second))));
    assert_eq!(store.claim(session, one, Some(first)).await, Err(StoreError::Fenced));
    assert_eq!(store.release(session, first).await, Err(StoreError::Fenced));
    store.release(session, second).await.expect("releases");
    assert_eq!(store.owner(session).await, Ok(None));
    assert_eq!(store.release(session, second).await, Err(StoreError::Fenced), "it was given back before");
    assert_eq!(store.release(key(), second).await, Err(StoreError::Fenced), "a session without an owner");
    assert_eq!(store.append(session, second, vec![event(0, "x")]).await, Err(StoreError::Fenced));
    assert_eq!(store.claim(session, one, Some(second)).await, Err(StoreError::Fenced), "it has no owner");
    let third = store.claim(session, one, None).await.expect("as if it was never claimed");
    assert!(third > second, "an epoch is never used again");
    assert_eq!(store.append(session, second, vec![event(0, "late")]).await, Err(StoreError::Fenced));
    assert_eq!(store.owner(session).await, Ok(Some((one, third))));
}

async fn clause_8_append_with_an_old_epoch_changes_nothing(store: SharedStore) {
    let (session, first) = owned(&store).await;
    store.append(session, first, vec![event(0, "a")]).await.expect("appends");
    let second = store.claim(session, NodeId::random(), Some(first)).await.expect("taken over");
    assert_eq!(store.append(session, first, vec![event(0, "late")]).await, Err(StoreError::Fenced));
    store.append(session, second, vec![event(0, "b")]).await.expect("appends");
    assert_eq!(bodies(&store, session, 0, Position::START).await, ["a", "b"]);
    let unclaimed = store.append(key(), first, vec![event(0, "x")]).await;
    assert_eq!(unclaimed, Err(StoreError::Fenced));
}

async fn clause_9_positions_grow_and_are_unique(store: SharedStore) {
    let (session, epoch) = owned(&store).await;
    let mut all = Vec::new();
    for round in 0..5 {
        let batch = vec![event(0, "a"), event(round, "b"), event(0, "c")];
        all.extend(store.append(session, epoch, batch).await.expect("appends"));
    }
    assert_eq!(all.len(), 15);
    assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "{all:?}");
    assert_eq!(store.tail(session).await, Ok(all[14]));
    assert!(all[0] > Position::START);
    store.trim(session, Keep { events: 0, ..KEEP_ALL }).await.expect("trims");
    assert_eq!(store.tail(session).await, Ok(all[14]), "also when nothing is left");
}

async fn clause_10_read_is_exact(store: SharedStore) {
    let (session, epoch) = owned(&store).await;
    let (other, other_epoch) = owned(&store).await;
    let batch = vec![event(0, "a0"), event(1, "b0"), event(0, "a1"), event(1, "b1"), event(0, "a2")];
    let positions = store.append(session, epoch, batch).await.expect("appends");
    store.append(other, other_epoch, vec![event(0, "foreign")]).await.expect("appends");
    assert_eq!(bodies(&store, session, 0, Position::START).await, ["a0", "a1", "a2"]);
    assert_eq!(bodies(&store, session, 1, Position::START).await, ["b0", "b1"]);
    assert_eq!(bodies(&store, session, 0, positions[0]).await, ["a1", "a2"]);
    // A position of another stream is still a place in the log.
    assert_eq!(bodies(&store, session, 0, positions[1]).await, ["a1", "a2"]);
    assert_eq!(bodies(&store, session, 0, positions[4]).await, [""; 0]);
    assert_eq!(bodies(&store, session, 9, Position::START).await, [""; 0]);
    let page = store
        .read(session, StreamId::new(0), Position::START, ReadLimit { events: 2, ..READ_ALL })
        .await
        .expect("reads");
    assert_eq!(page.events.len(), 2);
    assert_eq!((page.events[1].position, page.trimmed), (positions[2], Position::START));
    for (bytes, events) in [(0, 1), (3, 1), (4, 2), (5, 2), (6, 3)] {
        let page = store.read(session, StreamId::new(0), Position::START, ReadLimit { bytes, ..READ_ALL });
        assert_eq!(page.await.expect("reads").events.len(), events, "at most {bytes} bytes");
    }
}

async fn clause_11_trim_forgets_the_oldest(store: SharedStore) {
    let (session, epoch) = owned(&store).await;
    let mut batch: Vec<NewEvent> = (0..6u32).map(|n| event(n % 2, &n.to_string())).collect();
    for (n, event) in batch.iter_mut().enumerate() {
        event.at = Time(n as u64 * 10);
    }
    let positions = store.append(session, epoch, batch).await.expect("appends");
    let kept = store.trim(session, Keep { events: 4, ..KEEP_ALL }).await.expect("trims");
    // `since` 0 forgets the event at 0 as well; two events are over the count.
    assert_eq!((kept.events, kept.bytes, kept.oldest, kept.trimmed), (4, 4, Some(Time(20)), positions[1]));
    let first = store.read(session, StreamId::new(0), Position::START, READ_ALL).await.expect("reads");
    assert_eq!((first.events.len(), first.trimmed), (2, positions[0]));
    let kept = store.trim(session, Keep { since: Time(20), ..KEEP_ALL }).await.expect("trims");
    assert_eq!((kept.events, kept.oldest), (3, Some(Time(30))));
    let kept = store.trim(session, Keep { bytes: 1, ..KEEP_ALL }).await.expect("trims");
    assert_eq!((kept.events, kept.bytes), (1, 1));
    assert_eq!(bodies(&store, session, 1, Position::START).await, ["5"]);
    let more = store.append(session, epoch, vec![event(0, "6")]).await.expect("appends");
    assert!(more[0] > positions[5], "positions go on after a trim");
    let gap = store.read(session, StreamId::new(0), positions[0], READ_ALL).await.expect("reads");
    assert!(gap.trimmed > positions[0], "a reader learns of what is gone");
}

async fn clause_12_drop_session_forgets_only_it(store: SharedStore) {
    let (session, epoch) = owned(&store).await;
    let (other, other_epoch) = owned(&store).await;
    for (session, epoch) in [(session, epoch), (other, other_epoch)] {
        store.append(session, epoch, vec![event(0, "a")]).await.expect("appends");
        store.put(RecordKey::session(session), bytes("r"), Expected::Absent, None).await.expect("puts");
    }
    store.drop_session(session).await.expect("drops");
    assert_eq!(bodies(&store, session, 0, Position::START).await, [""; 0]);
    assert_eq!(store.append(session, epoch, vec![event(0, "late")]).await, Err(StoreError::Fenced));
    assert!(store.get(RecordKey::session(session)).await.expect("get").is_some(), "the record stays");
    assert_eq!(bodies(&store, other, 0, Position::START).await, ["a"]);
    assert_eq!(store.claim(session, NodeId::random(), Some(epoch)).await, Err(StoreError::Fenced));
    let again = store.claim(session, NodeId::random(), None).await.expect("a first claim");
    assert!(again > epoch, "an epoch is never used again");
    assert_eq!(store.append(session, epoch, vec![event(0, "late")]).await, Err(StoreError::Fenced));
}

async fn clause_13_a_note_stands_until_its_stream_ends(store: SharedStore) {
    let (session, epoch) = owned(&store).await;
    let note = |stream, body: &str| NewEvent { place: EntryPlace::Note, ..event(stream, body) };
    let end = |stream, body: &str| NewEvent { place: EntryPlace::End, ..event(stream, body) };
    let batch = vec![note(1, "first"), event(1, "a"), note(2, "old"), note(2, "new"), event(1, "b")];
    let positions = store.append(session, epoch, batch).await.expect("appends");
    assert!(positions.windows(2).all(|pair| pair[0] < pair[1]), "{positions:?}");
    assert_eq!(bodies(&store, session, 1, Position::START).await, ["a", "b"]);
    assert_eq!(bodies(&store, session, 2, Position::START).await, [""; 0]);
    let notes = |survey: Survey| -> Vec<_> {
        let text = |note: Bytes| String::from_utf8_lossy(&note).into_owned();
        survey.streams.into_iter().map(|known| (known.stream.number(), known.note.map(text))).collect()
    };
    let open = |text: &str| Some(text.to_owned());
    let survey = store.survey(session).await.expect("surveys");
    assert_eq!((survey.kept.events, survey.kept.bytes), (2, 2), "a note is no event");
    assert_eq!(notes(survey), [(1, open("first")), (2, open("new"))]);
    let kept = store.trim(session, Keep { events: 0, ..KEEP_ALL }).await.expect("trims");
    assert_eq!(kept.events, 0);
    let survey = store.survey(session).await.expect("surveys");
    assert_eq!(notes(survey), [(1, open("first")), (2, open("new"))], "a trim leaves notes");
    store.append(session, epoch, vec![end(1, "c"), end(2, "")]).await.expect("appends");
    let survey = store.survey(session).await.expect("surveys");
    assert_eq!(notes(survey), [(1, None), (2, None)]);
    assert_eq!(bodies(&store, session, 2, Position::START).await, [""], "an end without a message");
    store.append(session, epoch, vec![note(3, "dropped too")]).await.expect("appends");
    store.drop_session(session).await.expect("drops");
    assert_eq!(store.survey(session).await, Ok(Survey::default()));
}

async fn clause_14_survey_tells_of_every_stream(store: SharedStore) {
    let (session, epoch) = owned(&store).await;
    assert_eq!(store.survey(session).await, Ok(Survey::default()));
    let end = |stream, body: &str| NewEvent { place: EntryPlace::End, ..event(stream, body) };
    let batch = vec![event(0, "a"), event(4, "b"), end(4, "c"), event(2, "dd"), event(0, "e")];
    let positions = store.append(session, epoch, batch).await.expect("appends");
    let survey = store.survey(session).await.expect("surveys");
    let known = |survey: &Survey| -> Vec<_> {
        survey.streams.iter().map(|known| (known.stream.number(), known.last, known.ended)).collect()
    };
    assert_eq!(known(&survey), [(0, positions[4], false), (2, positions[3], false), (4, positions[2], true)]);
    assert_eq!(survey.next_stream, 5);
    let kept = survey.kept;
    assert_eq!((kept.events, kept.bytes, kept.oldest), (5, 6, Some(Time(1_000))));
    // A trim forgets the complete stream, but not the open ones; the number of the complete stream stays used.
    store.trim(session, Keep { events: 0, ..KEEP_ALL }).await.expect("trims");
    let survey = store.survey(session).await.expect("surveys");
    assert_eq!(known(&survey), [(0, positions[4], false), (2, positions[3], false)]);
    assert_eq!((survey.next_stream, survey.kept.events, survey.kept.oldest), (5, 0, None));
    assert_eq!(survey.kept.trimmed, positions[4]);
}

async fn clause_15_restore_puts_back_what_was_read(store: SharedStore, other: SharedStore) {
    let (session, epoch) = owned(&store).await;
    let note = |stream, body: &str| NewEvent { place: EntryPlace::Note, ..event(stream, body) };
    let batch = vec![event(0, "a"), note(1, "n"), event(1, "b"), event(0, "c"), event(7, "d")];
    store.append(session, epoch, batch).await.expect("appends");
    store.trim(session, Keep { events: 3, ..KEEP_ALL }).await.expect("trims");
    let saved = saved(&store, session).await;
    let epoch = other.claim(session, NodeId::random(), None).await.expect("claims");
    other.append(session, epoch, vec![note(3, "old"), event(9, "old")]).await.expect("appends");
    other.restore(session, saved.clone()).await.expect("restores");
    assert_eq!(self::saved(&other, session).await, saved);
    assert_eq!(other.survey(session).await, store.survey(session).await);
    let last = saved.streams.iter().flat_map(|stream| &stream.events).map(|event| event.position).max();
    let more = other.append(session, epoch, vec![event(0, "e")]).await.expect("appends");
    assert!(Some(more[0]) > last, "what comes later comes after");
    assert_eq!(bodies(&other, session, 0, Position::START).await, ["c", "e"]);
    let kept = other.trim(session, Keep { events: 2, ..KEEP_ALL }).await.expect("trims");
    assert_eq!((kept.events, kept.bytes), (2, 2));
    assert_eq!(bodies(&other, session, 7, Position::START).await, ["d"]);
}

async fn clause_21_a_restored_session_gives_out_no_position_again(store: SharedStore, other: SharedStore) {
    let (session, epoch) = owned(&store).await;
    store.append(session, epoch, vec![event(0, "a")]).await.expect("appends");
    let saved = saved(&store, session).await;
    let later = (0..500).map(|_| event(0, "later")).collect();
    let told = store.append(session, epoch, later).await.expect("appends");
    other.restore(session, saved).await.expect("restores");
    let epoch = other.claim(session, NodeId::random(), None).await.expect("claims");
    let fresh = other.append(session, epoch, vec![event(0, "b")]).await.expect("appends");
    assert!(Some(&fresh[0]) > told.last(), "a client that was told {told:?} would not be told {fresh:?}");
}

/// Everything that the store keeps of a session's streams.
async fn saved(store: &SharedStore, session: SessionKey) -> SavedLog {
    let survey = store.survey(session).await.expect("surveys");
    let mut streams = Vec::new();
    for known in survey.streams {
        let stretch = store.read(session, known.stream, Position::START, READ_ALL).await.expect("reads");
        let (stream, note) = (known.stream, known.note);
        streams.push(SavedStream { stream, note, trimmed: stretch.trimmed, events: stretch.events });
    }
    SavedLog { streams, next_stream: survey.next_stream, trimmed: survey.kept.trimmed }
}

async fn clause_20_a_stream_that_was_trimmed_away_says_so(store: SharedStore, other: SharedStore) {
    let (session, epoch) = owned(&store).await;
    let end = |stream, body: &str| NewEvent { place: EntryPlace::End, ..event(stream, body) };
    let note = |stream, body: &str| NewEvent { place: EntryPlace::Note, ..event(stream, body) };
    let trimmed = async |store: &SharedStore, stream: u32| {
        let stretch = store.read(session, StreamId::new(stream), Position::START, READ_ALL).await;
        stretch.expect("reads").trimmed
    };
    let batch =
        vec![event(0, "a"), event(1, "b"), end(1, "c"), note(2, "open"), event(3, "d"), event(0, "e")];
    let first = store.append(session, epoch, batch).await.expect("appends");
    store.trim(session, Keep { events: 2, ..KEEP_ALL }).await.expect("trims");
    assert!(trimmed(&store, 1).await >= first[2], "all of it is gone");
    assert_eq!(trimmed(&store, 0).await, first[0], "only its first event is gone");
    assert_eq!(trimmed(&store, 2).await, Position::START, "it is open and had no event yet");
    assert_eq!(trimmed(&store, 3).await, Position::START, "nothing of it is gone");
    let rest = store.read(session, StreamId::new(3), first[4], READ_ALL).await.expect("reads");
    assert_eq!((rest.events.len(), rest.trimmed), (0, Position::START), "nothing of it is gone nor left");
    // All events of stream 3 are trimmed first; then it ends, and its end is trimmed too.
    store.trim(session, Keep { events: 0, ..KEEP_ALL }).await.expect("trims");
    let last =
        store.append(session, epoch, vec![end(3, "f"), end(2, ""), event(0, "g")]).await.expect("appends");
    let kept = store.trim(session, Keep { events: 1, ..KEEP_ALL }).await.expect("trims");
    let told = async |store: &SharedStore| {
        for (stream, end) in [(1, first[2]), (3, last[0]), (2, last[1])] {
            assert!(trimmed(store, stream).await >= end, "stream {stream} is gone");
        }
        assert_eq!(trimmed(store, 0).await, first[5], "it is open");
        assert_eq!(store.survey(session).await.expect("surveys").kept.trimmed, kept.trimmed);
    };
    told(&store).await;
    other.restore(session, saved(&store, session).await).await.expect("restores");
    told(&other).await;
    store.drop_session(session).await.expect("drops");
    assert_eq!(trimmed(&store, 1).await, Position::START, "as if it had never been");
}

async fn clause_17_concurrent_puts_have_one_winner(store: SharedStore) {
    let key = record();
    let first = store.put(key, bytes("0"), Expected::Absent, None).await.expect("creates");
    let mut writers = tokio::task::JoinSet::new();
    for n in 0..16 {
        let store = Arc::clone(&store);
        writers.spawn(
            async move { store.put(key, bytes(&n.to_string()), Expected::Version(first), None).await },
        );
    }
    let outcomes = writers.join_all().await;
    let won = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    assert_eq!(won, 1, "{outcomes:?}");
}
