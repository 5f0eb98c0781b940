//! Clients whose connection breaks, and who come back to their session.

use serde_json::json;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::support::{OldClient, Socket, answer, get_sse, refusal, shake, tool_call};
use crate::support::node::{Steered, announce, demo_with, say};
use crate::support::session::request;
use crate::support::wait::{until, within};

const OPEN: &[(&str, &str)] = &[("doors.sse", "true"), ("doors.websocket", "true")];

#[tokio::test]
async fn an_event_source_that_comes_back_misses_nothing_and_hears_nothing_twice() {
    let mut steered = Steered::with(OPEN).await;
    let mut client = OldClient::start(steered.address()).await;
    let link = steered.script.opened().await;
    client.call(1, "one", &json!({})).await;
    let one = steered.script.call().await;
    client.call(2, "two", &json!({})).await;
    let two = steered.script.call().await;
    say(&one, "one works").await;
    assert_eq!(client.heard().await, "one works");
    announce(&link, "news").await;
    assert_eq!(client.heard().await, "news");
    client.call(3, "three", &json!({})).await;
    steered.script.call().await.answer(&json!({}));
    assert_eq!(client.heard().await, "result 3");
    let last = client.events.last_id();
    drop(client.events);

    say(&one, "one still works").await;
    one.answer(&json!({}));
    two.answer(&json!({}));
    announce(&link, "more news").await;
    let mut client = OldClient::back(steered.address(), &last).await;
    let mut heard = Vec::new();
    for _ in 0..4 {
        heard.push(client.heard().await);
    }
    heard.sort_unstable();
    assert_eq!(heard, ["more news", "one still works", "result 1", "result 2"]);
    // The session goes on as if nothing had happened.
    client.call(4, "four", &json!({})).await;
    steered.script.call().await.answer(&json!({}));
    assert_eq!(client.heard().await, "result 4");
}

#[tokio::test]
async fn a_session_that_is_over_is_not_begun_anew_for_a_client_that_comes_back() {
    let node =
        demo_with(&[("doors.sse", "true"), ("doors.websocket", "true"), ("doors.linger", "50ms")]).await;
    let mut client = OldClient::start(node.address()).await;
    client.send(&request(1, "ping", &json!({}))).await;
    client.heard().await;
    let last = client.events.last_id();
    let id = client.events.header("mcp-session-id").unwrap().to_owned();
    drop(client);
    until("its client did not come back", || node.sessions().tallies().sessions == 0).await;
    let back = get_sse().header("Last-Event-ID", &last).send(node.address()).await;
    assert_eq!(refusal(&back), (404, "session_deleted".to_owned()));
    assert!(shake(node.address(), &[("mcp-session-id", &id)]).await.is_err());
    // An id that another server made is no id here.
    OldClient::back(node.address(), "some-id-42").await;
}

#[tokio::test]
async fn a_socket_that_breaks_loses_nothing_that_did_not_arrive() {
    let mut steered = Steered::with(OPEN).await;
    let mut socket = Socket::start(steered.address()).await;
    let link = steered.script.opened().await;
    socket.send(&tool_call(1, "one", &json!({}))).await;
    let one = steered.script.call().await;
    socket.send(&tool_call(2, "two", &json!({}))).await;
    let two = steered.script.call().await;
    say(&one, "one works").await;
    assert_eq!(socket.heard().await, "one works");
    // From here on the client reads nothing, so nothing arrives although it is written.
    announce(&link, "unheard news").await;
    say(&one, "unheard").await;
    one.answer(&json!({}));
    until("all is written", || steered.node.sessions().list()[0].calls.len() == 1).await;
    let id = socket.id.clone();
    drop(socket);
    two.answer(&json!({}));
    let mut socket = Socket::back(steered.address(), &id).await;
    let mut heard = Vec::new();
    while !["result 1", "result 2", "unheard news"].iter().all(|text| heard.iter().any(|said| said == text)) {
        heard.push(socket.heard().await);
    }
    // Messages that have arrived may be repeated if the server did not know it; but in order, and nothing else.
    heard.retain(|said| said != "one works");
    assert_eq!(heard.len(), 4, "{heard:?}");
    let place = |text: &str| heard.iter().position(|said| said == text);
    assert!(place("unheard").is_some_and(|unheard| Some(unheard) < place("result 1")), "{heard:?}");
}

#[tokio::test]
async fn a_question_is_answered_over_the_next_connection() {
    let node = demo_with(OPEN).await;
    let mut socket = Socket::start(node.address()).await;
    socket.send(&tool_call(1, "ask_name", &json!({}))).await;
    let question = socket.next().await;
    let id = socket.id.clone();
    drop(socket);
    let mut socket = Socket::back(node.address(), &id).await;
    socket.send(&answer(&question["id"], &json!({ "action": "accept", "content": { "name": "Ada" } }))).await;
    let mut greeting = socket.next().await;
    if greeting["method"] == "elicitation/create" {
        // It was not known that the question had arrived.
        greeting = socket.next().await;
    }
    assert_eq!(greeting["result"]["content"][0]["text"], "Hello, Ada!");
}

#[tokio::test]
async fn a_client_that_comes_back_replaces_its_connection_that_looks_alive() {
    let node = demo_with(OPEN).await;
    let mut old = Socket::start(node.address()).await;
    let mut new = Socket::back(node.address(), &old.id.clone()).await;
    assert_eq!(old.close_code().await, 4409);
    new.send(&request(1, "tools/list", &json!({}))).await;
    assert_eq!(new.heard().await, "result 1");
    assert_eq!(node.sessions().tallies().sessions, 1);
}

#[tokio::test]
async fn only_a_goodbye_ends_a_session_at_once() {
    let node = demo_with(OPEN).await;
    let mut socket = Socket::start(node.address()).await;
    let id = socket.id.clone();
    let away = CloseFrame { code: CloseCode::Away, reason: "".into() };
    within("closed", socket.frames.close(Some(away))).await.unwrap();
    socket.closed().await;
    let mut socket = Socket::back(node.address(), &id).await;
    socket.send(&request(1, "tools/list", &json!({}))).await;
    assert_eq!(socket.heard().await, "result 1");
    // It is its client's own again, so a goodbye ends it.
    within("closed", socket.frames.close(None)).await.unwrap();
    until("the session ends", || node.sessions().tallies().sessions == 0).await;
}

#[tokio::test]
async fn a_socket_whose_client_does_not_come_back_leaves_no_session() {
    let node = demo_with(&[("doors.websocket", "true"), ("doors.linger", "50ms")]).await;
    let socket = Socket::start(node.address()).await;
    drop(socket);
    until("the session ends", || node.sessions().tallies().sessions == 0).await;
    assert_eq!(node.sessions().tallies().ended, 1);
}
