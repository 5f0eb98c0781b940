//! A stop is never worse than a kill: what is safe to repeat is left to the next process, the rest is waited for.

use std::task::Poll;
use std::time::Duration;

use serde_json::json;
use tenure_protocol::{Message, Method, Notification, RawJson, Reason, Response};
use tenure_session::call::{Caller, Collect};
use tenure_session::session::{Answer, Item};
use tenure_session::{Limits, Principal};
use tenure_testkit::fake_backend::FakeCall;
use tenure_testkit::runtime::{self, event, json_of, reader_of, send};
use tokio::task::JoinHandle;

use crate::runtime::support::{World, all, next, request, resume, say, settle};

const LONG: Duration = Duration::from_secs(3600);

fn lasting() -> World {
    lasting_with(Limits::default())
}

fn lasting_with(limits: Limits) -> World {
    let world = World::with(limits);
    world.store.set_lasting();
    world
}

/// Stops a world with all the time that it wants.
fn stop(world: &World) -> JoinHandle<usize> {
    stop_within(world, LONG)
}

fn stop_within(world: &World, grace: Duration) -> JoinHandle<usize> {
    let sessions = world.sessions.clone();
    tokio::spawn(async move {
        sessions.drain();
        sessions.calm(grace).await;
        sessions.shut_down(grace).await
    })
}

/// The next process on the same store.
fn next_process(world: World) -> World {
    let world = world.killed(Limits::default());
    world.store.set_lasting();
    world
}

fn tool(id: u64, name: &str) -> tenure_protocol::Request {
    runtime::request(id, "tools/call", &json!({ "name": name }))
}

/// Answers the question which tools may be called twice.
async fn list_tools(world: &mut World) {
    let list = world.script.call().await;
    assert_eq!(list.request.method, Method::ToolsList);
    list.answer(&json!({ "tools": [
        { "name": "look", "annotations": { "readOnlyHint": true } },
        { "name": "pay" },
    ] }));
}

async fn streaming(
    world: &mut World,
    session: &std::sync::Arc<tenure_session::Session>,
    call: tenure_protocol::Request,
) -> (FakeCall, tenure_session::Reader, String) {
    let waiting = send(session, call);
    let call = world.script.call().await;
    say(&call, "hello").await;
    let mut reader = reader_of(waiting.await.unwrap());
    let (id, _) = next(&mut reader).await;
    (call, reader, id)
}

#[tokio::test]
async fn a_safe_call_is_left_open_and_finishes_in_the_next_process() {
    let mut world = lasting();
    let session = world.session().await;
    let (call, mut reader, id) = streaming(&mut world, &session, tool(1, "look")).await;
    let stopping = stop(&world);
    list_tools(&mut world).await;
    assert_eq!(all(&mut reader).await, ["close"], "no answer, and a word when to come back");
    assert_eq!(stopping.await.unwrap(), 0, "nothing was interrupted");
    drop(call);
    let mut world = next_process(world);
    let session = world.find(&session).await.unwrap();
    list_tools(&mut world).await;
    let call = world.script.call().await;
    assert_eq!(call.request.method, Method::ToolsCall);
    call.answer(&json!({}));
    let mut resumed = resume(&session, &id).await.unwrap();
    assert_eq!(all(&mut resumed).await, ["prime", "result 1"]);
}

#[tokio::test(start_paused = true)]
async fn the_word_when_to_come_back_is_that_of_a_stop() {
    let limits = Limits {
        retry_jitter: tenure_session::limits::Jitter::NONE,
        stop_retry: Duration::from_secs(7),
        ..Limits::default()
    };
    for (is_handed_over, seconds) in [(false, 7), (true, 1)] {
        let world = lasting_with(limits.clone());
        let session = world.session().await;
        let mut news = session.listen(None).await.unwrap();
        assert!(matches!(news.next().await, Some(Item::Prime(_))));
        if is_handed_over {
            world.sessions.hand_over();
        }
        assert_eq!(world.sessions.shut_down(LONG).await, 0);
        assert_eq!(news.next().await, Some(Item::Close(Duration::from_secs(seconds))));
        assert_eq!(news.next().await, None);
    }
}

