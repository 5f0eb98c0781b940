//! GET `/sse` and POST `/messages`: clients of revision 2024-11-05.

use serde_json::json;

use super::support::{OldClient, answer, get_sse, refusal, tool_call};
use crate::support::client::Ask;
use crate::support::node::{Steered, announce, demo_with, say};
use crate::support::session::{notification, request};
use crate::support::wait::until;

const OPEN: &[(&str, &str)] = &[("doors.sse", "true"), ("doors.linger", "100ms")];

#[tokio::test]
async fn a_session_from_beginning_to_end() {
    let node = demo_with(OPEN).await;
    let mut client = OldClient::start(node.address()).await;
    client.send(&request(1, "tools/list", &json!({}))).await;
    let list = client.next().await;
    assert_eq!(list["id"], 1);
    assert!(list["result"]["tools"].as_array().is_some_and(|tools| !tools.is_empty()), "{list}");

    client.call(2, "long_task", &json!({ "seconds": 2, "interval_ms": 10 })).await;
    for progress in [0.0, 1.0, 2.0] {
        assert_eq!(client.next().await["params"]["progress"], progress);
    }
    assert_eq!(client.heard().await, "result 2");

    client.call(3, "ask_name", &json!({})).await;
    let question = client.next().await;
    assert_eq!(question["method"], "elicitation/create");
    client.send(&answer(&question["id"], &json!({ "action": "accept", "content": { "name": "Ada" } }))).await;
    assert_eq!(client.next().await["result"]["content"][0]["text"], "Hello, Ada!");

    assert_eq!(node.sessions().tallies().sessions, 1);
    drop(client);
    until("the session ends with its client", || node.sessions().tallies().sessions == 0).await;
}

#[tokio::test]
async fn every_event_is_a_message() {
    let node = demo_with(OPEN).await;
    let mut client = OldClient::open(node.address()).await;
    client.initialize("2025-11-25").await;
    client.send(&request(1, "ping", &json!({}))).await;
    assert_eq!(client.heard().await, "result 1");
    let raw = client.events.raw();
    assert!(raw.starts_with("event: endpoint\ndata: /messages?sessionId="), "{raw}");
    // No event without data: old clients take every one for a message.
    assert_eq!(raw.matches("event: message\ndata: {").count(), 2, "{raw}");
    assert_eq!(raw.matches("data:").count(), 3, "{raw}");
}

#[tokio::test]
async fn the_address_to_post_to_names_neither_the_session_nor_another_stream() {
    let node = demo_with(OPEN).await;
    let client = OldClient::start(node.address()).await;
    let session = client.events.header("mcp-session-id").expect("a name").to_owned();
    assert!(!client.post.contains(&session));
    let other = OldClient::open(node.address()).await;
    assert_ne!(client.post, other.post);
    // The session's own name is no address, and an address is no session.
    let by_name = Ask::post_to(&format!("/messages?sessionId={session}"), "{}").send(node.address()).await;
    assert_eq!(refusal(&by_name), (404, "session_not_found".to_owned()));
    let post = client.post.rsplit('=').next().unwrap();
    let as_session = Ask::get().header("Mcp-Session-Id", post).send(node.address()).await;
    assert_eq!(refusal(&as_session), (404, "session_not_found".to_owned()));
    let without = Ask::post_to("/messages", "{}").send(node.address()).await;
    assert_eq!(refusal(&without), (400, "session_required".to_owned()));
    let post = client.post.clone();
    drop(client);
    let gone = async { while Ask::post_to(&post, "{}").send(node.address()).await.status() != 404 {} };
    crate::support::wait::within("the address dies with its stream", gone).await;
}

#[tokio::test]
async fn news_calls_and_cancellation_share_the_stream() {
    let mut steered = Steered::with(OPEN).await;
    let mut client = OldClient::start(steered.address()).await;
    let link = steered.script.opened().await;
    announce(&link, "news").await;
    assert_eq!(client.heard().await, "news");
    client.call(1, "one", &json!({})).await;
    let one = steered.script.call().await;
    client.call(2, "two", &json!({})).await;
    let two = steered.script.call().await;
    say(&two, "two works").await;
    assert_eq!(client.heard().await, "two works");
    let mut cancel = notification("notifications/cancelled");
    cancel["params"] = json!({ "requestId": 1 });
    client.send(&cancel).await;
    crate::support::wait::within("the cancellation", one.context.cancelled()).await;
    two.answer(&json!({}));
    assert_eq!(client.heard().await, "result 2");
    client.send(&tool_call(3, "three", &json!({}))).await;
    steered.script.call().await.answer(&json!({}));
    assert_eq!(client.heard().await, "result 3", "nothing came for the one that was withdrawn");
}

#[tokio::test]
async fn before_initialize_there_is_no_session_and_nothing_is_left_of_the_stream() {
    let node = demo_with(OPEN).await;
    let mut client = OldClient::open(node.address()).await;
    client.send(&request(1, "tools/list", &json!({}))).await;
    assert_eq!(client.heard().await, "error 1 not_initialized");
    assert_eq!(node.sessions().tallies().created, 0);
    assert!(!client.events.raw().contains("\nid:"), "there is nothing to come back to");
}

#[tokio::test]
async fn a_session_that_an_operator_ends_ends_its_stream() {
    let node = demo_with(OPEN).await;
    let mut client = OldClient::start(node.address()).await;
    let session = crate::support::session::Session {
        server: node.address(),
        id: client.events.header("mcp-session-id").unwrap().to_owned(),
        path: "/mcp".to_owned(),
    };
    assert_eq!(session.delete().send(node.address()).await.status(), 204);
    assert_eq!(client.events.rest().await, [""; 0]);
    assert!(client.events.is_complete());
}

#[tokio::test]
async fn other_methods_are_refused() {
    let node = demo_with(OPEN).await;
    let posted = Ask::post_to("/sse", "{}").send(node.address()).await;
    assert_eq!((posted.status(), posted.header("allow")), (405, Some("GET")));
    let got = Ask::new("GET", "/messages?sessionId=1").send(node.address()).await;
    assert_eq!((got.status(), got.header("allow")), (405, Some("POST")));
    let html = get_sse().header("Accept", "text/html").send(node.address()).await;
    assert_eq!(refusal(&html), (406, "not_acceptable".to_owned()));
}
