//! Stopping with requests in flight, inside this process and as a process of its own.

use serde_json::json;

use super::support::{Steered, call, listen, message, post, say};
use crate::cli::process::Server;
use crate::support::events::gist;
use crate::support::wait::within;

#[tokio::test]
async fn calls_are_finished_listens_are_ended_and_nothing_new_is_taken() {
    let mut steered = Steered::start().await;
    let server = steered.address();
    let mut waiting = post(&call()).begin(server).await;
    let quiet = steered.server.next().await;
    let streaming = post(&call()).begin(server).await;
    let busy = steered.server.next().await;
    say(&busy, "hello").await;
    let mut stream = streaming.events().await;
    let listening = post(&listen()).begin(server).await;
    let heard = steered.server.next().await;
    heard.acknowledge(&[]).await;
    let mut news = listening.events().await;
    news.message().await.unwrap();
    steered.node.exchanges().drain();
    let refused = post(&call()).send(server).await;
    // In-band, because a status of 503 ends clients that are at work on something else.
    assert_eq!(refused.fault(), (200, -31010, "draining".to_owned()));
    assert_eq!(refused.header("retry-after"), Some("1"));
    let stopping = tokio::spawn(steered.node.stop());
    let (_, last) = news.message().await.unwrap();
    assert_eq!(
        last,
        json!({
            "jsonrpc": "2.0",
            "id": 1,
            "result": {
                "resultType": "complete",
                "_meta": { "io.modelcontextprotocol/subscriptionId": 1 },
            },
        })
    );
    assert!(news.next().await.is_none() && news.is_complete());
    heard.dropped().await;
    say(&busy, "still here").await;
    assert!(!stopping.is_finished());
    quiet.answer(&json!({}));
    assert_eq!(gist(&waiting.response().await.json()), "result 1");
    busy.answer(&json!({}));
    assert_eq!(stream.rest().await, ["hello", "still here", "result 1"]);
    assert!(stream.is_complete());
    within("the node stops", stopping).await.unwrap();
}

#[tokio::test]
async fn what_is_not_done_in_time_is_answered_as_interrupted() {
    let mut steered = Steered::with(&[("shutdown.grace", "100ms")]).await;
    let mut waiting = post(&call()).begin(steered.address()).await;
    let quiet = steered.server.next().await;
    let streaming = post(&call()).begin(steered.address()).await;
    let busy = steered.server.next().await;
    say(&busy, "hello").await;
    let mut stream = streaming.events().await;
    let stopping = tokio::spawn(steered.node.stop());
    let answer = waiting.response().await;
    assert_eq!(answer.fault(), (200, -31010, "interrupted".to_owned()));
    assert_eq!(stream.rest().await, ["hello", "error 1 interrupted"]);
    assert!(stream.is_complete());
    within("the node stops", stopping).await.unwrap();
    assert!(quiet.is_dropped() && busy.is_dropped());
}

#[tokio::test]
async fn a_call_that_waits_for_its_client_does_not_hold_up_the_end() {
    let mut steered = Steered::with(&[("shutdown.grace", "1h")]).await;
    let mut first = post(&call()).begin(steered.address()).await;
    let asked = steered.server.next().await;
    let context = asked.context.clone();
    let question = tokio::spawn(async move {
        context
            .ask(&tenure_protocol::Method::ElicitationCreate, Some(&tenure_protocol::RawJson::EMPTY_OBJECT))
            .await
    });
    assert_eq!(first.response().await.json()["result"]["resultType"], "input_required");
    within("the node stops", steered.node.stop()).await;
    question.await.unwrap().unwrap_err();
    assert!(asked.is_dropped());
}

/// A call of the demo that takes an hour.
fn hour() -> serde_json::Value {
    let params =
        json!({ "name": "long_task", "arguments": { "seconds": 3600 }, "_meta": { "progressToken": 1 } });
    message("tools/call", params)
}

#[tokio::test]
async fn a_process_that_is_told_to_stop_ends_its_listens_and_interrupts_its_calls() {
    let server = Server::start(&["--set", "shutdown.grace=300ms"]).await;
    let filter = json!({ "notifications": { "resourceSubscriptions": ["demo://visitors"] } });
    let mut news = post(&message("subscriptions/listen", filter)).open(server.address()).await;
    let (_, acknowledged) = news.message().await.unwrap();
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    let mut stream = post(&hour()).open(server.address()).await;
    assert_eq!(stream.message().await.unwrap().1["method"], "notifications/progress");
    let mut parked = post(&message("tools/call", json!({ "name": "ask_name", "arguments": {} })))
        .begin(server.address())
        .await;
    assert_eq!(parked.response().await.json()["result"]["resultType"], "input_required");
    server.signal("TERM").await;
    let mut last = json!(null);
    while let Some((_, message)) = news.message().await {
        last = message;
    }
    assert_eq!(gist(&last), "result 1");
    assert!(news.is_complete());
    let mut last = json!(null);
    while let Some((_, message)) = stream.message().await {
        last = message;
    }
    assert_eq!(gist(&last), "error 1 interrupted");
    assert!(stream.is_complete());
    let (status, _, logs) = server.ended().await;
    assert_eq!(status.code(), Some(0), "{logs}");
    assert!(logs.contains("still running at the end of the grace period"), "{logs}");
}