#[tokio::test]
async fn a_call_that_cannot_be_repeated_is_waited_for_and_everything_else_is_served() {
    let mut world = lasting();
    let session = world.session().await;
    let (call, mut reader, _) = streaming(&mut world, &session, tool(1, "pay")).await;
    let mut news = session.listen(None).await.unwrap();
    let stopping = stop(&world);
    list_tools(&mut world).await;
    // The server goes on asking, and its client answering.
    let asking = {
        let context = call.context.clone();
        tokio::spawn(async move { context.ask(&Method::Ping, None).await })
    };
    let (_, asked) = event(&mut reader).await.unwrap();
    let id = tenure_protocol::RequestId::from_text(asked["id"].as_str().unwrap());
    session.response(Response { id, outcome: Ok(RawJson::EMPTY_OBJECT) }).unwrap();
    assert!(asking.await.unwrap().is_ok());
    // Requests are served, and streams are read.
    let quick = send(&session, runtime::request(2, "resources/list", &json!({})));
    world.script.call().await.answer(&json!({}));
    assert!(json_of(quick.await.unwrap())["result"].is_object());
    assert!(matches!(news.next().await, Some(Item::Prime(_))));
    let initialize = runtime::request(0, "initialize", &runtime::initialize("2025-11-25"));
    let refused = world.sessions.create(initialize, &Principal::ANONYMOUS).await;
    assert_eq!(refused.unwrap_err().reason(), Reason::Draining);
    assert!(!world.sessions.is_ready());
    assert!(!stopping.is_finished());
    call.answer(&json!({}));
    assert_eq!(all(&mut reader).await, ["result 1"]);
    assert_eq!(all(&mut news).await, ["close"]);
    assert_eq!(stopping.await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_repeated_ends_with_the_grace_and_its_client_is_told_in_the_next_process() {
    let mut world = lasting();
    let session = world.session().await;
    let (_pay, mut reader, id) = streaming(&mut world, &session, tool(1, "pay")).await;
    let (_look, mut safe, _) = streaming(&mut world, &session, tool(2, "look")).await;
    let stopping = stop_within(&world, Duration::from_secs(1));
    list_tools(&mut world).await;
    assert_eq!(stopping.await.unwrap(), 1);
    assert_eq!(all(&mut reader).await, ["error 1 interrupted"]);
    assert_eq!(all(&mut safe).await, ["close"]);
    let world = next_process(world);
    let session = world.find(&session).await.unwrap();
    let mut resumed = resume(&session, &id).await.unwrap();
    assert_eq!(all(&mut resumed).await, ["prime", "error 1 interrupted"]);
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_not_closed_in_front_of_an_answer_that_is_on_its_way_into_the_log() {
    let mut world = lasting();
    let session = world.session().await;
    let (_pay, mut reader, _) = streaming(&mut world, &session, tool(1, "pay")).await;
    world.store.hold_appends();
    let stopping = stop_within(&world, Duration::from_millis(1));
    list_tools(&mut world).await;
    let reading = tokio::spawn(async move { all(&mut reader).await });
    settle().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.store.release_appends();
    assert_eq!(reading.await.unwrap(), ["error 1 interrupted"]);
    assert_eq!(stopping.await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn where_the_server_does_not_say_whether_it_may_be_repeated_the_next_one_is_asked() {
    let mut world = lasting();
    let session = world.session().await;
    let (_call, mut reader, id) = streaming(&mut world, &session, tool(1, "look")).await;
    let stopping = stop_within(&world, Duration::from_secs(1));
    let _unanswered = world.script.call().await;
    assert_eq!(stopping.await.unwrap(), 0);
    assert_eq!(all(&mut reader).await, ["close"]);
    let mut world = next_process(world);
    let session = world.find(&session).await.unwrap();
    list_tools(&mut world).await;
    world.script.call().await.answer(&json!({}));
    let mut resumed = resume(&session, &id).await.unwrap();
    assert_eq!(all(&mut resumed).await, ["prime", "result 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_safe_request_whose_client_waits_for_json_becomes_a_stream_to_come_back_to() {
    let mut world = lasting_with(Limits { json_wait: LONG, ..Limits::default() });
    let session = world.session().await;
    let waiting = send(&session, runtime::request(1, "resources/read", &json!({ "uri": "test://a" })));
    let _call = world.script.call().await;
    let stopping = stop(&world);
    let mut reader = reader_of(waiting.await.unwrap());
    let Some(Item::Prime(id)) = reader.next().await else { panic!("a place to come back to") };
    assert_eq!(all(&mut reader).await, ["close"]);
    assert_eq!(stopping.await.unwrap(), 0);
    let mut world = next_process(world);
    let session = world.find(&session).await.unwrap();
    world.script.call().await.answer(&json!({}));
    let mut resumed = resume(&session, &id.to_string()).await.unwrap();
    assert_eq!(all(&mut resumed).await, ["prime", "result 1"]);
}

#[tokio::test]
async fn a_quick_answer_is_waited_for_and_stays_json() {
    let mut world = lasting();
    let session = world.session().await;
    let waiting = send(&session, runtime::request(1, "resources/list", &json!({})));
    let call = world.script.call().await;
    let stopping = stop(&world);
    settle().await;
    call.answer(&json!({}));
    assert!(matches!(waiting.await.unwrap(), Answer::Json(_)));
    assert_eq!(stopping.await.unwrap(), 0);
}

#[tokio::test]
async fn a_request_of_the_last_moment_is_held_and_run_by_the_next_process_whatever_it_does() {
    let mut world = lasting();
    let session = world.session().await;
    let (late, _reader, _) = streaming(&mut world, &session, tool(1, "pay")).await;
    let sessions = world.sessions.clone();
    let stopping = tokio::spawn(async move { sessions.shut_down(LONG).await });
    list_tools(&mut world).await;
    // The old process waits for the first call, and begins no other.
    let Answer::Stream(mut reader) =
        session.request(tool(2, "pay"), Caller::anonymous("test")).await.unwrap()
    else {
        panic!("a stream")
    };
    let Some(Item::Prime(id)) = reader.next().await else { panic!("a place to come back to") };
    assert_eq!(all(&mut reader).await, ["close"]);
    late.answer(&json!({}));
    assert_eq!(stopping.await.unwrap(), 0);
    let mut world = next_process(world);
    let session = world.find(&session).await.unwrap();
    let call = world.script.call().await;
    assert_eq!(call.request.method, Method::ToolsCall, "the tool's hints do not matter");
    assert_eq!(call.request.params.as_ref().unwrap().bytes(), &r#"{"name":"pay"}"#);
    // From here on it has begun: a kill ends it like any other.
    let mut world = next_process(world);
    let session = world.find(&session).await.unwrap();
    let mut resumed = resume(&session, &id.to_string()).await.unwrap();
    list_tools(&mut world).await;
    assert_eq!(all(&mut resumed).await, ["prime", "error 2 interrupted"]);
    drop(call);
}

#[tokio::test]
async fn a_call_that_comes_during_a_stop_and_may_not_be_repeated_is_begun_by_the_next_process() {
    let mut world = lasting();
    let (session, other) = (world.session().await, world.session().await);
    let (call, mut reader, _) = streaming(&mut world, &session, tool(1, "pay")).await;
    let stopping = stop(&world);
    list_tools(&mut world).await;
    settle().await;
    // One that began now could be cut off, though it is shorter than the grace.
    let mut held = reader_of(session.request(tool(2, "pay"), Caller::anonymous("test")).await.unwrap());
    let Some(Item::Prime(id)) = held.next().await else { panic!("an id to come back with") };
    // Repeatable requests are served, also if the server was asked because of another session.
    for session in [&session, &other] {
        let quick = send(session, tool(3, "look"));
        world.script.call().await.answer(&json!({}));
        assert!(json_of(quick.await.unwrap())["result"].is_object());
    }
    call.answer(&json!({}));
    assert_eq!(all(&mut reader).await, ["result 1"]);
    assert_eq!(all(&mut held).await, ["close"], "when this process is about to end, and not before");
    assert_eq!(stopping.await.unwrap(), 0);
    let mut world = next_process(world);
    let session = world.find(&session).await.unwrap();
    // The server is not asked whether it may be repeated: no server has seen it.
    let begun = world.script.call().await;
    assert_eq!(begun.request.method, Method::ToolsCall);
    begun.answer(&json!({}));
    let mut resumed = resume(&session, &id.to_string()).await.unwrap();
    assert_eq!(all(&mut resumed).await, ["prime", "result 2"]);
}

#[tokio::test]
async fn a_request_that_is_held_can_be_withdrawn() {
    let mut world = lasting();
    let session = world.session().await;
    let (late, _reader, _) = streaming(&mut world, &session, tool(1, "pay")).await;
    let sessions = world.sessions.clone();
    let stopping = tokio::spawn(async move { sessions.shut_down(LONG).await });
    list_tools(&mut world).await;
    let answer = session.request(tool(2, "pay"), Caller::anonymous("test")).await.unwrap();
    let mut reader = reader_of(answer);
    let Some(Item::Prime(id)) = reader.next().await else { panic!("a place to come back to") };
    let params = RawJson::of(&json!({ "requestId": 2 }));
    session.notification(Notification { method: Method::Cancelled, params: Some(params) }).unwrap();
    late.answer(&json!({}));
    assert_eq!(stopping.await.unwrap(), 0);
    let world = next_process(world);
    let session = world.find(&session).await.unwrap();
    assert!(session.info().calls.is_empty());
    let mut resumed = resume(&session, &id.to_string()).await.unwrap();
    assert_eq!(all(&mut resumed).await, ["prime"]);
}

#[tokio::test]
async fn a_client_that_cannot_come_back_is_waited_for() {
    for (revision, collect) in [("2025-06-18", Collect::Resumes), ("2025-11-25", Collect::Here)] {
        let mut world = lasting();
        let session = runtime::session(&world.sessions, revision).await;
        let asked = runtime::request(1, "resources/list", &json!({}));
        let caller = Caller { collect, ..Caller::anonymous("test") };
        let waiting = {
            let session = session.clone();
            tokio::spawn(async move { session.request(asked, caller).await.unwrap() })
        };
        let call = world.script.call().await;
        // It is late, and so a stream; nothing was said on it.
        let mut reader = reader_of(waiting.await.unwrap());
        let stopping = stop(&world);
        settle().await;
        assert!(!stopping.is_finished(), "{revision}");
        call.answer(&json!({}));
        let heard = all(&mut reader).await;
        assert_eq!(heard.last().unwrap(), "result 1", "{revision}");
        assert_eq!(stopping.await.unwrap(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn where_nothing_outlives_the_process_everything_is_waited_for() {
    let mut world = World::new();
    let session = world.session().await;
    let waiting = send(&session, runtime::request(1, "resources/list", &json!({})));
    let call = world.script.call().await;
    let mut reader = reader_of(waiting.await.unwrap());
    let stopping = stop(&world);
    settle().await;
    assert!(!stopping.is_finished());
    call.answer(&json!({}));
    assert_eq!(all(&mut reader).await, ["prime", "result 1"]);
    assert_eq!(stopping.await.unwrap(), 0);
}

#[tokio::test]
async fn of_a_batch_what_is_safe_is_left_and_the_rest_is_waited_for() {
    let mut world = lasting();
    let session = runtime::session(&world.sessions, "2025-03-26").await;
    let batch = vec![Message::Request(tool(1, "pay")), Message::Request(tool(2, "look"))];
    let answer = session.batch(batch, &Caller::anonymous("test")).unwrap().unwrap();
    let mut reader = reader_of(answer);
    let (first, second) = (world.script.call().await, world.script.call().await);
    let (pay, look) = if first.request.params.as_ref().unwrap().bytes() == r#"{"name":"pay"}"# {
        (first, second)
    } else {
        (second, first)
    };
    // With an id to come back to: this revision has none of its own.
    say(&look, "hello").await;
    let (id, _) = next(&mut reader).await;
    let stopping = stop(&world);
    list_tools(&mut world).await;
    settle().await;
    assert!(!stopping.is_finished());
    pay.answer(&json!({}));
    assert_eq!(all(&mut reader).await, ["result 1", "close"]);
    assert_eq!(stopping.await.unwrap(), 0);
    drop(look);
    let mut world = next_process(world);
    let session = world.find(&session).await.unwrap();
    list_tools(&mut world).await;
    world.script.call().await.answer(&json!({}));
    let mut resumed = resume(&session, &id).await.unwrap();
    assert_eq!(all(&mut resumed).await, ["result 1", "result 2"]);
}

#[tokio::test]
async fn a_client_that_comes_back_to_a_process_that_has_left_is_sent_to_the_next_one() {
    let mut world = lasting();
    let session = world.session().await;
    let (_call, mut reader, id) =
        streaming(&mut world, &session, runtime::request(1, "resources/list", &json!({}))).await;
    assert_eq!(world.sessions.shut_down(LONG).await, 0);
    assert_eq!(all(&mut reader).await, ["close"]);
    // The store is closed by now: nothing may be read, or the client would hear of a gap.
    world.store.set_broken(true);
    let mut resumed = resume(&session, &id).await.unwrap();
    assert_eq!(all(&mut resumed).await, ["prime", "close"]);
    world.store.set_broken(false);
    let mut world = next_process(world);
    let session = world.find(&session).await.unwrap();
    world.script.call().await.answer(&json!({}));
    let mut resumed = resume(&session, &id).await.unwrap();
    assert_eq!(all(&mut resumed).await, ["prime", "result 1"]);
}

#[tokio::test]
async fn a_hand_over_takes_new_sessions_and_a_dormant_one_is_woken_meanwhile() {
    let mut world = lasting();
    let session = world.session().await;
    let (call, _reader, _) = streaming(&mut world, &session, tool(1, "pay")).await;
    world.sessions.hand_over();
    list_tools(&mut world).await;
    assert!(world.sessions.is_ready());
    let fresh = world.session().await;
    assert!(request(&fresh, 1, "ping").await.is_ok());
    call.answer(&json!({}));
    assert_eq!(world.sessions.shut_down(LONG).await, 0);
    let world = next_process(world);
    world.sessions.drain();
    let woken = world.sessions.find(fresh.id(), &Principal::ANONYMOUS).await.unwrap();
    assert!(request(&woken, 2, "ping").await.is_ok());
}

#[tokio::test]
async fn a_request_that_was_withdrawn_gets_no_answer_from_a_stop_or_an_end_that_comes_right_after() {
    for ends in [true, false] {
        let mut world = lasting();
        let session = world.session().await;
        let mut waiting = Box::pin(session.request(tool(1, "pay"), Caller::anonymous("test")));
        let polled = std::future::poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
        let _call = world.script.call().await;
        let params = RawJson::of(&json!({ "requestId": 1 }));
        session.notification(Notification { method: Method::Cancelled, params: Some(params) }).unwrap();
        // The connection that waits is not asked before the process or the session has ended.
        match ends {
            true => world.sessions.delete(session.id(), &Principal::ANONYMOUS).await.unwrap(),
            false => assert_eq!(world.sessions.shut_down(Duration::ZERO).await, 0),
        }
        let answer = waiting.await.unwrap();
        assert!(matches!(answer, Answer::Withdrawn), "{answer:?}");
    }
}
