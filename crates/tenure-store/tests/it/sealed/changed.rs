//! A value that was changed or moved in the engine under a sealed store does not open; an untouched one does.

use std::sync::Arc;

use bytes::Bytes;
use tenure_session::id::{Position, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{EntryPlace, Expected, RecordKey, SavedLog, SavedStream, Space, Store};
use tenure_store::copy::save_log;
use tenure_store::memory::Memory;
use tenure_store::sealed::Sealed;

use crate::sealed::{ALL, NODE, Shared, event, fresh_keys, key, unavailable};

/// A sealed store, the engine beneath it, and the log of its one session.
async fn with_a_log() -> (Sealed, Shared, SavedLog) {
    let inner: Shared = Arc::new(Memory::new());
    let store = Sealed::open(Arc::clone(&inner), fresh_keys()).await.unwrap();
    let epoch = store.claim(key(1), NODE, None).await.unwrap();
    let batch = vec![
        event(0, b"first", EntryPlace::Middle),
        event(1, b"first", EntryPlace::Middle),
        event(1, b"note", EntryPlace::Note),
        event(2, b"", EntryPlace::End),
    ];
    store.append(key(1), epoch, batch).await.unwrap();
    let log = save_log(inner.as_ref(), key(1)).await.unwrap();
    (store, inner, log)
}

#[tokio::test]
async fn an_end_without_a_message_comes_back_without_one() {
    let (store, _, log) = with_a_log().await;
    let end = store.read(key(1), StreamId::new(2), Position::START, ALL).await.unwrap().events;
    assert_eq!((&end[0].body[..], end[0].place), (&b""[..], EntryPlace::End));
    assert_eq!(log.streams[2].events[0].body.len(), 45, "it is sealed like everything else");
}

#[tokio::test]
async fn what_was_changed_or_moved_does_not_open() {
    type Change = fn(&mut Vec<SavedStream>);
    let changes: [(&str, Change); 7] = [
        ("a body was changed", |streams| {
            let mut body = streams[0].events[0].body.to_vec();
            body[40] ^= 1;
            streams[0].events[0].body = body.into();
        }),
        ("a message was cut off", |streams| streams[0].events[0].body = Bytes::new()),
        ("the body of another stream", |streams| {
            streams[0].events[0].body = streams[1].events[0].body.clone();
        }),
        ("a note as an event", |streams| {
            streams[1].events[0].body = streams[1].note.clone().unwrap();
        }),
        ("a message made the last", |streams| streams[0].events[0].place = EntryPlace::End),
        ("an end made a message", |streams| streams[2].events[0].place = EntryPlace::Middle),
        ("another time", |streams| streams[0].events[0].at = Time(2_000)),
    ];
    for (what, change) in changes {
        let (store, inner, mut log) = with_a_log().await;
        change(&mut log.streams);
        inner.restore(key(1), log).await.unwrap();
        let text = unavailable(save_log(&store, key(1)).await);
        assert!(
            text.contains("was changed after it was sealed") || text.contains("is not sealed"),
            "{what}: {text}"
        );
        assert!(text.contains(&key(1).label()), "{what}: {text}");
    }
    // The unchanged log in another session.
    let (store, inner, log) = with_a_log().await;
    assert_eq!(save_log(&store, key(1)).await.unwrap().streams.len(), 3);
    inner.restore(key(2), log.clone()).await.unwrap();
    let text = unavailable(store.read(key(2), StreamId::new(0), Position::START, ALL).await);
    assert!(text.contains("was changed"), "{text}");
    // An event as a note, and the note of another stream.
    for (from, to) in [(0, 1), (1, 0)] {
        let mut moved = log.clone();
        moved.streams[to].note = match from {
            0 => Some(log.streams[1].events[0].body.clone()),
            _ => log.streams[from].note.clone(),
        };
        inner.restore(key(1), moved).await.unwrap();
        let text = unavailable(store.survey(key(1)).await);
        assert!(text.starts_with("the note of") && text.contains("was changed"), "{text}");
    }
}

#[tokio::test]
async fn a_record_opens_only_where_it_was_put() {
    let inner: Shared = Arc::new(Memory::new());
    let store = Sealed::open(Arc::clone(&inner), fresh_keys()).await.unwrap();
    let here = RecordKey::session(key(1));
    let version =
        store.put(here, Bytes::from_static(b"mine"), Expected::Absent, Some(Time(5))).await.unwrap();
    let sealed = inner.get(here).await.unwrap().unwrap().value;
    let elsewhere = [RecordKey::session(key(2)), RecordKey { space: Space::Rmcp, key: key(1) }];
    for there in elsewhere {
        inner.put(there, sealed.clone(), Expected::Absent, Some(Time(5))).await.unwrap();
        let text = unavailable(store.get(there).await);
        assert!(text.contains("was changed"), "{text}");
        let listed = store.list(there.space, None, 9).await;
        assert!(unavailable(listed).contains("was changed"));
    }
    assert_eq!(store.get(here).await.unwrap().unwrap().value, &b"mine"[..]);
    // Nor with another deadline, which would keep it longer.
    inner.put(here, sealed, Expected::Version(version), Some(Time(500))).await.unwrap();
    assert!(unavailable(store.get(here).await).contains("was changed"));
}
