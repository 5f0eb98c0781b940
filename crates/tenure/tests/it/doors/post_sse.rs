//! POST `/sse`: the answer as a stream that ends with `done`.

use serde_json::{Value, json};

use super::support::{answer, refusal, tool_call};
use crate::support::client::Ask;
use crate::support::events::{Events, SseEvent};
use crate::support::node::demo_with;
use crate::support::session::{Session, initialize_params, notification, request};

const OPEN: &[(&str, &str)] = &[("doors.post_sse", "true")];

fn post(session: &Session, message: &Value) -> Ask {
    Ask::post_to("/sse", &message.to_string()).without("Accept").header("Mcp-Session-Id", &session.id)
}

/// Every event of a stream: its kind, and its message.
async fn all(mut events: Events) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    while let Some(SseEvent { event, data, .. }) = events.event().await {
        let data = serde_json::from_str(&data.expect("data")).expect("JSON");
        all.push((event.unwrap_or_default(), data));
    }
    assert!(events.is_complete());
    all
}

#[tokio::test]
async fn every_answer_is_a_stream_that_says_when_it_is_done() {
    let node = demo_with(OPEN).await;
    let to = node.address();
    let hello = request(0, "initialize", &initialize_params("2025-11-25")).to_string();
    let hello = Ask::post_to("/sse", &hello).without("Accept").open(to).await;
    let session = Session {
        server: to,
        id: hello.header("mcp-session-id").expect("a session").to_owned(),
        path: "/mcp".to_owned(),
    };
    let events = all(hello).await;
    assert_eq!(events.len(), 2, "{events:?}");
    assert_eq!(events[0].1["result"]["protocolVersion"], "2025-11-25");
    assert_eq!(events[1], ("done".to_owned(), json!({})));
    assert_eq!(post(&session, &notification("notifications/initialized")).send(to).await.status(), 202);

    let call = tool_call(1, "long_task", &json!({ "seconds": 3, "interval_ms": 10 }));
    let events = all(post(&session, &call).open(to).await).await;
    let progress: Vec<_> =
        events.iter().filter_map(|(_, data)| data["params"]["progress"].as_f64()).collect();
    assert_eq!(progress, [0.0, 1.0, 2.0, 3.0]);
    assert_eq!(events[4].1["result"]["content"][0]["text"], "worked for 0.03 s");
    assert_eq!(events[5..], [("done".to_owned(), json!({}))]);
}

#[tokio::test]
async fn an_error_that_is_an_answer_is_on_the_stream_too() {
    let node = demo_with(OPEN).await;
    let session = Session::begin(node.address(), "2025-11-25").await;
    // Before `initialized`, it is refused by the session itself.
    let events = all(post(&session, &request(1, "tools/list", &json!({}))).open(node.address()).await).await;
    assert_eq!(events[0].1["error"]["data"]["reason"], "not_initialized");
    assert_eq!(events[1].0, "done");
    // An error about the session is a failure of HTTP, as at /mcp.
    let stranger = Session { id: "0".repeat(32), ..session };
    let refused = post(&stranger, &request(1, "tools/list", &json!({}))).send(node.address()).await;
    assert_eq!(refusal(&refused), (404, "session_not_found".to_owned()));
}

#[tokio::test]
async fn a_question_comes_on_the_stream_and_is_answered_by_a_post() {
    let node = demo_with(OPEN).await;
    let session = Session::start(node.address()).await;
    let mut stream = post(&session, &tool_call(1, "ask_name", &json!({}))).open(node.address()).await;
    let (_, question) = stream.message().await.unwrap();
    let reply = answer(&question["id"], &json!({ "action": "accept", "content": { "name": "Ada" } }));
    assert_eq!(post(&session, &reply).send(node.address()).await.status(), 202);
    let (_, greeting) = stream.message().await.unwrap();
    assert_eq!(greeting["result"]["content"][0]["text"], "Hello, Ada!");
}

#[tokio::test]
async fn with_this_door_alone_a_get_is_refused() {
    let node = demo_with(OPEN).await;
    let got = super::support::get_sse().send(node.address()).await;
    assert_eq!((got.status(), got.header("allow")), (405, Some("POST")));
}
