//! Dormant and back: after the end of a process, and after a quiet time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenure_protocol::{Method, Reason};
use tenure_session::backend::Opening;
use tenure_session::port::store::{RecordKey, Store};
use tenure_session::record::StoredSession;
use tenure_session::{EventId, Limits, Principal, Session};
use tenure_testkit::fake_backend::{BackendEvent, Opens};
use tenure_testkit::runtime::{self, json_of, reader_of, send};
use tokio::time::Instant;

use crate::runtime::support::{World, gist, next, request, resume, say};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_session_outlives_its_process() {
    let mut world = World::new();
    let old = world.session().await;
    let first = world.script.opened().await;
    assert_eq!(first.opening, Opening::Fresh);
    let mut world = world.killed(Limits::default());
    let session = world.find(&old).await.unwrap();
    assert_eq!(session.id(), old.id());
    let second = world.script.opened().await;
    assert_eq!((second.opening, second.params), (Opening::Wake, first.params), "the handshake is replayed");
    let BackendEvent::Heard(heard) = world.script.next().await else { panic!("initialized") };
    assert_eq!(heard.method, Method::Initialized);
    let waiting = send(&session, runtime::request(1, "tools/call", &json!({})));
    world.script.call().await.answer(&json!({ "fine": true }));
    assert_eq!(json_of(waiting.await.unwrap())["result"]["fine"], true);
    assert_eq!(world.sessions.tallies().woken, 1);
}

#[tokio::test]
async fn a_session_that_was_not_yet_initialized_is_woken_as_such() {
    let world = World::new();
    let initialize = runtime::request(1, "initialize", &runtime::initialize("2025-11-25"));
    let created = world.sessions.create(initialize, &Principal::ANONYMOUS).await.unwrap();
    let old = created.session.unwrap();
    let world = world.killed(Limits::default());
    let session = world.find(&old).await.unwrap();
    assert_eq!(request(&session, 1, "tools/list").await.unwrap_err().reason(), Reason::NotInitialized);
}

#[tokio::test]
async fn requests_that_come_together_wake_a_session_once() {
    let world = World::new();
    let old = world.session().await;
    let mut world = world.killed(Limits::default());
    let finds = (0..10).map(|_| {
        let (sessions, id) = (world.sessions.clone(), *old.id());
        tokio::spawn(async move { sessions.find(&id, &Principal::ANONYMOUS).await.unwrap() })
    });
    let mut found = Vec::new();
    for find in finds.collect::<Vec<_>>() {
        found.push(find.await.unwrap());
    }
    assert!(found.iter().all(|session| Arc::ptr_eq(session, &found[0])));
    world.script.opened().await;
    assert_eq!(world.sessions.tallies().woken, 1);
}

#[tokio::test]
async fn a_wake_goes_on_when_the_one_who_asked_for_it_hangs_up() {
    let world = World::new();
    let old = world.session().await;
    let mut world = world.killed(Limits::default());
    let (sessions, id) = (world.sessions.clone(), *old.id());
    let find = tokio::spawn(async move { sessions.find(&id, &Principal::ANONYMOUS).await });
    world.script.opened().await;
    find.abort();
    while world.sessions.tallies().woken == 0 {
        tokio::task::yield_now().await;
    }
    world.find(&old).await.unwrap();
    assert_eq!(world.sessions.tallies().woken, 1);
}

