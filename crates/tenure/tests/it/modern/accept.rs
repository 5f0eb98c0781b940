//! What a client takes for an answer, and what it gets.

use serde_json::json;

use super::support::{Steered, call, listen, post, say};
use crate::support::client::Ask;

const BOTH: &str = "application/json, text/event-stream";

#[tokio::test]
async fn a_client_that_takes_streams_gets_one_when_there_is_something_to_say() {
    let mut steered = Steered::start().await;
    for accept in [
        "application/json, text/event-stream",
        "text/event-stream",
        "TEXT/Event-Stream;q=0.5",
        "*/*",
        "text/*, application/*",
    ] {
        let waiting = post(&call()).header("Accept", accept).begin(steered.address()).await;
        let asked = steered.server.next().await;
        say(&asked, "hello").await;
        asked.answer(&json!({}));
        let mut events = waiting.events().await;
        assert_eq!(events.rest().await, ["hello", "result 1"], "{accept}");
        assert!(events.is_complete());
    }
}

#[tokio::test]
async fn a_client_that_takes_no_streams_gets_the_answer_alone() {
    let mut steered = Steered::with(&[("exchanges.stream_after", "20ms")]).await;
    for accept in [Some("application/json"), Some("text/html"), Some(""), None] {
        let ask = post(&call());
        let ask = match accept {
            Some(accept) => ask.header("Accept", accept),
            None => ask.without("Accept"),
        };
        let mut waiting = ask.begin(steered.address()).await;
        let asked = steered.server.next().await;
        say(&asked, "dropped").await;
        tokio::time::sleep(std::time::Duration::from_millis(60)).await;
        asked.answer(&json!({}));
        let response = waiting.response().await;
        assert_eq!(response.header("content-type"), Some("application/json"), "{accept:?}");
        assert_eq!(response.json()["result"]["resultType"], "complete");
    }
}

#[tokio::test]
async fn a_listen_without_a_stream_is_406() {
    let mut steered = Steered::start().await;
    for accept in ["application/json", ""] {
        let response = post(&listen()).header("Accept", accept).send(steered.address()).await;
        assert_eq!(response.fault(), (406, -32600, "not_acceptable".to_owned()));
        assert_eq!(response.json()["id"], 1);
    }
    assert!(steered.server.is_quiet());
    let waiting = post(&listen()).begin(steered.address()).await;
    let asked = steered.server.next().await;
    asked.acknowledge(&[]).await;
    let mut events = waiting.events().await;
    let (_, acknowledged) = events.message().await.unwrap();
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    drop(events);
    asked.dropped().await;
    steered.idle().await;
}

#[tokio::test]
async fn a_client_that_takes_json_alone_and_forgot_its_headers_is_told_so() {
    let steered = Steered::start().await;
    for accept in [BOTH, "application/json"] {
        let ask = Ask::post(call().to_string()).header("Accept", accept);
        let response = ask.send(steered.address()).await;
        assert_eq!(response.fault(), (400, -32020, "header_mismatch".to_owned()), "{accept}");
        // A request of no era counts as one of a session.
        for body in ["{", "[]", r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#] {
            let status = Ask::post(body).header("Accept", accept).send(steered.address()).await.status();
            assert_eq!(status, if accept == BOTH { 400 } else { 406 }, "{accept} {body}");
        }
    }
}
