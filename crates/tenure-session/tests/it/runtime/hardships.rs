//! Bad moments: an end while something is on its way, a store that fails or dawdles, handlers that panic.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenure_protocol::{Message, Method, Notification, RawJson, Reply, RpcError};
use tenure_session::backend::{Backend, Call, Link, Open, Opened};
use tenure_session::call::Caller;
use tenure_session::port::BoxFuture;
use tenure_session::port::store::{RecordKey, Store, Version};
use tenure_session::record::EndCause;
use tenure_session::session::Item;
use tenure_session::settings::Metadata;
use tenure_session::{Limits, Principal, Session};
use tenure_store::memory::Memory;
use tenure_testkit::faulty::Faulty;
use tenure_testkit::runtime::{self, json_of, reader_of, send};

use crate::runtime::support::{World, all, next, resume, say};

const SOON: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_session_that_ends_while_an_event_is_on_its_way_ends_its_streams_all_the_same() {
    let mut world = World::new();
    let session = world.session().await;
    let (call, mut reader) = world.streaming_call(&session, 1).await;
    next(&mut reader).await;
    world.store.hold_appends();
    say(&call, "on its way").await;
    world.sessions.end(&session, EndCause::Deleted).await.unwrap();
    world.store.release_appends();
    let rest = tokio::time::timeout(SOON, all(&mut reader)).await.expect("the stream ends");
    assert_eq!(rest, ["on its way", "error 1 session_deleted"]);
}

#[tokio::test]
async fn an_answer_on_its_way_is_not_lost_when_the_session_ends() {
    let mut world = World::new();
    let session = world.session().await;
    let (call, mut reader) = world.streaming_call(&session, 1).await;
    next(&mut reader).await;
    world.store.hold_appends();
    call.answer(&json!({}));
    while !session.info().calls.is_empty() {
        tokio::task::yield_now().await;
    }
    world.sessions.end(&session, EndCause::Deleted).await.unwrap();
    world.store.release_appends();
    assert_eq!(tokio::time::timeout(SOON, all(&mut reader)).await.expect("it ends"), ["result 1"]);
}

/// Says something and answers in the same breath.
struct Quick;

struct QuickLink;

impl Backend for Quick {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let result = RawJson::of(&json!({ "protocolVersion": open.revision.as_str(), "capabilities": {} }));
        Box::pin(async move {
            // Also says something before the session exists for its client, and takes its time.
            open.outlet.notify(&Method::LogMessage, None).await.map_err(|error| error.to_rpc())?;
            tokio::time::sleep(Duration::from_secs(300)).await;
            Ok(Opened { link: Box::new(QuickLink), result })
        })
    }
}

impl Link for QuickLink {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        Box::pin(async move {
            let params = RawJson::of(&json!({ "level": "info", "data": "hello" }));
            call.context.notify(&Method::LogMessage, Some(&params)).await.map_err(|error| error.to_rpc())?;
            Ok(RawJson::EMPTY_OBJECT)
        })
    }

    fn notify(&self, notification: Notification) {
        assert!(notification.method == Method::Initialized, "a panic for testing");
    }

    fn close(&self) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }
}

