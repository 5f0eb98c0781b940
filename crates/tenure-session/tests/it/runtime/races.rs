//! Things that happen at the wrong moment: ends during wakes, failures of one write, loss of what was written.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use tenure_protocol::{Method, Notification, RawJson, Reason, Reply, RpcError};
use tenure_session::backend::{Backend, Call, Link, Open, Opened, Opening};
use tenure_session::port::BoxFuture;
use tenure_session::port::store::{RecordKey, SavedLog, Store};
use tenure_session::record::{EndCause, StoredSession};
use tenure_session::session::Phase;
use tenure_session::session::{Existing, SavedSession};
use tenure_session::{Limits, Principal, SessionId};
use tenure_store::disk::{Disk, Sync};
use tenure_store::memory::Memory;
use tenure_testkit::faulty::Faulty;
use tenure_testkit::runtime::{self, event, json_of, reader_of, send};

use crate::runtime::support::{World, all, next, request, resume, say};

const MINUTE: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(5);

fn log(text: &str) -> RawJson {
    RawJson::of(&json!({ "level": "info", "data": text }))
}

/// A server that, when woken, says something and takes its time.
struct Slow(Duration);
struct SlowLink;

impl Backend for Slow {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let result = RawJson::of(&json!({ "protocolVersion": open.revision.as_str(), "capabilities": {} }));
        let pause = self.0;
        Box::pin(async move {
            if open.opening == Opening::Wake && !pause.is_zero() {
                let told = open.outlet.notify(&Method::LogMessage, Some(&log("I am back"))).await;
                told.map_err(|error| error.to_rpc())?;
                tokio::time::sleep(pause).await;
            }
            Ok(Opened { link: Box::new(SlowLink), result })
        })
    }
}

impl Link for SlowLink {
    fn call(&self, _: Call) -> BoxFuture<Reply> {
        Box::pin(async { Ok(RawJson::EMPTY_OBJECT) })
    }

    fn notify(&self, _: Notification) {}

    fn close(&self) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }
}

fn is_tombstone(value: &[u8]) -> bool {
    matches!(StoredSession::decode(value), Ok(StoredSession::Tombstone(_)))
}

