//! A POST answered with JSON, or with a stream when there is more to say.

use std::collections::HashSet;

use serde_json::json;

use crate::support::events::{SseItem, gist};
use crate::support::node::{Steered, announce, demo, say};
use crate::support::session::Session;

#[tokio::test]
async fn a_fast_call_is_plain_json() {
    let node = demo().await;
    let session = Session::start(node.address()).await;
    let response = session.tool(1, "public_echo", &json!({ "text": "hello" })).await;
    assert_eq!((response.status(), response.header("content-type")), (200, Some("application/json")));
    assert_eq!(response.json()["result"]["content"][0]["text"], "hello");
    assert_eq!(response.header("content-length").unwrap(), response.body.len().to_string());
}

#[tokio::test]
async fn a_call_that_reports_progress_becomes_a_stream_that_ends_with_its_answer() {
    let mut steered = Steered::start().await;
    let (session, _link) = steered.session().await;
    let params = json!({ "name": "work", "_meta": { "progressToken": "token-1" } });
    let connection = session.request(7, "tools/call", &params).begin(session.server).await;
    let call = steered.script.call().await;
    for step in 1..=3 {
        call.context.progress(f64::from(step), Some(3.0), Some("working")).await.unwrap();
    }
    call.answer(&json!({ "content": [] }));
    let mut stream = connection.events().await;
    assert_eq!(stream.header("mcp-session-id"), Some(session.id.as_str()));
    assert_eq!(stream.header("x-accel-buffering"), Some("no"));
    assert_eq!(stream.next().await, Some(SseItem::Comment("stream".to_owned())));
    let prime = stream.event().await.unwrap();
    assert_eq!(prime.data.as_deref(), Some(""));
    for step in 1..=3 {
        let (_, message) = stream.message().await.unwrap();
        assert_eq!(message["method"], "notifications/progress");
        let expected = json!({ "progressToken": "token-1", "progress": f64::from(step), "total": 3.0, "message": "working" });
        assert_eq!(message["params"], expected);
    }
    assert_eq!(stream.heard().await, "result 7");
    assert_eq!(stream.next().await, None);
    assert!(stream.is_complete());
}

#[tokio::test]
async fn progress_without_a_token_is_not_sent() {
    let mut steered = Steered::start().await;
    let (session, _link) = steered.session().await;
    let mut connection = session.request(7, "tools/call", &json!({})).begin(session.server).await;
    let call = steered.script.call().await;
    call.context.progress(1.0, None, None).await.unwrap();
    call.answer(&json!({}));
    assert_eq!(gist(&connection.response().await.json()), "result 7");
}

#[tokio::test]
async fn a_call_that_takes_long_becomes_a_stream_even_if_it_says_nothing() {
    let mut steered = Steered::with(&[("streams.json_wait", "20ms"), ("http.keep_alive", "20ms")]).await;
    let (session, _link) = steered.session().await;
    let connection = session.request(1, "tools/call", &json!({})).begin(session.server).await;
    let call = steered.script.call().await;
    let mut stream = connection.events().await;
    assert!(stream.event().await.unwrap().id.is_some(), "an id to resume after");
    assert_eq!(stream.next().await, Some(SseItem::Comment("keep-alive".to_owned())));
    call.answer(&json!({}));
    assert_eq!(stream.rest().await, ["result 1"]);
}

#[tokio::test]
async fn an_error_of_the_backend_passes_through_as_it_is() {
    let mut steered = Steered::start().await;
    let (session, _link) = steered.session().await;
    let mut connection = session.request(1, "tools/call", &json!({})).begin(session.server).await;
    steered.script.call().await.fail(-32042, "a code of its own");
    let response = connection.response().await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.json()["error"], json!({ "code": -32042, "message": "a code of its own" }));
}

#[tokio::test]
async fn a_handler_that_panics_is_an_error_and_the_session_lives() {
    let mut steered = Steered::start().await;
    let (session, _link) = steered.session().await;
    let response = session.request(1, "test/panic", &json!({})).send(session.server).await;
    assert_eq!(response.fault(), (200, -32603, "internal".to_owned()));
    let mut connection = session.request(2, "tools/call", &json!({})).begin(session.server).await;
    steered.script.call().await.answer(&json!({}));
    assert_eq!(gist(&connection.response().await.json()), "result 2");
}

