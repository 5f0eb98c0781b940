//! A session whose server is gone gets another one, and requests that come meanwhile are in flight like any other.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenure_protocol::{Message, Method, Notification, RawJson, Reason, RpcError};
use tenure_session::backend::{Backend, Open, Opened};
use tenure_session::port::BoxFuture;
use tenure_session::session::Answer;
use tenure_session::{Limits, Principal, Session, Sessions};
use tenure_store::memory::Memory;
use tenure_testkit::fake_backend::{BackendEvent, FakeBackend, NewLink, Opens, Script};
use tenure_testkit::runtime::{self, json_of, reader_of, send};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::runtime::support::{self, World, all, request};

/// Long enough for what should not happen to happen.
const A_WHILE: Duration = Duration::from_millis(200);

fn cancel(session: &Arc<Session>, id: u64) {
    let params = Some(RawJson::of(&json!({ "requestId": id })));
    session.notification(Notification { method: Method::Cancelled, params }).unwrap();
}

/// Waits until so many requests are in flight.
async fn in_flight(session: &Arc<Session>, count: usize) {
    let counted = async {
        while session.info().calls.len() != count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(5), counted).await.expect("so many requests in flight in time");
}

/// Has a request answered, so that the session remembers what it was about.
async fn say(session: &Arc<Session>, script: &mut Script, method: &str, params: &serde_json::Value) {
    let waiting = send(session, runtime::request(100, method, params));
    script.call().await.answer(&json!({}));
    waiting.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_for_a_server_fail_together() {
    let limits = Limits { json_wait: Duration::ZERO, ..Limits::default() };
    let patience = limits.initialize_timeout.min(limits.request_timeout);
    let mut world = World::with(limits);
    let session = world.session().await;
    let link = world.script.opened().await;
    world.backend.set_opens(Opens::Hangs);
    link.outlet.link_lost();
    let began = Instant::now();
    let waiting: Vec<_> =
        (1..=10).map(|id| send(&session, runtime::request(id, "tools/list", &json!({})))).collect();
    for waiting in waiting {
        let answer = json_of(waiting.await.unwrap());
        assert!(answer["error"].is_object(), "{answer}");
    }
    assert!(began.elapsed() < patience + Duration::from_secs(1), "{:?}", began.elapsed());
    // And the next one tries again.
    world.backend.set_opens(Opens::Well);
    let waiting = send(&session, runtime::request(11, "tools/list", &json!({})));
    world.script.call().await.answer(&json!({}));
    assert_eq!(json_of(waiting.await.unwrap())["result"], json!({}));
}

#[tokio::test]
async fn requests_that_wait_for_a_server_share_one() {
    let mut world = World::new();
    let session = world.session().await;
    world.script.opened().await.outlet.link_lost();
    let waiting: Vec<_> =
        (1..=10).map(|id| send(&session, runtime::request(id, "tools/list", &json!({})))).collect();
    let (mut opened, mut calls) = (0, 0);
    while calls < 10 {
        match world.script.next().await {
            BackendEvent::Opened(_) => opened += 1,
            BackendEvent::Call(call) => {
                calls += 1;
                call.answer(&json!({}));
            }
            BackendEvent::Heard(_) | BackendEvent::Closed => {}
        }
    }
    assert_eq!(opened, 1);
    for waiting in waiting {
        assert_eq!(json_of(waiting.await.unwrap())["result"], json!({}));
    }
}

#[tokio::test]
async fn a_request_that_waits_for_a_server_can_be_withdrawn_and_ends_with_the_session() {
    let mut world = World::new();
    let session = world.session().await;
    let link = world.script.opened().await;
    world.backend.set_opens(Opens::Hangs);
    link.outlet.link_lost();
    let first = send(&session, runtime::request(1, "tools/list", &json!({})));
    let second = send(&session, runtime::request(2, "tools/list", &json!({})));
    in_flight(&session, 2).await;
    cancel(&session, 1);
    assert!(matches!(timeout(A_WHILE, first).await.unwrap().unwrap(), Answer::Withdrawn));
    world.sessions.delete(session.id(), &Principal::ANONYMOUS).await.unwrap();
    let answer = json_of(timeout(A_WHILE, second).await.unwrap().unwrap());
    assert_eq!(answer["error"]["data"]["reason"], Reason::SessionDeleted.as_str(), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_a_server_has_no_more_time_than_others() {
    let limits = Limits { request_timeout: Duration::from_secs(2), ..Limits::default() };
    let mut world = World::with(Limits { json_wait: Duration::ZERO, ..limits });
    let session = world.session().await;
    let link = world.script.opened().await;
    world.backend.set_opens(Opens::Hangs);
    link.outlet.link_lost();
    let began = Instant::now();
    let answer = json_of(request(&session, 1, "tools/list").await.unwrap());
    assert_eq!(answer["error"]["data"]["reason"], Reason::TimedOut.as_str(), "{answer}");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[tokio::test]
async fn shutdown_does_not_wait_for_a_server_that_does_not_come_up() {
    let mut world = World::new();
    let session = world.session().await;
    let link = world.script.opened().await;
    world.backend.set_opens(Opens::Hangs);
    link.outlet.link_lost();
    let waiting = send(&session, runtime::request(1, "tools/list", &json!({})));
    in_flight(&session, 1).await;
    let began = Instant::now();
    assert_eq!(world.sessions.shut_down(Duration::from_millis(50)).await, 1);
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    let answer = json_of(waiting.await.unwrap());
    assert_eq!(answer["error"]["data"]["reason"], Reason::Interrupted.as_str(), "{answer}");
}

#[tokio::test]
async fn nothing_that_needs_no_server_starts_one() {
    let mut world = World::with(Limits { max_pending: 1, ..Limits::default() });
    let session = world.session().await;
    world.script.opened().await.outlet.link_lost();
    world.script.closed().await;
    assert_eq!(json_of(request(&session, 1, "ping").await.unwrap())["result"], json!({}));
    let refused = request(&session, 2, "initialize").await.unwrap_err();
    assert_eq!(refused.reason(), Reason::AlreadyInitialized);
    assert!(timeout(A_WHILE, world.script.next()).await.is_err());
    world.backend.set_opens(Opens::Hangs);
    let waiting = send(&session, runtime::request(3, "tools/list", &json!({})));
    in_flight(&session, 1).await;
    let refused = request(&session, 4, "tools/list").await.unwrap_err();
    assert_eq!(refused.reason(), Reason::TooManyRequests, "one that waits counts");
    cancel(&session, 3);
    waiting.await.unwrap();
    world.backend.set_opens(Opens::Well);
}

#[tokio::test]
async fn the_id_of_a_request_that_waits_for_a_server_is_taken() {
    let mut world = World::new();
    let session = world.session().await;
    let link = world.script.opened().await;
    world.backend.set_opens(Opens::Hangs);
    link.outlet.link_lost();
    let _waiting = send(&session, runtime::request(1, "tools/list", &json!({})));
    in_flight(&session, 1).await;
    let refused = request(&session, 1, "tools/list").await.unwrap_err();
    assert_eq!(refused.reason(), Reason::DuplicateRequestId);
}

#[tokio::test]
async fn the_requests_of_a_batch_wait_for_a_server_too() {
    let mut world = World::new();
    let session = runtime::session(&world.sessions, "2025-03-26").await;
    world.script.opened().await.outlet.link_lost();
    let batch = ["ping", "tools/list", "tools/list"].iter().zip(1..);
    let batch = batch.map(|(method, id)| Message::Request(runtime::request(id, method, &json!({}))));
    let caller = tenure_session::call::Caller::anonymous("test");
    let mut reader = reader_of(session.batch(batch.collect(), &caller).unwrap().unwrap());
    for _ in 0..2 {
        world.script.call().await.answer(&json!({}));
    }
    let mut answers = all(&mut reader).await;
    answers.sort();
    assert_eq!(answers, ["result 1", "result 2", "result 3"]);
}

/// A session that has said something, whose server was lost; what the next one hears up to the log level.
async fn relinking(world: &mut World) -> (Arc<Session>, NewLink, tenure_testkit::fake_backend::FakeCall) {
    let session = world.session().await;
    let link = world.script.opened().await;
    say(&session, &mut world.script, "resources/subscribe", &json!({ "uri": "x:1" })).await;
    say(&session, &mut world.script, "logging/setLevel", &json!({ "level": "error" })).await;
    link.outlet.link_lost();
    world.script.closed().await;
    let waiting = send(&session, runtime::request(1, "tools/list", &json!({})));
    let link = world.script.opened().await;
    let BackendEvent::Heard(told) = world.script.next().await else {
        panic!("first that the client is ready")
    };
    assert_eq!(told.method, Method::Initialized);
    let level = world.script.call().await;
    assert_eq!(level.request.method, Method::LoggingSetLevel);
    // The client hangs up.
    waiting.abort();
    drop(waiting.await);
    (session, link, level)
}

#[tokio::test]
async fn a_client_that_hangs_up_does_not_keep_the_new_server_from_what_the_last_one_knew() {
    let mut world = World::new();
    let (session, _link, level) = relinking(&mut world).await;
    // Nothing overtakes what the new server has to know first.
    let second = send(&session, runtime::request(2, "prompts/list", &json!({})));
    let early = timeout(A_WHILE, world.script.next()).await;
    assert!(early.is_err(), "{early:?}");
    level.answer(&json!({}));
    let watch = world.script.call().await;
    assert_eq!(watch.request.method, Method::ResourcesSubscribe);
    watch.answer(&json!({}));
    let mut asked = Vec::new();
    for _ in 0..2 {
        let call = world.script.call().await;
        asked.push(call.request.method.to_string());
        call.answer(&json!({}));
    }
    asked.sort();
    assert_eq!(asked, ["prompts/list", "tools/list"]);
    assert_eq!(json_of(second.await.unwrap())["result"], json!({}));
}

#[tokio::test]
async fn a_server_that_ends_while_it_is_told_what_the_last_one_knew_is_replaced_at_once() {
    let mut world = World::new();
    let (session, mut link, mut level) = relinking(&mut world).await;
    let second = send(&session, runtime::request(2, "prompts/list", &json!({})));
    in_flight(&session, 2).await;
    // Up to a limit: it may be what they are told that ends them.
    for _ in 0..2 {
        link.outlet.link_lost();
        drop(level);
        drop(world.script.call().await);
        link = world.script.opened().await;
        level = world.script.call().await;
        assert_eq!(level.request.method, Method::LoggingSetLevel);
    }
    link.outlet.link_lost();
    drop(level);
    drop(world.script.call().await);
    let answer = json_of(second.await.unwrap());
    assert_eq!(answer["error"]["data"]["reason"], Reason::BackendUnavailable.as_str(), "{answer}");
    let _third = send(&session, runtime::request(3, "prompts/list", &json!({})));
    world.script.opened().await;
    assert_eq!(world.script.call().await.request.method, Method::LoggingSetLevel);
}

#[tokio::test]
async fn a_safe_request_outlives_a_few_servers_that_die_one_after_the_other_and_no_more() {
    let mut world = World::new();
    let session = world.session().await;
    let mut link = world.script.opened().await;
    for is_poison in [false, true] {
        let waiting = send(&session, runtime::request(1, "tools/list", &json!({})));
        for _ in 0..3 {
            let call = world.script.call().await;
            link.outlet.link_lost();
            call.end(Err(RpcError::of(Reason::BackendUnavailable, "gone")));
            link = world.script.opened().await;
        }
        let last = world.script.call().await;
        if is_poison {
            link.outlet.link_lost();
            last.end(Err(RpcError::of(Reason::BackendUnavailable, "gone")));
        } else {
            last.answer(&json!({}));
        }
        let answer = json_of(waiting.await.unwrap());
        assert_eq!(answer["error"].is_object(), is_poison, "{answer}");
    }
}

#[tokio::test]
async fn what_was_said_to_the_second_server_the_third_one_hears() {
    for (method, params, first_heard) in [
        ("resources/subscribe", json!({ "uri": "x:1" }), Method::ResourcesSubscribe),
        ("logging/setLevel", json!({ "level": "error" }), Method::LoggingSetLevel),
        ("tools/list", json!({}), Method::PromptsList),
    ] {
        let mut world = World::new();
        let session = world.session().await;
        let link = world.script.opened().await;
        let waiting = send(&session, runtime::request(1, method, &params));
        let call = world.script.call().await;
        link.outlet.link_lost();
        drop(call);
        let link = world.script.opened().await;
        let again = world.script.call().await;
        assert_eq!(again.request.method.to_string(), method);
        again.answer(&json!({}));
        assert_eq!(json_of(waiting.await.unwrap())["result"], json!({}));
        link.outlet.link_lost();
        let _next = send(&session, runtime::request(2, "prompts/list", &json!({})));
        world.script.opened().await;
        assert_eq!(world.script.call().await.request.method, first_heard, "{method}");
    }
}

#[tokio::test]
async fn a_request_that_was_withdrawn_is_not_sent_to_the_next_server() {
    let mut world = World::new();
    let session = world.session().await;
    let link = world.script.opened().await;
    say(&session, &mut world.script, "logging/setLevel", &json!({ "level": "error" })).await;
    let sent = send(&session, runtime::request(1, "resources/unsubscribe", &json!({ "uri": "x:9" })));
    let call = world.script.call().await;
    link.outlet.link_lost();
    drop(call);
    world.script.opened().await;
    let level = world.script.call().await;
    let waits = send(&session, runtime::request(2, "tools/list", &json!({})));
    in_flight(&session, 2).await;
    for id in [1, 2] {
        cancel(&session, id);
    }
    for withdrawn in [sent, waits] {
        assert!(matches!(withdrawn.await.unwrap(), Answer::Withdrawn));
    }
    level.answer(&json!({}));
    let next = timeout(A_WHILE, world.script.call()).await;
    assert!(next.is_err(), "sent all the same: {next:?}");
}

/// A backend that opens nothing until it may.
struct Gate(Arc<FakeBackend>, Arc<Semaphore>);

impl Backend for Gate {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let (backend, gate) = (Arc::clone(&self.0), Arc::clone(&self.1));
        Box::pin(async move {
            let _pass = gate.acquire().await;
            backend.open(open).await
        })
    }
}

/// A session with a request that waits for a server, which comes up when the gate is opened.
async fn at_the_gate() -> (Sessions, Script, Arc<Session>, Arc<Semaphore>) {
    let (backend, mut script) = FakeBackend::new();
    let gate = Arc::new(Semaphore::new(1));
    let backend = Arc::new(Gate(backend, Arc::clone(&gate)));
    let sessions = runtime::start(Arc::new(Memory::new()), backend, Limits::default());
    let session = runtime::session(&sessions, "2025-11-25").await;
    script.opened().await.outlet.link_lost();
    script.closed().await;
    gate.forget_permits(1);
    let _waiting = send(&session, runtime::request(1, "tools/list", &json!({})));
    in_flight(&session, 1).await;
    (sessions, script, session, gate)
}

#[tokio::test]
async fn a_server_that_comes_up_when_its_session_has_ended_is_let_go() {
    let (sessions, mut script, session, gate) = at_the_gate().await;
    // The request has begun to wait.
    tokio::time::sleep(Duration::from_millis(20)).await;
    sessions.delete(session.id(), &Principal::ANONYMOUS).await.unwrap();
    gate.add_permits(1);
    script.opened().await;
    script.closed().await;
}

#[tokio::test]
async fn requests_that_are_taken_up_after_a_restart_go_to_the_server_that_is_there() {
    let mut world = World::new();
    let old = world.session().await;
    let mut ids = Vec::new();
    let reads = [("tools/call", json!({ "name": "look" })), ("resources/read", json!({ "uri": "test://a" }))];
    for (id, (method, params)) in reads.iter().enumerate() {
        let waiting = send(&old, runtime::request(id as u64, method, params));
        let call = world.script.call().await;
        support::say(&call, "hello").await;
        ids.push(support::next(&mut reader_of(waiting.await.unwrap())).await.0);
        std::mem::forget(call);
    }
    let mut world = world.killed(Limits::default());
    let session = world.find(&old).await.unwrap();
    let first = world.script.opened().await;
    let hints = world.script.call().await;
    assert_eq!((hints.link, &hints.request.method), (1, &Method::ToolsList));
    // The server is lost while it is asked which tools may be called twice, and another takes its place.
    first.outlet.link_lost();
    let waiting = send(&session, runtime::request(9, "prompts/list", &json!({})));
    let other = world.script.call().await;
    assert_eq!(other.link, 2);
    other.answer(&json!({}));
    waiting.await.unwrap();
    hints.end(Err(RpcError::of(Reason::BackendUnavailable, "gone")));
    let serve = async {
        let tools = json!({ "tools": [{ "name": "look", "annotations": { "readOnlyHint": true } }] });
        loop {
            let call = world.script.call().await;
            assert_eq!(call.link, 2, "{:?}", call.request);
            call.answer(&tools);
        }
    };
    let read = async {
        for (id, after) in ids.iter().enumerate() {
            let mut resumed = support::resume(&session, after).await.unwrap();
            assert_eq!(all(&mut resumed).await, ["prime".to_owned(), format!("result {id}")]);
        }
    };
    tokio::select! {
        () = read => {}
        () = serve => {}
    }
}
