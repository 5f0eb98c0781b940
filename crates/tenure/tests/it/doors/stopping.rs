//! The server stops while a client is connected.

use serde_json::json;

use super::support::{OldClient, Socket, refusal, shake, tool_call};
use crate::support::node::{Steered, demo_with, say};
use crate::support::session::request;
use crate::support::wait::{until, within};

const OPEN: &[(&str, &str)] =
    &[("doors.sse", "true"), ("doors.websocket", "true"), ("doors.rpc", "true"), ("shutdown.grace", "5s")];

#[tokio::test]
async fn a_socket_gets_its_answers_and_is_told_that_the_server_stops() {
    let mut steered = Steered::with(OPEN).await;
    let mut socket = Socket::start(steered.address()).await;
    socket.send(&tool_call(1, "any", &json!({}))).await;
    let call = steered.script.call().await;
    let sessions = steered.node.sessions().clone();
    let stopping = tokio::spawn(steered.node.stop());
    say(&call, "still working").await;
    assert_eq!(socket.heard().await, "still working");
    until("it takes no new sessions", || !sessions.is_ready()).await;
    // It is served while the call is waited for.
    socket.send(&request(2, "tools/list", &json!({}))).await;
    steered.script.call().await.answer(&json!({}));
    assert_eq!(socket.heard().await, "result 2");
    assert!(!stopping.is_finished());
    call.answer(&json!({}));
    assert_eq!(socket.heard().await, "result 1");
    assert_eq!(socket.close_code().await, 1012);
    within("the node stops", stopping).await.unwrap();
}

#[tokio::test]
async fn what_does_not_finish_in_time_is_answered_as_interrupted() {
    let mut steered = Steered::with(&[("doors.sse", "true"), ("shutdown.grace", "100ms")]).await;
    let mut client = OldClient::start(steered.address()).await;
    client.call(1, "any", &json!({})).await;
    let _call = steered.script.call().await;
    let stopping = tokio::spawn(steered.node.stop());
    assert_eq!(client.events.rest().await, ["error 1 interrupted"]);
    assert!(client.events.is_complete());
    within("the node stops", stopping).await.unwrap();
}

#[tokio::test]
async fn a_talk_without_a_session_does_not_hold_the_server_up() {
    let node = demo_with(OPEN).await;
    let mut socket = Socket::open(node.address(), &[]).await;
    let mut client = OldClient::open(node.address()).await;
    let stopping = tokio::spawn(node.stop());
    assert_eq!(socket.close_code().await, 1012);
    assert_eq!(client.events.rest().await, [""; 0]);
    within("the node stops", stopping).await.unwrap();
}

#[tokio::test]
async fn no_client_is_let_in_while_the_sessions_drain() {
    let node = demo_with(OPEN).await;
    node.sessions().drain();
    let stream = super::support::get_sse().send(node.address()).await;
    assert_eq!(refusal(&stream), (503, "draining".to_owned()));
    assert!(shake(node.address(), &[]).await.is_err());
}