#[tokio::test]
async fn a_session_that_is_ended_between_the_write_of_its_wake_and_its_rise_stays_dead() {
    let world = World::new();
    let old = world.session().await;
    let key = RecordKey::session(old.id().key());
    let world = world.killed(Limits::default());
    let before = world.store.get(key).await.unwrap().unwrap().version;
    world.store.hold_answers_of_puts();
    let (sessions, id) = (world.sessions.clone(), *old.id());
    let find = tokio::spawn(async move { sessions.find(&id, &Principal::ANONYMOUS).await });
    while world.store.get(key).await.unwrap().unwrap().version == before {
        tokio::task::yield_now().await;
    }
    let sessions = world.sessions.clone();
    let delete = tokio::spawn(async move { sessions.delete(&id, &Principal::ANONYMOUS).await });
    while !is_tombstone(&world.store.get(key).await.unwrap().unwrap().value) {
        tokio::task::yield_now().await;
    }
    world.store.answer_puts();
    delete.await.unwrap().unwrap();
    if let Ok(found) = find.await.unwrap() {
        assert_eq!(request(&found, 1, "ping").await.unwrap_err().reason(), Reason::SessionDeleted);
    }
    while world.sessions.tallies().awake > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.find(&old).await.unwrap_err().reason(), Reason::SessionDeleted);
    let world = world.killed(Limits::default());
    assert_eq!(world.find(&old).await.unwrap_err().reason(), Reason::SessionDeleted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whenever_a_waking_session_is_deleted_it_stays_dead() {
    let folder = TempDir::new().unwrap();
    let store: Arc<dyn Store> = Arc::new(Disk::open(&folder.path().join("store"), Sync::Os).unwrap());
    let first = runtime::start(store.clone(), Arc::new(Slow(Duration::ZERO)), Limits::default());
    let mut ids: Vec<SessionId> = Vec::new();
    for _ in 0..300 {
        ids.push(*runtime::session(&first, "2025-11-25").await.id());
    }
    let second = runtime::start(store, Arc::new(Slow(Duration::ZERO)), Limits::default());
    for (n, id) in ids.into_iter().enumerate() {
        let finding = second.clone();
        let find = tokio::spawn(async move { finding.find(&id, &Principal::ANONYMOUS).await.err() });
        // Another moment of the wake each time.
        for _ in 0..n % 150 {
            tokio::task::yield_now().await;
        }
        second.delete(&id, &Principal::ANONYMOUS).await.unwrap();
        if let Some(error) = find.await.unwrap() {
            assert_eq!(error.reason(), Reason::SessionDeleted, "session {n}: {error}");
        }
        if let Ok(found) = second.find(&id, &Principal::ANONYMOUS).await {
            assert!(request(&found, 1, "ping").await.is_err(), "session {n} was deleted and is alive");
        }
    }
}

#[tokio::test]
async fn the_standalone_stream_ends_with_its_session_also_while_an_event_is_on_its_way() {
    let mut world = World::new();
    let session = world.session().await;
    let link = world.script.opened().await;
    let mut reader = session.listen(None).await.unwrap();
    world.store.hold_appends();
    link.outlet.notify(&Method::LogMessage, Some(&log("on its way"))).await.unwrap();
    world.sessions.end(&session, EndCause::Deleted).await.unwrap();
    world.store.release_appends();
    let rest = tokio::time::timeout(SOON, all(&mut reader)).await.expect("it ends");
    assert_eq!(rest, ["prime", "on its way"]);
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_wake_was_slow_sleeps_and_expires_like_any_other() {
    let limits = Limits {
        dormant_after: Some(Duration::from_secs(20)),
        idle_ttl: Some(10 * MINUTE),
        ..Limits::default()
    };
    let slow = Arc::new(Slow(Duration::from_secs(30)));
    let sessions = runtime::start(Arc::new(Memory::new()), slow, limits);
    let id = *runtime::session(&sessions, "2025-11-25").await.id();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(sessions.tallies().awake, 0);
    drop(sessions.find(&id, &Principal::ANONYMOUS).await.unwrap());
    tokio::time::sleep(240 * MINUTE).await;
    assert_eq!((sessions.tallies().awake, sessions.tallies().sessions), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_session_is_not_expired_by_its_own_slow_wake() {
    let limits = Limits { dormant_after: Some(MINUTE), idle_ttl: Some(10 * MINUTE), ..Limits::default() };
    let slow = Arc::new(Slow(Duration::from_secs(30)));
    let sessions = runtime::start(Arc::new(Memory::new()), slow, limits);
    let id = *runtime::session(&sessions, "2025-11-25").await.id();
    tokio::time::sleep(10 * MINUTE - Duration::from_secs(10)).await;
    let finding = sessions.clone();
    let first = tokio::spawn(async move { finding.find(&id, &Principal::ANONYMOUS).await.is_ok() });
    tokio::time::sleep(Duration::from_secs(15)).await;
    sessions.find(&id, &Principal::ANONYMOUS).await.expect("it is being woken");
    assert!(first.await.unwrap());
}

#[tokio::test]
async fn a_session_that_was_put_back_is_not_taken_for_its_tombstone() {
    let world = World::with(Limits { max_tombstones: 1, ..Limits::default() });
    let session = world.session().await;
    let (id, key) = (*session.id(), session.id().key());
    let record = world.store.get(RecordKey::session(key)).await.unwrap().unwrap();
    let (record, deadline) = (record.value, record.deadline);
    world.sessions.delete(&id, &Principal::ANONYMOUS).await.unwrap();
    let saved = SavedSession { key, record, deadline, log: SavedLog::default() };
    world.sessions.adopt(saved, Existing::Replace).await.unwrap();
    for _ in 0..2 {
        let other = world.session().await;
        world.sessions.delete(other.id(), &Principal::ANONYMOUS).await.unwrap();
    }
    world.sessions.find(&id, &Principal::ANONYMOUS).await.expect("it is there");
}

#[tokio::test]
async fn saved_waits_for_a_write_that_is_under_way() {
    let world = World::new();
    let initialize = runtime::request(1, "initialize", &runtime::initialize("2025-11-25"));
    let created = world.sessions.create(initialize, &Principal::ANONYMOUS).await.unwrap();
    let session = created.session.unwrap();
    world.store.hold_answers_of_puts();
    session.notification(Notification { method: Method::Initialized, params: None }).unwrap();
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    let waiting = {
        let session = Arc::clone(&session);
        tokio::spawn(async move { session.saved().await })
    };
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!waiting.is_finished(), "the write has not answered");
    world.store.answer_puts();
    waiting.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_write_that_failed_is_tried_again_soon() {
    let world = World::new();
    let initialize = runtime::request(1, "initialize", &runtime::initialize("2025-11-25"));
    let created = world.sessions.create(initialize, &Principal::ANONYMOUS).await.unwrap();
    let session = created.session.unwrap();
    world.store.set_broken(true);
    session.notification(Notification { method: Method::Initialized, params: None }).unwrap();
    session.saved().await;
    world.store.set_broken(false);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let world = world.killed(Limits::default());
    assert_eq!(world.find(&session).await.unwrap().info().phase, Phase::Initialized);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_could_not_be_logged_is_not_given_again_after_a_sleep() {
    let mut world = World::with(Limits { dormant_after: Some(MINUTE), ..Limits::default() });
    let session = world.session().await;
    let waiting = send(&session, runtime::request(1, "resources/read", &json!({ "uri": "test://a" })));
    let call = world.script.call().await;
    say(&call, "hello").await;
    let mut reader = reader_of(waiting.await.unwrap());
    next(&mut reader).await;
    world.store.fail_nth(0);
    call.answer(&json!({}));
    assert_eq!(event(&mut reader).await.unwrap().0, None);
    assert!(reader.next().await.is_none());
    drop(reader);
    let id = *session.id();
    drop(session);
    tokio::time::sleep(5 * MINUTE).await;
    assert_eq!(world.sessions.tallies().awake, 0, "it sleeps once the log knows");
    let session = world.sessions.find(&id, &Principal::ANONYMOUS).await.unwrap();
    assert!(session.info().calls.is_empty(), "a request that was answered is not run again");
}

#[tokio::test]
async fn an_id_whose_event_was_lost_with_the_power_still_finds_its_stream() {
    let mut world = World::new();
    let old = world.session().await;
    let (_call, mut reader) = world.streaming_call(&old, 7).await;
    let (id, _) = next(&mut reader).await;
    let parts: Vec<&str> = id.split('-').collect();
    let position = u64::from_str_radix(parts[1], 16).unwrap() + 3;
    let lost = format!("{}-{position:x}-{}", parts[0], parts[2]);
    let mut world = world.killed(Limits::default());
    let session = world.find(&old).await.unwrap();
    let mut resumed = resume(&session, &lost).await.unwrap();
    world.script.call().await.answer(&json!({ "tools": [] }));
    let rest = tokio::time::timeout(SOON, all(&mut resumed)).await.expect("it is answered");
    assert_eq!(rest, ["prime", "error 7 interrupted"]);
    // A stream that was lost with it is not taken for another: numbers leap too.
    let next_number = u32::from_str_radix(parts[0], 16).unwrap() + 1;
    let lost = format!("{next_number:x}-{}-{}", parts[1], parts[2]);
    let (_call, mut reader) = world.streaming_call(&session, 8).await;
    next(&mut reader).await;
    assert_eq!(resume(&session, &lost).await.unwrap_err().reason(), Reason::StreamForgotten);
}

#[tokio::test(start_paused = true)]
async fn a_leap_of_stream_numbers_outlasts_a_sleep_without_streams() {
    let limits = Limits { dormant_after: Some(MINUTE), ..Limits::default() };
    let mut world = World::with(limits.clone());
    let old = world.session().await;
    let (call, mut reader) = world.streaming_call(&old, 1).await;
    let number = |id: &str| u32::from_str_radix(id.split('-').next().unwrap(), 16).unwrap();
    let last = number(&next(&mut reader).await.0);
    call.answer(&json!({}));
    next(&mut reader).await;
    drop(reader);
    let mut world = world.killed(limits);
    // Woken, put to sleep without a stream, and woken again by the same process.
    drop(world.find(&old).await.unwrap());
    tokio::time::sleep(3 * MINUTE).await;
    assert_eq!(world.sessions.tallies().awake, 0);
    let session = world.find(&old).await.unwrap();
    let (_call, mut reader) = world.streaming_call(&session, 2).await;
    let (id, _) = next(&mut reader).await;
    assert!(number(&id) > last + 1000, "{id}: numbers that may have been lost after {last} are not used");
}

#[tokio::test]
async fn an_event_behind_a_note_that_failed_brings_the_note_along() {
    let inner = Arc::new(Faulty::new(Arc::new(Memory::new())));
    let mut world = World::on(inner.clone(), Limits::default());
    let old = world.session().await;
    world.store.hold_appends();
    let waiting = send(&old, runtime::request(1, "tools/call", &json!({})));
    let call = world.script.call().await;
    say(&call, "one").await;
    say(&call, "two").await;
    inner.fail_nth(0);
    world.store.release_appends();
    let mut reader = reader_of(waiting.await.unwrap());
    assert_eq!(event(&mut reader).await.unwrap().0, None);
    let (id, _) = next(&mut reader).await;
    let mut world = world.killed(Limits::default());
    let session = world.find(&old).await.unwrap();
    world.script.call().await.answer(&json!({ "tools": [] }));
    let mut resumed = resume(&session, &id).await.unwrap();
    let rest = tokio::time::timeout(SOON, all(&mut resumed)).await.expect("it is answered");
    assert_eq!(rest, ["prime", "error 1 interrupted"]);
}

#[tokio::test]
async fn a_connection_that_cannot_be_resumed_is_not_closed() {
    let mut world = World::new();
    let session = world.session().await;
    world.store.set_broken(true);
    let waiting = send(&session, runtime::request(1, "tools/call", &json!({})));
    let call = world.script.call().await;
    call.context.close_connection();
    let mut reader = reader_of(waiting.await.unwrap());
    call.answer(&json!({}));
    let rest = tokio::time::timeout(SOON, all(&mut reader)).await.expect("it is answered");
    assert_eq!(rest, ["result 1"]);
}

#[tokio::test]
async fn what_was_delivered_is_not_delivered_again_after_an_orderly_stop() {
    let mut world = World::new();
    let session = world.session().await;
    let link = world.script.opened().await;
    let mut reader = session.listen(None).await.unwrap();
    for n in 0..3 {
        link.outlet.notify(&Method::LogMessage, Some(&log(&n.to_string()))).await.unwrap();
        next(&mut reader).await;
    }
    drop(reader);
    world.sessions.shut_down(Duration::from_secs(1)).await;
    let mut world = world.killed(Limits::default());
    let again = world.find(&session).await.unwrap();
    let mut reader = again.listen(None).await.unwrap();
    let link = world.script.opened().await;
    link.outlet.notify(&Method::LogMessage, Some(&log("later"))).await.unwrap();
    assert_eq!(next(&mut reader).await.1, "later");
}

#[tokio::test(start_paused = true)]
async fn the_sweep_does_not_spin_over_records_that_cannot_be_written() {
    let limits = Limits { idle_ttl: Some(10 * MINUTE), dormant_after: None, ..Limits::default() };
    let world = World::with(limits);
    let mut readers = Vec::new();
    for _ in 0..300 {
        readers.push(world.session().await.listen(None).await.unwrap());
    }
    world.store.fail_puts(true);
    tokio::time::sleep(40 * MINUTE).await;
    assert!(world.store.looks() < 200, "{} looks for what is due", world.store.looks());
    // And what is in use is not lost by it.
    assert_eq!(world.sessions.list().len(), 300);
    world.store.fail_puts(false);
    let session = Arc::clone(readers[0].session());
    json_of(request(&session, 1, "ping").await.unwrap());
}
