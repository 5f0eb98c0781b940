//! Fills a store with every kind of content, and reads all of it back.

use bytes::Bytes;
use tenure_session::id::{Position, SessionKey};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{
    EntryPlace, Expected, Keep, KeptEvents, RecordKey, SavedStream, Space, Store, Surveyed,
};

use crate::copy::{ALL, KEEP_ALL, NODE, event, key};

/// Sessions with events; the rest of the records are tombstones.
pub(crate) const SESSIONS: u8 = 5;
/// More than one page of the copy.
pub(crate) const RECORDS: u8 = 150;
/// Records that are not sessions: states, tasks, and records of rmcp.
pub(crate) const OTHERS: u8 = 3 + 2 + 2;
/// More than one read of the copy.
pub(crate) const LONG: usize = 1_300;

/// Puts every kind of content into a store.
pub(crate) async fn fill(store: &dyn Store) {
    for number in 0..RECORDS {
        let value = Bytes::from(format!("record {number}"));
        let deadline = (number % 3 != 0).then_some(Time(u64::from(number) * 10));
        store.put(RecordKey::session(key(number)), value, Expected::Absent, deadline).await.unwrap();
    }
    for number in 0..SESSIONS {
        let epoch = store.claim(key(number), NODE, None).await.unwrap();
        let batch = vec![
            event(0, "trimmed", EntryPlace::Middle, 5),
            event(1, "call", EntryPlace::Note, 10),
            event(1, &format!("progress of {number}"), EntryPlace::Middle, 20),
            event(2, "answered", EntryPlace::Note, 30),
            event(2, "answer", EntryPlace::End, 40),
            event(3, "withdrawn", EntryPlace::Note, 50),
            event(3, "", EntryPlace::End, 60),
            event(0, "news", EntryPlace::Middle, 70),
            event(4, "only a note", EntryPlace::Note, 80),
        ];
        store.append(key(number), epoch, batch).await.unwrap();
        store.trim(key(number), Keep { since: Time(10), ..KEEP_ALL }).await.unwrap();
    }
    // A long stream, and a session that has only the number of its next stream left.
    let epoch = store.claim(key(10), NODE, None).await.unwrap();
    let long = (0..LONG).map(|n| event(0, &n.to_string(), EntryPlace::Middle, 100)).collect();
    store.append(key(10), epoch, long).await.unwrap();
    let epoch = store.claim(key(11), NODE, None).await.unwrap();
    store.append(key(11), epoch, vec![event(8, "gone", EntryPlace::End, 100)]).await.unwrap();
    store.trim(key(11), Keep { events: 0, ..KEEP_ALL }).await.unwrap();
    // States: they have no events, even if a session with the same key has some.
    for number in [1, 30, 31] {
        let (space, value) = (Space::State, Bytes::from(vec![number; usize::from(number) * 100]));
        let deadline = (number != 31).then_some(Time(700));
        store.put(RecordKey { space, key: key(number) }, value, Expected::Absent, deadline).await.unwrap();
    }
    // Tasks: no events either.
    for number in [1, 40] {
        let (space, value) = (Space::Task, Bytes::from(vec![number; usize::from(number) * 10]));
        let task = RecordKey { space, key: key(number) };
        store.put(task, value, Expected::Absent, Some(Time(800))).await.unwrap();
    }
    // Records of rmcp: a session, and a stream whose record names its log.
    let put = |key, value: Vec<u8>| {
        store.put(RecordKey { space: Space::Rmcp, key }, value.into(), Expected::Absent, Some(Time(900)))
    };
    put(key(20), b"\x01{}".to_vec()).await.unwrap();
    put(key(21), [&[2], key(200).as_bytes().as_slice()].concat()).await.unwrap();
    let epoch = store.claim(key(200), NODE, None).await.unwrap();
    store.append(key(200), epoch, vec![event(0, "of rmcp", EntryPlace::Middle, 100)]).await.unwrap();
}

/// A record without its version, because every store has its own versions.
pub(crate) type Content = (SessionKey, Bytes, Option<Time>);

/// Everything that is kept of a session's streams, read in one go.
#[derive(PartialEq, Debug)]
pub(crate) struct Log {
    pub(crate) streams: Vec<(Surveyed, SavedStream)>,
    pub(crate) next_stream: u32,
    pub(crate) kept: KeptEvents,
}

#[derive(PartialEq, Debug)]
pub(crate) struct Contents {
    pub(crate) records: Vec<(Space, Vec<Content>)>,
    pub(crate) logs: Vec<Log>,
    pub(crate) due: Vec<RecordKey>,
}

pub(crate) async fn log(store: &dyn Store, session: SessionKey) -> Log {
    let survey = store.survey(session).await.unwrap();
    let mut streams = Vec::new();
    for known in survey.streams {
        let stretch = store.read(session, known.stream, Position::START, ALL).await.unwrap();
        let (stream, note) = (known.stream, known.note.clone());
        streams.push((known, SavedStream { stream, note, trimmed: stretch.trimmed, events: stretch.events }));
    }
    Log { streams, next_stream: survey.next_stream, kept: survey.kept }
}

pub(crate) async fn records(store: &dyn Store, space: Space) -> Vec<Content> {
    let records = store.list(space, None, usize::MAX).await.unwrap();
    records.into_iter().map(|(key, record)| (key, record.value, record.deadline)).collect()
}

pub(crate) async fn contents(store: &dyn Store) -> Contents {
    let mut contents = Contents { records: Vec::new(), logs: Vec::new(), due: Vec::new() };
    for space in [Space::Session, Space::State, Space::Rmcp, Space::Task] {
        contents.records.push((space, records(store, space).await));
    }
    for number in 0..=u8::MAX {
        contents.logs.push(log(store, key(number)).await);
    }
    for space in [Space::Session, Space::State, Space::Rmcp, Space::Task] {
        let due = store.expired(space, Time(1_000), usize::MAX).await.unwrap();
        contents.due.extend(due.into_iter().map(|(key, _)| key));
    }
    contents
}
