//! Requests of the client: answered as JSON or as a stream, timed out, withdrawn, kept apart.

use std::time::Duration;

use serde_json::json;
use tenure_protocol::{Message, Method, Notification, RawJson, Reason};
use tenure_session::call::Caller;
use tenure_session::{Answer, Limits};
use tenure_testkit::runtime::{self, event, json_of, reader_of, send};

use crate::runtime::support::{World, all, next, request, say};

#[tokio::test]
async fn a_fast_answer_is_json_and_writes_no_event() {
    let mut world = World::new();
    let session = world.session().await;
    let waiting = send(&session, runtime::request(7, "tools/call", &json!({ "name": "x" })));
    let call = world.script.call().await;
    assert_eq!(call.request.params.as_ref().unwrap().bytes(), &r#"{"name":"x"}"#);
    call.answer(&json!({ "n": 1 }));
    assert_eq!(json_of(waiting.await.unwrap()), json!({ "jsonrpc": "2.0", "id": 7, "result": { "n": 1 } }));
    assert_eq!(session.info().events, 0);
}

#[tokio::test]
async fn a_backends_error_passes_through_unchanged() {
    let mut world = World::new();
    let session = world.session().await;
    let waiting = send(&session, runtime::request(1, "tools/call", &json!({})));
    world.script.call().await.fail(-32042, "custom");
    assert_eq!(json_of(waiting.await.unwrap())["error"], json!({ "code": -32042, "message": "custom" }));
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_becomes_a_stream() {
    let mut world = World::new();
    let session = world.session().await;
    let waiting = send(&session, runtime::request(1, "tools/call", &json!({})));
    let call = world.script.call().await;
    // Nothing is said; after `json_wait` the client gets a stream it can resume.
    let mut reader = reader_of(waiting.await.unwrap());
    call.answer(&json!({}));
    assert_eq!(all(&mut reader).await, ["prime", "result 1"]);
}

#[tokio::test]
async fn a_message_before_the_answer_makes_a_stream() {
    let mut world = World::new();
    let session = world.session().await;
    let (call, mut reader) = world.streaming_call(&session, 1).await;
    say(&call, "again").await;
    call.answer(&json!({}));
    assert_eq!(all(&mut reader).await, ["prime", "hello", "again", "result 1"]);
}

#[tokio::test]
async fn old_revisions_are_not_primed() {
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18"] {
        let mut world = World::new();
        let session = runtime::session(&world.sessions, revision).await;
        let (call, mut reader) = world.streaming_call(&session, 1).await;
        // They cannot be told to poll either.
        call.context.close_connection();
        call.answer(&json!({}));
        assert_eq!(all(&mut reader).await, ["hello", "result 1"], "{revision}");
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_has_cancelled_nothing() {
    let mut world = World::new();
    let session = world.session().await;
    let waiting = send(&session, runtime::request(1, "resources/subscribe", &json!({ "uri": "a://b" })));
    let call = world.script.call().await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    assert!(!call.context.is_cancelled());
    call.answer(&json!({}));
    // The work was done, also for the session's own books.
    while session.info().subscriptions.is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_withdrawn_request_stops_and_is_not_answered() {
    let mut world = World::new();
    let session = world.session().await;
    let waiting = send(&session, runtime::request(1, "tools/call", &json!({})));
    let first = world.script.call().await;
    let (second, mut reader) = world.streaming_call(&session, 2).await;
    for id in [1, 2] {
        let params = Some(RawJson::of(&json!({ "requestId": id, "reason": "changed my mind" })));
        session.notification(Notification { method: Method::Cancelled, params }).unwrap();
    }
    first.context.cancelled().await;
    second.context.cancelled().await;
    assert!(matches!(waiting.await.unwrap(), Answer::Withdrawn));
    assert_eq!(all(&mut reader).await, ["prime", "hello"]);
    first.answer(&json!({ "late": true }));
    second.answer(&json!({ "late": true }));
    assert!(session.info().calls.is_empty());
}

#[tokio::test]
async fn cancelling_what_is_not_in_flight_is_ignored() {
    let mut world = World::new();
    let session = world.session().await;
    for params in [None, Some(r#"{"requestId":99}"#), Some(r#"{"requestId":{}}"#), Some("{}")] {
        let params = params.map(RawJson::trusted);
        session.notification(Notification { method: Method::Cancelled, params }).unwrap();
    }
    let waiting = send(&session, runtime::request(1, "tools/call", &json!({})));
    world.script.call().await.answer(&json!({}));
    json_of(waiting.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_request_without_answer_times_out_and_its_handler_is_told() {
    let limits = Limits { request_timeout: Duration::from_secs(5), ..Limits::default() };
    let mut world = World::with(limits);
    let session = world.session().await;
    let waiting = send(&session, runtime::request(1, "tools/call", &json!({})));
    let call = world.script.call().await;
    let cancelled = call.context.cancellation();
    let mut reader = reader_of(waiting.await.unwrap());
    assert_eq!(all(&mut reader).await, ["prime", "error 1 timed_out"]);
    assert!(cancelled.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn progress_extends_a_timeout_up_to_a_hard_end() {
    let limits = Limits {
        request_timeout: Duration::from_secs(5),
        max_request_time: Duration::from_secs(12),
        ..Limits::default()
    };
    let mut world = World::with(limits);
    let session = world.session().await;
    let params = json!({ "_meta": { "progressToken": "p" } });
    let waiting = send(&session, runtime::request(1, "tools/call", &params));
    let call = world.script.call().await;
    let mut reader = reader_of(waiting.await.unwrap());
    let started = tokio::time::Instant::now();
    let reports = tokio::spawn(async move {
        let mut step = 0.0;
        while call.context.progress(step, None, None).await.is_ok() {
            step += 1.0;
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
        step
    });
    let mut last = None;
    while let Some((_, message)) = event(&mut reader).await {
        last = Some(message);
    }
    assert_eq!(last.unwrap()["error"]["data"]["reason"], "timed_out");
    let lasted = started.elapsed().as_secs_f32();
    assert!((11.0..13.0).contains(&lasted), "lasted {lasted} s");
    assert!(reports.await.unwrap() >= 4.0);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_counts_the_time_that_passes_and_not_the_time_of_day() {
    let day = Duration::from_secs(24 * 60 * 60);
    let limits = Limits::default();
    let turns: [fn(&tenure_testkit::clock::TurnableClock, Duration); 2] =
        [|clock, by| clock.set_back(by), |clock, by| clock.set_ahead(by)];
    for turn in turns {
        let mut world = World::with(Limits { idle_ttl: None, max_lifetime: None, ..limits.clone() });
        let session = world.session().await;
        let began = tokio::time::Instant::now();
        let params = json!({ "_meta": { "progressToken": "p" } });
        let waiting = send(&session, runtime::request(1, "tools/call", &params));
        let call = world.script.call().await;
        let mut reader = reader_of(waiting.await.unwrap());
        turn(&world.clock, day);
        tokio::time::sleep(limits.request_timeout / 2).await;
        call.context.progress(1.0, None, None).await.unwrap();
        turn(&world.clock, day);
        let items = tokio::time::timeout(2 * limits.request_timeout, all(&mut reader)).await.unwrap();
        assert_eq!(items.last().unwrap(), "error 1 timed_out");
        let took = began.elapsed();
        assert!(took >= limits.request_timeout * 3 / 2, "{took:?}");
        assert!(took < limits.request_timeout * 3 / 2 + Duration::from_secs(1), "{took:?}");
    }
}

#[tokio::test]
async fn a_panic_in_a_backend_is_an_error_and_nothing_else() {
    let mut world = World::new();
    let session = world.session().await;
    let answer = json_of(request(&session, 1, "test/panic").await.unwrap());
    assert_eq!(answer["error"]["data"]["reason"], "internal");
    let waiting = send(&session, runtime::request(2, "tools/call", &json!({})));
    world.script.call().await.answer(&json!({}));
    json_of(waiting.await.unwrap());
}

#[tokio::test]
async fn an_id_in_flight_cannot_be_used_again_until_it_is_answered() {
    let mut world = World::new();
    let session = world.session().await;
    let waiting = send(&session, runtime::request(1, "tools/call", &json!({})));
    let call = world.script.call().await;
    assert_eq!(request(&session, 1, "tools/list").await.unwrap_err().reason(), Reason::DuplicateRequestId);
    call.answer(&json!({}));
    json_of(waiting.await.unwrap());
    let again = send(&session, runtime::request(1, "tools/call", &json!({})));
    world.script.call().await.answer(&json!({}));
    json_of(again.await.unwrap());
}

#[tokio::test]
async fn two_sessions_with_the_same_request_ids_never_meet() {
    let mut world = World::new();
    let (one, two) = (world.session().await, world.session().await);
    let (first, mut first_reader) = world.streaming_call(&one, 1).await;
    let (second, mut second_reader) = world.streaming_call(&two, 1).await;
    let params = Some(RawJson::trusted(r#"{"requestId":1}"#));
    one.notification(Notification { method: Method::Cancelled, params }).unwrap();
    assert!(first.context.is_cancelled() && !second.context.is_cancelled());
    say(&second, "mine").await;
    second.answer(&json!({}));
    assert_eq!(all(&mut first_reader).await, ["prime", "hello"]);
    assert_eq!(all(&mut second_reader).await, ["prime", "hello", "mine", "result 1"]);
}

#[tokio::test]
async fn a_batch_is_answered_on_one_stream() {
    let mut world = World::new();
    let session = runtime::session(&world.sessions, "2025-03-26").await;
    let one = Message::Request(runtime::request(1, "tools/call", &json!({})));
    let two = Message::Request(runtime::request(2, "ping", &json!({})));
    let heard = Message::Notification(Notification { method: Method::RootsListChanged, params: None });
    let three = Message::Request(runtime::request(3, "tools/call", &json!({})));
    let answer = session.batch(vec![one, two, heard.clone(), three], &Caller::anonymous("test")).unwrap();
    let mut reader = reader_of(answer.unwrap());
    let (first, second) = (world.script.call().await, world.script.call().await);
    second.answer(&json!({}));
    first.answer(&json!({}));
    let mut answers = all(&mut reader).await;
    answers.sort_unstable();
    assert_eq!(answers, ["result 1", "result 2", "result 3"]);
    assert!(session.batch(vec![heard], &Caller::anonymous("test")).unwrap().is_none());
}

#[tokio::test]
async fn a_connection_closed_early_is_polled_for_the_answer() {
    let mut world = World::new();
    let session = world.session().await;
    let waiting = send(&session, runtime::request(1, "tools/call", &json!({})));
    let call = world.script.call().await;
    call.context.close_connection();
    let mut reader = reader_of(waiting.await.unwrap());
    let tenure_session::session::Item::Prime(id) = reader.next().await.unwrap() else { panic!("a prime") };
    assert_eq!(all(&mut reader).await, ["close"]);
    drop(reader);
    call.answer(&json!({}));
    let mut resumed = crate::runtime::support::resume(&session, &id.to_string()).await.unwrap();
    assert_eq!(next(&mut resumed).await.1, "result 1");
}

#[tokio::test]
async fn levels_filter_log_messages() {
    let mut world = World::new();
    let session = world.session().await;
    let waiting = send(&session, runtime::request(1, "logging/setLevel", &json!({ "level": "warning" })));
    world.script.call().await.answer(&json!({}));
    json_of(waiting.await.unwrap());
    let waiting = send(&session, runtime::request(2, "tools/call", &json!({})));
    let call = world.script.call().await;
    for level in ["debug", "info", "warning", "error"] {
        let params = RawJson::of(&json!({ "level": level, "data": level }));
        call.context.notify(&Method::LogMessage, Some(&params)).await.unwrap();
    }
    call.answer(&json!({}));
    assert_eq!(all(&mut reader_of(waiting.await.unwrap())).await, ["prime", "warning", "error", "result 2"]);
}

#[tokio::test]
async fn a_context_tells_who_asked_and_how() {
    let mut world = World::new();
    let session = world.session().await;
    let mut caller = Caller::anonymous("https");
    caller.remote = Some("127.0.0.1:4711".parse().unwrap());
    caller.traceparent = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into());
    let waiting = {
        let (session, request) = (session.clone(), runtime::request(5, "tools/call", &json!({})));
        tokio::spawn(async move { session.request(request, caller).await.unwrap() })
    };
    let call = world.script.call().await;
    let context = &call.context;
    assert_eq!(context.caller().transport, "https");
    assert_eq!(context.caller().remote.unwrap().port(), 4711);
    assert!(context.caller().traceparent.as_deref().unwrap().starts_with("00-4bf9"));
    assert_eq!(context.session_label(), session.label());
    assert_eq!(context.client_name().as_deref(), Some("test"));
    assert_eq!((context.request_id().raw(), context.method()), (&"5".into(), &Method::ToolsCall));
    assert_eq!(context.timeout(), Limits::default().request_timeout);
    assert_eq!(session.info().calls[0].method, Method::ToolsCall);
    call.answer(&json!({}));
    json_of(waiting.await.unwrap());
}