#[tokio::test]
async fn calls_run_side_by_side_each_on_its_own_stream() {
    let mut steered = Steered::start().await;
    let (session, link) = steered.session().await;
    let mut listening = session.listen().await;
    let (one, mut first) = steered.streaming_call(&session, 1).await;
    let (two, mut second) = steered.streaming_call(&session, 2).await;
    for n in 0..10 {
        say(&two, &format!("two {n}")).await;
        say(&one, &format!("one {n}")).await;
        announce(&link, &format!("news {n}")).await;
    }
    two.answer(&json!({}));
    one.answer(&json!({}));
    let expected = |prefix: &str, id: u64| {
        let lines = (0..10).map(|n| format!("{prefix} {n}"));
        std::iter::once("hello".to_owned()).chain(lines).chain([format!("result {id}")]).collect::<Vec<_>>()
    };
    assert_eq!(second.rest().await, expected("two", 2));
    assert_eq!(first.rest().await, expected("one", 1));
    for n in 0..10 {
        assert_eq!(listening.heard().await, format!("news {n}"));
    }
}

#[tokio::test]
async fn event_ids_are_unique_over_all_streams_of_a_session() {
    let mut steered = Steered::start().await;
    let (session, link) = steered.session().await;
    let mut listening = session.listen().await;
    let mut ids = HashSet::new();
    for id in 1..=5 {
        let (call, mut stream) = steered.streaming_call(&session, id).await;
        say(&call, "more").await;
        announce(&link, "news").await;
        call.answer(&json!({}));
        while let Some(event) = stream.event().await {
            assert!(ids.insert(event.id.unwrap()), "an id was used twice");
        }
    }
    for _ in 0..6 {
        assert!(ids.insert(listening.event().await.unwrap().id.unwrap()), "an id was used twice");
    }
    assert_eq!(ids.len(), 5 * 4 + 6);
}

#[tokio::test]
async fn an_id_in_flight_cannot_be_used_again_until_it_is_answered() {
    let mut steered = Steered::start().await;
    let (session, _link) = steered.session().await;
    let (call, mut stream) = steered.streaming_call(&session, 1).await;
    let again = session.request(1, "tools/list", &json!({})).send(session.server).await;
    assert_eq!(again.fault(), (200, -32600, "duplicate_request_id".to_owned()));
    call.answer(&json!({}));
    assert_eq!(stream.rest().await, ["hello", "result 1"]);
    let mut connection = session.request(1, "tools/list", &json!({})).begin(session.server).await;
    steered.script.call().await.answer(&json!({}));
    assert_eq!(gist(&connection.response().await.json()), "result 1");
}

#[tokio::test]
async fn a_message_with_line_breaks_arrives_whole() {
    let mut steered = Steered::start().await;
    let (session, _link) = steered.session().await;
    let (call, mut stream) = steered.streaming_call(&session, 1).await;
    let text = "one\ntwo\r\nthree\u{2028}four \"five\" \\ 🦀\u{0}";
    say(&call, text).await;
    call.answer(&json!({ "text": text }));
    assert_eq!(stream.heard().await, "hello");
    assert_eq!(stream.message().await.unwrap().1["params"]["data"], text);
    assert_eq!(stream.message().await.unwrap().1["result"]["text"], text);
}

#[tokio::test]
async fn a_large_answer_arrives_whole_in_both_forms() {
    let mut steered = Steered::with(&[("streams.json_wait", "0s")]).await;
    let (session, _link) = steered.session().await;
    let large = json!({ "text": "x".repeat(3 << 20) });
    let mut connection = session.request(1, "tools/call", &json!({})).begin(session.server).await;
    steered.script.call().await.answer(&large);
    assert_eq!(connection.response().await.json()["result"], large);
    let (call, mut stream) = steered.streaming_call(&session, 2).await;
    call.answer(&large);
    assert_eq!(stream.heard().await, "hello");
    assert_eq!(stream.message().await.unwrap().1["result"], large);
}

#[tokio::test]
async fn an_answer_larger_than_an_event_may_be_becomes_an_error() {
    let mut steered = Steered::with(&[("streams.max_event", "1KiB")]).await;
    let (session, _link) = steered.session().await;
    let large = json!({ "text": "x".repeat(2000) });
    let mut connection = session.request(1, "tools/call", &json!({})).begin(session.server).await;
    steered.script.call().await.answer(&large);
    assert_eq!(connection.response().await.fault(), (200, -32603, "event_too_large".to_owned()));
    let (call, mut stream) = steered.streaming_call(&session, 2).await;
    call.answer(&large);
    assert_eq!(stream.rest().await, ["hello", "error 2 event_too_large"]);
}
