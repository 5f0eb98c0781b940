//! `/rpc`: one request in, one JSON answer out.

use serde_json::{Value, json};
use tenure_protocol::Method;

use super::support::{refusal, tool_call};
use crate::support::client::{Ask, Response};
use crate::support::node::{Steered, announce, demo_with, say};
use crate::support::session::{Session, initialize_params, notification, request};
use crate::support::wait::within;

const OPEN: &[(&str, &str)] = &[("doors.rpc", "true"), ("streams.json_wait", "1ms")];

fn rpc(session: &Session, message: &Value) -> Ask {
    Ask::post_to("/rpc", &message.to_string()).without("Accept").header("Mcp-Session-Id", &session.id)
}

#[tokio::test]
async fn a_session_from_beginning_to_end() {
    let node = demo_with(OPEN).await;
    let to = node.address();
    let hello = request(0, "initialize", &initialize_params("2025-11-25")).to_string();
    let hello = Ask::post_to("/rpc", &hello).without("Accept").send(to).await;
    let id = hello.header("mcp-session-id").expect("a session").to_owned();
    assert_eq!(hello.json()["result"]["protocolVersion"], "2025-11-25");
    let session = Session { server: to, id, path: "/mcp".to_owned() };
    let said = rpc(&session, &notification("notifications/initialized")).send(to).await;
    assert_eq!((said.status(), said.body.len()), (202, 0));
    let tools = rpc(&session, &request(1, "tools/list", &json!({}))).send(to).await.json();
    assert!(tools["result"]["tools"].as_array().is_some_and(|tools| !tools.is_empty()), "{tools}");
    // It reports progress, which would be a stream at /mcp.
    let call = tool_call(2, "long_task", &json!({ "seconds": 3, "interval_ms": 10 }));
    let done = rpc(&session, &call).send(to).await;
    assert_eq!(done.json()["result"]["content"][0]["text"], "worked for 0.03 s");
    assert_eq!(done.header("mcp-session-id"), Some(&*session.id));
    assert_eq!(session.delete().send(to).await.status(), 204);
    let gone = rpc(&session, &request(3, "tools/list", &json!({}))).send(to).await;
    assert_eq!(refusal(&gone), (404, "session_deleted".to_owned()));
}

#[tokio::test]
async fn without_a_session_there_is_nothing_but_initialize() {
    let node = demo_with(OPEN).await;
    let list = request(1, "tools/list", &json!({})).to_string();
    let refused = Ask::post_to("/rpc", &list).send(node.address()).await;
    assert_eq!(refusal(&refused), (400, "session_required".to_owned()));
    let got = Ask::new("GET", "/rpc").send(node.address()).await;
    assert_eq!((got.status(), got.header("allow")), (405, Some("POST")));
}

#[tokio::test]
async fn what_the_server_asks_meanwhile_is_answered_for_the_client() {
    let mut steered = Steered::with(OPEN).await;
    let (session, link) = steered.session().await;
    let mut waiting = rpc(&session, &tool_call(1, "any", &json!({}))).begin(session.server).await;
    let call = steered.script.call().await;
    say(&call, "this is dropped").await;
    announce(&link, "nor this").await;
    let error =
        within("the question", call.context.ask(&Method::SamplingCreateMessage, None)).await.unwrap_err();
    assert!(error.message().contains("before it answered"), "{}", error.message());
    call.answer(&json!({ "done": true }));
    let response: Response = waiting.response().await;
    assert_eq!(response.json(), json!({ "jsonrpc": "2.0", "id": 1, "result": { "done": true } }));
}

#[tokio::test]
async fn a_withdrawn_request_is_not_left_waiting() {
    let mut steered = Steered::with(OPEN).await;
    let (session, _link) = steered.session().await;
    let mut waiting = rpc(&session, &tool_call(1, "any", &json!({}))).begin(session.server).await;
    let call = steered.script.call().await;
    say(&call, "working").await;
    let mut cancel = notification("notifications/cancelled");
    cancel["params"] = json!({ "requestId": 1 });
    assert_eq!(rpc(&session, &cancel).send(session.server).await.status(), 202);
    let response = waiting.response().await;
    assert_eq!(refusal(&response), (200, "cancelled".to_owned()));
}

#[tokio::test]
async fn a_batch_is_answered_with_an_array() {
    let node = demo_with(OPEN).await;
    let session = Session::of_revision(node.address(), "2025-03-26").await;
    let call = tool_call(2, "long_task", &json!({ "seconds": 2, "interval_ms": 10 }));
    let both = json!([request(1, "ping", &json!({})), call]);
    let response = rpc(&session, &both).send(node.address()).await;
    let answers: Vec<Value> = serde_json::from_slice(&response.body).expect("an array");
    let mut ids: Vec<_> = answers.iter().map(|answer| answer["id"].as_u64()).collect();
    ids.sort_unstable();
    assert_eq!(ids, [Some(1), Some(2)]);
}
