//! What operators do by a session's hashed name: look, end, put a saved one back.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenure_protocol::Reason;
use tenure_session::port::clock::Time;
use tenure_session::port::store::{RecordKey, Store};
use tenure_session::record::{EndCause, StoredSession};
use tenure_session::session::{self, Existing, NotAdopted, SavedSession, noted_requests};
use tenure_session::{Limits, Session, SessionKey};
use tenure_store::copy::save_log;
use tenure_store::memory::Memory;
use tenure_testkit::faulty::Faulty;
use tenure_testkit::late::let_others_run;

use crate::runtime::support::{World, next, resume, say};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// What a store has of a session.
async fn save(store: &dyn Store, key: SessionKey) -> SavedSession {
    let record = store.get(RecordKey::session(key)).await.unwrap().expect("a record");
    let log = save_log(store, key).await.unwrap();
    SavedSession { key, record: record.value, deadline: record.deadline, log }
}

/// How a session ended, as its store has it.
async fn end_of(store: &dyn Store, key: SessionKey) -> Option<EndCause> {
    let record = store.get(RecordKey::session(key)).await.unwrap()?;
    match StoredSession::decode(&record.value).unwrap() {
        StoredSession::Tombstone(tombstone) => Some(tombstone.end),
        StoredSession::Session(_) => None,
    }
}

/// A session with a stream of two messages, whose process is gone.
async fn left_behind() -> (World, Arc<Session>) {
    let mut world = World::new();
    let session = world.session().await;
    let (call, mut reader) = world.streaming_call(&session, 1).await;
    next(&mut reader).await;
    say(&call, "more").await;
    next(&mut reader).await;
    (world.killed(Limits::default()), session)
}

#[tokio::test]
async fn a_request_in_flight_tells_what_it_waits_for() {
    let mut world = World::new();
    let session = world.session().await;
    let key = session.id().key();
    assert_eq!(world.sessions.info(&key).unwrap().calls.len(), 0);
    let (call, reader) = world.streaming_call(&session, 1).await;
    let calls = world.sessions.info(&key).unwrap().calls;
    assert!(calls[0].stream.is_some() && calls[0].is_read && calls[0].asking == 0, "{calls:?}");
    drop(reader);
    let asked = tokio::spawn(async move {
        let asked = call.context.ask(&tenure_protocol::Method::RootsList, None).await;
        (call, asked)
    });
    while world.sessions.info(&key).unwrap().calls[0].asking == 0 {
        tokio::task::yield_now().await;
    }
    let calls = world.sessions.info(&key).unwrap().calls;
    assert!(!calls[0].is_read, "{calls:?}");
    assert!(world.sessions.revoke(&key).await.unwrap());
    assert!(asked.await.unwrap().1.is_err());
    assert!(world.sessions.info(&key).is_none(), "one that has ended is not in memory");
}

#[tokio::test]
async fn a_session_is_revoked_in_a_store_without_a_server() {
    let (world, session) = left_behind().await;
    let (store, key) = (world.store.inner(), session.id().key());
    assert!(session::revoke(store.as_ref(), key, Time(5), HOUR).await.unwrap());
    let record = store.get(RecordKey::session(key)).await.unwrap().unwrap();
    assert_eq!(record.deadline, Some(Time(5).after(HOUR)), "it is forgotten in time");
    assert_eq!(store.survey(key).await.unwrap().streams, [], "its events are gone");
    assert_eq!(store.owner(key).await.unwrap(), None);
    assert_eq!(world.find(&session).await.unwrap_err().reason(), Reason::SessionRevoked);
    assert!(!session::revoke(store.as_ref(), key, Time(6), HOUR).await.unwrap(), "only once");
    let unknown = SessionKey::from_bytes([1; 16]);
    assert!(!session::revoke(store.as_ref(), unknown, Time(6), HOUR).await.unwrap());
}