fn patient() -> Limits {
    Limits { initialize_timeout: Duration::from_secs(3600), ..Limits::default() }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_logged_still_arrives() {
    let store = Arc::new(Faulty::new(Arc::new(Memory::new())));
    let sessions = runtime::start(store.clone(), Arc::new(Quick), patient());
    let session = runtime::session(&sessions, "2025-11-25").await;
    store.set_broken(true);
    let request = runtime::request(1, "tools/call", &json!({}));
    let mut reader = reader_of(session.request(request, Caller::anonymous("test")).await.unwrap());
    assert_eq!(all(&mut reader).await, ["hello", "result 1"], "its client could not come back to it");
}

#[tokio::test]
async fn a_batch_is_answered_also_when_nothing_can_be_logged() {
    let world = World::new();
    let session = runtime::session(&world.sessions, "2025-03-26").await;
    world.store.set_broken(true);
    let batch = (1..=3).map(|id| Message::Request(runtime::request(id, "ping", &json!({})))).collect();
    let answer = session.batch(batch, &Caller::anonymous("test")).unwrap().unwrap();
    assert_eq!(all(&mut reader_of(answer)).await, ["result 1", "result 2", "result 3"]);
}

#[tokio::test]
async fn an_answer_that_could_not_be_logged_waits_for_a_client_that_is_away() {
    let mut world = World::new();
    let session = world.session().await;
    let (call, mut reader) = world.streaming_call(&session, 1).await;
    let (id, _) = next(&mut reader).await;
    drop(reader);
    world.store.fail_nth(0);
    call.answer(&json!({}));
    while !session.info().calls.is_empty() {
        tokio::task::yield_now().await;
    }
    let mut resumed = resume(&session, &id).await.unwrap();
    assert_eq!(all(&mut resumed).await, ["prime", "result 1"]);
}

#[tokio::test]
async fn a_batch_that_withdraws_its_own_request_ends() {
    let world = World::new();
    let session = runtime::session(&world.sessions, "2025-03-26").await;
    let params = Some(RawJson::trusted(r#"{"requestId":1}"#));
    let batch = vec![
        Message::Request(runtime::request(1, "tools/call", &json!({}))),
        Message::Notification(Notification { method: Method::Cancelled, params }),
    ];
    let answer = session.batch(batch, &Caller::anonymous("test")).unwrap().unwrap();
    let mut reader = reader_of(answer);
    assert_eq!(tokio::time::timeout(SOON, all(&mut reader)).await.expect("it ends"), [""; 0]);
}

#[tokio::test]
async fn a_replaced_reader_gives_nothing_more() {
    let mut world = World::new();
    let session = world.session().await;
    let link = world.script.opened().await;
    for n in 0..50 {
        let params = RawJson::of(&json!({ "level": "info", "data": n.to_string() }));
        link.outlet.notify(&Method::LogMessage, Some(&params)).await.unwrap();
    }
    let mut old = session.listen(None).await.unwrap();
    assert_eq!(next(&mut old).await.1, "0");
    let mut new = session.listen(None).await.unwrap();
    assert_eq!(all(&mut old).await, [""; 0]);
    assert_eq!(next(&mut new).await.1, "1");
}

#[tokio::test(start_paused = true)]
async fn a_trim_that_fails_is_not_tried_again_at_once() {
    let world =
        World::with(Limits { event_ttl: Duration::from_millis(10), idle_ttl: None, ..Limits::default() });
    let _session = world.session().await;
    world.store.fail_trims();
    world.sessions.fanout().list_changed(tenure_session::call::News::Tools);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let trims = world.store.trims();
    assert!((2..20).contains(&trims), "{trims} in a minute");
}

#[tokio::test]
async fn events_at_hand_are_given_although_the_log_has_forgotten_them() {
    let mut world = World::with(Limits { max_session_events: 5, max_tail_events: 2, ..Limits::default() });
    let session = world.session().await;
    let (call, mut reader) = world.streaming_call(&session, 1).await;
    let (other, _other_reader) = world.streaming_call(&session, 2).await;
    next(&mut reader).await;
    for n in 0..4 {
        say(&call, &n.to_string()).await;
    }
    call.answer(&json!({}));
    while session.info().calls.len() > 1 {
        tokio::task::yield_now().await;
    }
    for n in 0..10 {
        say(&other, &n.to_string()).await;
    }
    assert_eq!(all(&mut reader).await, ["gap", "3", "result 1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn everybody_who_waits_for_room_gets_it() {
    let mut world =
        World::with(Limits { max_unstored_bytes: 1, max_session_events: 100, ..Limits::default() });
    let _session = world.session().await;
    let link = world.script.opened().await;
    let mut emitters = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (outlet, store) = (link.outlet.clone(), Arc::clone(&world.store));
        emitters.spawn(async move {
            for n in 0..300 {
                if n % 7 == 0 {
                    store.hold_appends();
                }
                outlet.notify(&Method::ToolsListChanged, None).await.unwrap();
                store.release_appends();
                tokio::task::yield_now().await;
            }
        });
    }
    let store = Arc::clone(&world.store);
    let release = tokio::spawn(async move {
        loop {
            store.release_appends();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    tokio::time::timeout(Duration::from_secs(60), emitters.join_all()).await.expect("no task waits for ever");
    release.abort();
}

/// The session's record as it stands in the store.
async fn stored(world: &World, session: &Session) -> (Version, String) {
    let record = world.store.get(RecordKey::session(session.info().key)).await.unwrap().unwrap();
    (record.version, String::from_utf8_lossy(&record.value).into_owned())
}

#[tokio::test]
async fn a_change_of_metadata_and_a_save_at_the_same_time_are_both_kept() {
    let mut world = World::new();
    let session = world.session().await;
    session.update_metadata(|metadata| drop(metadata.insert("first".into(), 1.into()))).await.unwrap();
    let (before, _) = stored(&world, &session).await;
    world.store.hold_answers_of_puts();
    let changing = {
        let session = Arc::clone(&session);
        let change = |metadata: &mut Metadata| drop(metadata.insert("second".into(), 2.into()));
        tokio::spawn(async move { session.update_metadata(change).await })
    };
    // The change is in the store, but its writer does not know yet.
    while stored(&world, &session).await.0 == before {
        tokio::task::yield_now().await;
    }
    let waiting = send(&session, runtime::request(1, "logging/setLevel", &json!({ "level": "error" })));
    world.script.call().await.answer(&json!({}));
    // Let the save get as far as it can meanwhile.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    world.store.answer_puts();
    json_of(waiting.await.unwrap());
    changing.await.unwrap().unwrap();
    let both = async {
        loop {
            let (_, record) = stored(&world, &session).await;
            if record.contains(r#""log_level":"error""#) && record.contains(r#""second":2"#) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, both).await.expect("both changes reach the store");
    let again = session.update_metadata(|metadata| drop(metadata.insert("third".into(), 3.into())));
    tokio::time::timeout(SOON, again).await.expect("it does not spin").unwrap();
    assert_eq!(session.metadata().0.keys().collect::<Vec<_>>(), ["first", "second", "third"]);
}

#[tokio::test]
async fn what_is_kept_at_hand_for_a_stuck_reader_is_bounded_in_bytes() {
    let mut world = World::new();
    let session = world.session().await;
    let (call, mut reader) = world.streaming_call(&session, 1).await;
    next(&mut reader).await;
    // Far fewer than are kept by count, and far more than may be kept in bytes.
    for _ in 0..10 {
        say(&call, &"x".repeat(100_000)).await;
    }
    // So the first of them is only in the store, which cannot be read now.
    world.store.set_broken(true);
    assert!(matches!(reader.next().await, Some(Item::Close(_))));
}

#[tokio::test(start_paused = true)]
async fn a_session_with_a_slow_handshake_expires_like_any_other() {
    let limits = Limits { idle_ttl: Some(Duration::from_secs(60)), ..patient() };
    let sessions = runtime::start(Arc::new(Memory::new()), Arc::new(Quick), limits);
    runtime::session(&sessions, "2025-11-25").await;
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!(sessions.tallies().sessions, 1);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(sessions.tallies().sessions, 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_over_a_notification_harms_no_session() {
    let sessions =
        runtime::start(Arc::new(Memory::new()), Arc::new(Quick), Limits { max_streams: 1, ..patient() });
    let session = runtime::session(&sessions, "2025-03-26").await;
    for id in 1..3 {
        let batch = vec![
            Message::Notification(Notification { method: Method::RootsListChanged, params: None }),
            Message::Request(runtime::request(id, "ping", &json!({}))),
        ];
        let answer = session.batch(batch, &Caller::anonymous("test")).unwrap().unwrap();
        assert_eq!(all(&mut reader_of(answer)).await, [format!("result {id}")]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_question_is_not_the_requests_time() {
    let limits = Limits {
        request_timeout: Duration::from_secs(10),
        ask_timeout: Duration::from_secs(300),
        ..Limits::default()
    };
    let mut world = World::with(limits);
    let session = world.session().await;
    let waiting = send(&session, runtime::request(1, "tools/call", &json!({})));
    let call = world.script.call().await;
    let context = Arc::clone(&call.context);
    let asking = tokio::spawn(async move { context.ask(&Method::ElicitationCreate, None).await });
    let mut reader = reader_of(waiting.await.unwrap());
    let (_, question) = runtime::event(&mut reader).await.unwrap();
    // The person takes two minutes.
    tokio::time::sleep(Duration::from_secs(120)).await;
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": {} });
    let body = serde_json::to_vec(&answer).unwrap().into();
    let Ok(Message::Response(response)) = Message::parse(&body) else { panic!("a response") };
    session.response(response).unwrap();
    asking.await.unwrap().unwrap();
    call.answer(&json!({}));
    assert_eq!(all(&mut reader).await, ["result 1"]);
}

#[tokio::test]
async fn what_a_client_makes_us_keep_is_bounded() {
    let limits = Limits { max_initialize_bytes: 1000, max_subscriptions: 2, ..Limits::default() };
    let mut world = World::with(limits);
    let mut params = runtime::initialize("2025-11-25");
    params["padding"] = "x".repeat(2000).into();
    let refused =
        world.sessions.create(runtime::request(1, "initialize", &params), &Principal::ANONYMOUS).await;
    assert_eq!(refused.unwrap_err().reason(), tenure_protocol::Reason::InvalidParams);
    let session = world.session().await;
    for (id, uri) in [(1, "a://1"), (2, "a://2"), (3, "a://2")] {
        let waiting = send(&session, runtime::request(id, "resources/subscribe", &json!({ "uri": uri })));
        world.script.call().await.answer(&json!({}));
        json_of(waiting.await.unwrap());
    }
    let request = runtime::request(4, "resources/subscribe", &json!({ "uri": "a://3" }));
    let refused = session.request(request, Caller::anonymous("test")).await.unwrap_err();
    assert_eq!(refused.reason(), tenure_protocol::Reason::TooManySubscriptions);
}