#[tokio::test]
async fn log_level_and_subscriptions_come_back() {
    let mut world = World::new();
    let old = world.session().await;
    for (id, method, params) in [
        (1, "logging/setLevel", json!({ "level": "warning" })),
        (2, "resources/subscribe", json!({ "uri": "test://a" })),
        (3, "resources/subscribe", json!({ "uri": "test://b" })),
        (4, "resources/unsubscribe", json!({ "uri": "test://a" })),
    ] {
        let waiting = send(&old, runtime::request(id, method, &params));
        world.script.call().await.answer(&json!({}));
        json_of(waiting.await.unwrap());
    }
    saved(&world, &old, |record| record.subscriptions == ["test://b"]).await;
    let mut world = world.killed(Limits::default());
    let (sessions, id) = (world.sessions.clone(), *old.id());
    let find = tokio::spawn(async move { sessions.find(&id, &Principal::ANONYMOUS).await.unwrap() });
    let level = world.script.call().await;
    assert_eq!(level.request.method, Method::LoggingSetLevel);
    assert_eq!(level.request.params.as_ref().unwrap().bytes(), &r#"{"level":"warning"}"#);
    level.answer(&json!({}));
    let subscribe = world.script.call().await;
    assert_eq!(subscribe.request.params.as_ref().unwrap().bytes(), &r#"{"uri":"test://b"}"#);
    subscribe.fail(-32603, "not today");
    let session = find.await.unwrap();
    assert_eq!(session.info().subscriptions, ["test://b"], "a refusal does not end the subscription");
    let mut reader = session.listen(None).await.unwrap();
    let news = next(&mut reader).await.1;
    assert!(news.contains("resources/updated") && news.contains("test://b"), "{news}: it may have changed");
}

/// Subscribes a session to this many resources, at a server that accepts them.
async fn subscribe(world: &mut World, session: &Arc<Session>, count: u64) {
    for id in 1..=count {
        let params = json!({ "uri": format!("test://{id}") });
        let waiting = send(session, runtime::request(id, "resources/subscribe", &params));
        world.script.call().await.answer(&json!({}));
        json_of(waiting.await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_silent_on_subscriptions_delays_a_wake_by_one_timeout() {
    let mut world = World::new();
    let old = world.session().await;
    subscribe(&mut world, &old, 20).await;
    saved(&world, &old, |record| record.subscriptions.len() == 20).await;
    let timeout = Limits::default().initialize_timeout;
    // The script of this world answers nothing.
    let world = world.killed(Limits::default());
    let began = Instant::now();
    let session = world.find(&old).await.unwrap();
    assert!(began.elapsed() >= timeout, "{:?}: the server gets its time", began.elapsed());
    assert!(began.elapsed() < timeout * 2, "{:?} for 20 subscriptions", began.elapsed());
    assert_eq!(session.info().subscriptions.len(), 20, "they stay, and may work with the next server");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_silent_on_subscriptions_delays_a_new_link_by_one_timeout() {
    let timeout = Duration::from_secs(5);
    let limits = Limits { initialize_timeout: timeout, json_wait: Duration::ZERO, ..Limits::default() };
    let mut world = World::with(limits);
    let session = world.session().await;
    let link = world.script.opened().await;
    subscribe(&mut world, &session, 20).await;
    link.outlet.link_lost();
    let began = Instant::now();
    let waiting = send(&session, runtime::request(100, "tools/list", &json!({})));
    let (mut silent, mut uris) = (Vec::new(), BTreeSet::new());
    let list = loop {
        let call = world.script.call().await;
        if call.request.method == Method::ToolsList {
            break call;
        }
        uris.insert(call.request.params.clone().unwrap().bytes().to_vec());
        silent.push(call);
    };
    assert!(began.elapsed() < timeout * 2, "{:?} for 20 subscriptions", began.elapsed());
    assert_eq!(uris.len(), 20, "each is sent once");
    list.answer(&json!({}));
    json_of(waiting.await.unwrap());
}

/// Waits until the stored record of a session is as wanted.
async fn saved(
    world: &World,
    session: &Session,
    wanted: impl Fn(&tenure_session::record::SessionRecord) -> bool,
) {
    loop {
        let record = world.store.get(RecordKey::session(session.id().key())).await.unwrap().unwrap();
        match StoredSession::decode(&record.value).unwrap() {
            StoredSession::Session(record) if wanted(&record) => return,
            _ => tokio::task::yield_now().await,
        }
    }
}

#[tokio::test]
async fn a_wake_that_fails_leaves_the_session_for_the_next_try() {
    let world = World::new();
    let old = world.session().await;
    let world = world.killed(Limits::default());
    for opens in [Opens::Refuses, Opens::Panics, Opens::Nonsense] {
        world.backend.set_opens(opens);
        let error = world.find(&old).await.unwrap_err();
        assert_eq!(error.reason(), Reason::BackendUnavailable, "{opens:?}");
    }
    world.backend.set_opens(Opens::Well);
    world.find(&old).await.unwrap();
    assert_eq!(world.sessions.tallies().awake, 1);
}

#[tokio::test]
async fn a_store_that_fails_at_any_step_of_a_wake_leaves_the_session() {
    let world = World::new();
    let old = world.session().await;
    let mut nth = 0;
    let mut world = world.killed(Limits::default());
    loop {
        world.store.fail_nth(nth);
        match world.find(&old).await {
            Ok(_) => break,
            Err(error) => assert_eq!(error.reason(), Reason::StoreUnavailable, "step {nth}"),
        }
        world = world.killed(Limits::default());
        nth += 1;
    }
    assert!(nth >= 5, "looking, claiming, surveying and writing can fail: {nth}");
    request(&world.find(&old).await.unwrap(), 1, "ping").await.unwrap();
}

#[tokio::test]
async fn a_dormant_session_of_somebody_else_looks_unknown() {
    let world = World::new();
    let old = world.session().await;
    let world = world.killed(Limits::default());
    let error = world.sessions.find(old.id(), &Principal::named("eve")).await.unwrap_err();
    assert_eq!(error.reason(), Reason::SessionNotFound);
    let error = world.sessions.delete(old.id(), &Principal::named("eve")).await.unwrap_err();
    assert_eq!(error.reason(), Reason::SessionNotFound);
    assert_eq!(world.sessions.tallies().woken, 0);
    world.find(&old).await.unwrap();
}

#[tokio::test]
async fn a_dormant_session_is_ended_without_waking_it_and_stays_dead() {
    let world = World::new();
    let (deleted, revoked) = (world.session().await, world.session().await);
    let world = world.killed(Limits::default());
    world.backend.set_opens(Opens::Hangs);
    world.sessions.delete(deleted.id(), &Principal::ANONYMOUS).await.unwrap();
    assert!(world.sessions.revoke(&revoked.id().key()).await.unwrap());
    assert!(!world.sessions.revoke(&revoked.id().key()).await.unwrap());
    for _ in 0..2 {
        assert_eq!(world.find(&deleted).await.unwrap_err().reason(), Reason::SessionDeleted);
        assert_eq!(world.find(&revoked).await.unwrap_err().reason(), Reason::SessionRevoked);
    }
    let error = world.sessions.delete(deleted.id(), &Principal::ANONYMOUS).await.unwrap_err();
    assert_eq!(error.reason(), Reason::SessionDeleted);
    let world = world.killed(Limits::default());
    assert_eq!(world.find(&deleted).await.unwrap_err().reason(), Reason::SessionDeleted);
}

#[tokio::test]
async fn a_session_that_is_ended_while_it_is_woken_does_not_come_back() {
    let world = World::new();
    let old = world.session().await;
    let mut world = world.killed(Limits::default());
    let waiting = send(&old, runtime::request(1, "tools/call", &json!({})));
    drop(waiting);
    // Held at its subscription: the wake is under way until the test answers.
    let subscribed = world.session().await;
    world.script.opened().await;
    let waiting =
        send(&subscribed, runtime::request(1, "resources/subscribe", &json!({ "uri": "test://a" })));
    world.script.call().await.answer(&json!({}));
    json_of(waiting.await.unwrap());
    saved(&world, &subscribed, |record| !record.subscriptions.is_empty()).await;
    let mut world = world.killed(Limits::default());
    let (sessions, id) = (world.sessions.clone(), *subscribed.id());
    let find = tokio::spawn(async move { sessions.find(&id, &Principal::ANONYMOUS).await });
    let call = world.script.call().await;
    world.sessions.delete(subscribed.id(), &Principal::ANONYMOUS).await.unwrap();
    call.answer(&json!({}));
    assert_eq!(find.await.unwrap().unwrap_err().reason(), Reason::SessionDeleted);
    world.script.closed().await;
    assert_eq!(world.find(&subscribed).await.unwrap_err().reason(), Reason::SessionDeleted);
    assert_eq!(world.sessions.tallies().awake, 0);
}

#[tokio::test(start_paused = true)]
async fn a_dormant_session_expires_by_its_deadline() {
    let limits = Limits { idle_ttl: Some(30 * MINUTE), ..Limits::default() };
    let world = World::with(limits.clone());
    let (one, two) = (world.session().await, world.session().await);
    // Its last use may not have been written before the kill, so a session gets its idle time twice.
    tokio::time::sleep(10 * MINUTE).await;
    let world = world.killed(limits);
    tokio::time::sleep(45 * MINUTE).await;
    world.find(&one).await.unwrap();
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!(world.find(&two).await.unwrap_err().reason(), Reason::SessionExpired);
    assert_eq!(world.sessions.tallies().sessions, 1);
}

#[tokio::test(start_paused = true)]
async fn sessions_that_no_client_asks_for_are_swept_away() {
    let limits = Limits { idle_ttl: Some(30 * MINUTE), tombstone_ttl: 20 * MINUTE, ..Limits::default() };
    let world = World::with(limits.clone());
    let key = RecordKey::session(world.session().await.id().key());
    let world = world.killed(limits);
    tokio::time::sleep(70 * MINUTE).await;
    let record = world.store.get(key).await.unwrap().unwrap();
    assert!(matches!(StoredSession::decode(&record.value), Ok(StoredSession::Tombstone(_))));
    tokio::time::sleep(30 * MINUTE).await;
    assert_eq!(world.store.get(key).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn use_is_written_down_now_and_then_and_not_each_time() {
    let limits =
        Limits { idle_ttl: Some(32 * MINUTE), max_lifetime: None, dormant_after: None, ..Limits::default() };
    let world = World::with(limits.clone());
    let session = world.session().await;
    saved(&world, &session, |record| record.phase == "initialized").await;
    let before = world.store.get(RecordKey::session(session.id().key())).await.unwrap().unwrap();
    for n in 0..600 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        json_of(request(&session, n, "ping").await.unwrap());
    }
    // 100 minutes of use, written every 4.
    tokio::task::yield_now().await;
    let after = world.store.get(RecordKey::session(session.id().key())).await.unwrap().unwrap();
    assert_eq!(after.version.0 - before.version.0, 25);
    let world = world.killed(limits);
    tokio::time::sleep(31 * MINUTE).await;
    world.find(&session).await.unwrap();
}

#[tokio::test]
async fn a_server_that_comes_back_different_is_noticed() {
    let world = World::new();
    let old = world.session().await;
    let world = world.killed(Limits::default());
    world.backend.set_opens(Opens::Newer);
    let session = world.find(&old).await.unwrap();
    let mut reader = session.listen(None).await.unwrap();
    let (id, news) = next(&mut reader).await;
    assert!(news.contains("notifications/prompts/list_changed"), "{news}");
    drop(reader);
    // The next time it is nothing new.
    let world = world.killed(Limits::default());
    world.backend.set_opens(Opens::Newer);
    let session = world.find(&old).await.unwrap();
    let mut reader = resume(&session, &id).await.unwrap();
    let link = { world }.script.opened().await;
    let params = tenure_protocol::RawJson::of(&json!({ "level": "info", "data": "later" }));
    link.outlet.notify(&Method::LogMessage, Some(&params)).await.unwrap();
    assert_eq!(next(&mut reader).await.1, "later");
}

#[tokio::test]
async fn streams_go_on_where_they_were() {
    let mut world = World::new();
    let old = world.session().await;
    let (call, mut reader) = world.streaming_call(&old, 1).await;
    let (first, _) = next(&mut reader).await;
    say(&call, "more").await;
    let (second, _) = next(&mut reader).await;
    call.answer(&json!({}));
    let (last, _) = next(&mut reader).await;
    let mut world = world.killed(Limits::default());
    let session = world.find(&old).await.unwrap();
    let mut replayed = resume(&session, &first).await.unwrap();
    assert_eq!(next(&mut replayed).await, (second, "more".to_owned()));
    assert_eq!(next(&mut replayed).await, (last.clone(), "result 1".to_owned()));
    assert!(replayed.next().await.is_none());
    // A later stream takes a number and positions of its own.
    let (_call, mut reader) = world.streaming_call(&session, 1).await;
    let (id, _) = next(&mut reader).await;
    let read = |id: &str| EventId::parse(id.as_bytes(), &session.event_names()).unwrap();
    let (id, last) = (read(&id), read(&last));
    assert!(id.stream > last.stream && id.position > last.position, "{id:?} after {last:?}");
}

#[tokio::test]
async fn a_client_may_come_back_to_a_stream_only_when_the_log_knows_of_it() {
    let mut world = World::with(Limits { json_wait: Duration::from_millis(1), ..Limits::default() });
    let session = world.session().await;
    world.store.hold_appends();
    let waiting = send(&session, runtime::request(1, "tools/call", &json!({})));
    let call = world.script.call().await;
    let mut reader = reader_of(waiting.await.unwrap());
    tokio::select! {
        biased;
        item = reader.next() => panic!("{item:?} before the log knows of the stream"),
        () = tokio::task::yield_now() => {}
    }
    world.store.release_appends();
    let Some(tenure_session::session::Item::Prime(id)) = reader.next().await else { panic!("primed") };
    drop((reader, call));
    let mut world = world.killed(Limits::default());
    let session = world.find(&session).await.unwrap();
    let mut resumed = resume(&session, &id.to_string()).await.unwrap();
    world.script.call().await.answer(&json!({ "tools": [] }));
    assert_eq!(next(&mut resumed).await.1, "error 1 interrupted");
}

#[tokio::test(start_paused = true)]
async fn a_quiet_session_lets_go_of_its_server_and_comes_back() {
    let limits = Limits { idle_ttl: Some(60 * MINUTE), ..Limits::default() };
    let mut world = World::with(Limits { dormant_after: Some(5 * MINUTE), ..limits });
    let session = world.session().await;
    let (call, mut reader) = world.streaming_call(&session, 1).await;
    let (id, _) = next(&mut reader).await;
    call.answer(&json!({}));
    let (last, _) = next(&mut reader).await;
    drop(reader);
    let weak = Arc::downgrade(&session);
    let secret = *session.id();
    drop(session);
    tokio::time::sleep(6 * MINUTE).await;
    world.script.closed().await;
    let tallies = world.sessions.tallies();
    assert_eq!((tallies.sessions, tallies.awake), (1, 0), "it counts on");
    assert!(weak.upgrade().is_none(), "nothing of it is left in memory");
    let session = world.sessions.find(&secret, &Principal::ANONYMOUS).await.unwrap();
    assert_eq!(world.script.opened().await.opening, Opening::Wake);
    let mut replayed = resume(&session, &id).await.unwrap();
    assert_eq!(next(&mut replayed).await, (last, "result 1".to_owned()));
    world.sessions.delete(&secret, &Principal::ANONYMOUS).await.unwrap();
    assert_eq!(world.sessions.tallies().sessions, 0);
}

#[tokio::test(start_paused = true)]
async fn a_session_in_use_does_not_fall_asleep() {
    let limits = Limits {
        dormant_after: Some(5 * MINUTE),
        request_timeout: 600 * MINUTE,
        max_request_time: 600 * MINUTE,
        ask_timeout: 600 * MINUTE,
        ..Limits::default()
    };
    let mut world = World::with(limits);
    let (listening, calling) = (world.session().await, world.session().await);
    let reader = listening.listen(None).await.unwrap();
    let waiting = send(&calling, runtime::request(1, "tools/call", &json!({})));
    let call = world.script.call().await;
    drop((listening, calling));
    tokio::time::sleep(25 * MINUTE).await;
    assert_eq!(world.sessions.tallies().awake, 2);
    call.answer(&json!({}));
    drop((reader, waiting.await.unwrap()));
    tokio::time::sleep(11 * MINUTE).await;
    assert_eq!((world.sessions.tallies().awake, world.sessions.tallies().sessions), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn news_that_a_session_slept_through_is_told_when_it_wakes() {
    let mut world = World::with(Limits { dormant_after: Some(MINUTE), ..Limits::default() });
    let session = world.session().await;
    let fanout = world.script.opened().await.fanout;
    let id = *session.id();
    drop(session);
    tokio::time::sleep(2 * MINUTE).await;
    world.script.closed().await;
    fanout.list_changed(tenure_session::call::News::Tools);
    let session = world.sessions.find(&id, &Principal::ANONYMOUS).await.unwrap();
    let mut reader = session.listen(None).await.unwrap();
    let (_, news) = runtime::event(&mut reader).await.unwrap();
    assert!(gist(&news).contains("tools/list_changed"), "{news}");
}

#[tokio::test(start_paused = true)]
async fn an_end_that_cannot_be_written_is_written_later_and_wakes_no_session_meanwhile() {
    let world = World::new();
    let session = world.session().await;
    let id = *session.id();
    drop(session);
    world.store.set_broken(true);
    let error = world.sessions.delete(&id, &Principal::ANONYMOUS).await.unwrap_err();
    assert_eq!(error.reason(), Reason::StoreUnavailable);
    let found = world.sessions.find(&id, &Principal::ANONYMOUS).await.unwrap();
    assert_eq!(request(&found, 1, "ping").await.unwrap_err().reason(), Reason::SessionDeleted);
    drop(found);
    world.store.set_broken(false);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let error = world.sessions.find(&id, &Principal::ANONYMOUS).await.unwrap_err();
    assert_eq!(error.reason(), Reason::SessionDeleted);
    let world = world.killed(Limits::default());
    assert_eq!(
        world.sessions.find(&id, &Principal::ANONYMOUS).await.unwrap_err().reason(),
        Reason::SessionDeleted
    );
}

#[tokio::test]
async fn sessions_of_an_earlier_process_count() {
    let world = World::new();
    let (one, _two) = (world.session().await, world.session().await);
    tokio::time::sleep(Duration::from_millis(5)).await;
    let world = world.killed(Limits { max_sessions: 2, ..Limits::default() });
    while world.sessions.tallies().sessions < 2 {
        tokio::task::yield_now().await;
    }
    let initialize = runtime::request(1, "initialize", &runtime::initialize("2025-11-25"));
    let error = world.sessions.create(initialize, &Principal::ANONYMOUS).await.unwrap_err();
    assert_eq!(error.reason(), Reason::TooManySessions);
    world.find(&one).await.expect("one that is counted already");
    world.sessions.delete(one.id(), &Principal::ANONYMOUS).await.unwrap();
    world.session().await;
    assert_eq!(world.sessions.tallies().sessions, 2);
}