#[tokio::test]
async fn a_saved_session_goes_on_in_another_store() {
    let (world, session) = left_behind().await;
    let key = session.id().key();
    let saved = save(world.store.inner().as_ref(), key).await;
    let stream = saved.log.streams[0].clone();
    let requests = noted_requests(stream.note.as_ref().unwrap());
    assert_eq!(requests[0].method, tenure_protocol::Method::ToolsCall);

    let mut other = World::new();
    other.sessions.adopt(saved, Existing::Keep).await.unwrap();
    assert_eq!((other.sessions.tallies().sessions, other.sessions.tallies().awake), (1, 0));
    let woken = other.find(&session).await.unwrap();
    other.script.opened().await;
    let first =
        tenure_session::EventId::new(&session.event_names(), stream.stream, stream.events[0].position);
    let mut reader = resume(&woken, &first.to_string()).await.unwrap();
    assert_eq!(next(&mut reader).await.1, "more");
    assert!(other.sessions.revoke(&key).await.unwrap());
    assert_eq!(other.sessions.tallies().sessions, 0, "it counted, and counts no more");
}

#[tokio::test]
async fn a_session_that_is_there_is_kept_unless_it_may_be_replaced() {
    let (world, session) = left_behind().await;
    let (store, key) = (world.store.inner(), session.id().key());
    let saved = save(store.as_ref(), key).await;
    let before = store.get(RecordKey::session(key)).await.unwrap();
    let kept = world.sessions.adopt(saved.clone(), Existing::Keep).await;
    assert!(matches!(kept, Err(NotAdopted::Exists)), "{kept:?}");
    assert_eq!(store.get(RecordKey::session(key)).await.unwrap(), before, "nothing was touched");

    assert!(world.sessions.revoke(&key).await.unwrap());
    world.sessions.adopt(saved.clone(), Existing::Replace).await.unwrap();
    assert_eq!(save_log(store.as_ref(), key).await.unwrap(), saved.log);
    let woken = world.find(&session).await.unwrap();
    assert_eq!(world.sessions.tallies().sessions, 1);

    let awake = world.sessions.adopt(saved, Existing::Replace).await;
    assert!(matches!(awake, Err(NotAdopted::Awake)), "{awake:?}");
    assert!(world.sessions.info(&woken.id().key()).is_some());
}

#[tokio::test]
async fn a_store_that_fails_has_what_it_had() {
    // Reading it, writing the tombstone, exchanging the events: whichever fails, the session is there.
    for nth in 0..3 {
        let (world, session) = left_behind().await;
        let (store, key) = (world.store.inner(), session.id().key());
        let saved = save(store.as_ref(), key).await;
        let emptied = SavedSession { log: Default::default(), ..saved.clone() };
        let faulty = Faulty::new(Arc::clone(&store));
        faulty.fail_nth(nth);
        let failed = session::adopt(&faulty, emptied, Existing::Replace, Time(5)).await;
        assert!(matches!(failed, Err(NotAdopted::Store(_))), "call {nth}: {failed:?}");
        assert_eq!(end_of(store.as_ref(), key).await, None, "call {nth}");
        assert_eq!(save_log(store.as_ref(), key).await.unwrap(), saved.log, "call {nth}");
        world.find(&session).await.unwrap();
    }
}

#[tokio::test]
async fn a_replacement_that_fails_halfway_leaves_the_count_right() {
    // Reading it, writing the tombstone, exchanging the events, writing the record, and nothing at all.
    for nth in 0..5 {
        let (world, session) = left_behind().await;
        let key = session.id().key();
        let saved = save(world.store.inner().as_ref(), key).await;
        let_others_run().await;
        world.store.fail_nth(nth);
        let replaced = world.sessions.adopt(saved, Existing::Replace).await;
        assert_eq!(replaced.is_ok(), nth == 4, "call {nth}: {replaced:?}");
        let there = end_of(world.store.inner().as_ref(), key).await.is_none();
        assert_eq!(world.sessions.tallies().sessions, usize::from(there), "call {nth}");
    }
}

#[tokio::test]
async fn what_is_no_record_is_not_taken() {
    let store = Memory::new();
    let key = SessionKey::from_bytes([1; 16]);
    let record = json!({ "format": 1 }).to_string().into();
    let saved = SavedSession { key, record, deadline: None, log: Default::default() };
    let refused = session::adopt(&store, saved, Existing::Keep, Time(5)).await;
    assert!(matches!(refused, Err(NotAdopted::Unreadable(_))), "{refused:?}");
    assert_eq!(store.get(RecordKey::session(key)).await.unwrap(), None);
}
