//! Faults of a server upstream that its clients must not notice.

use std::time::Duration;

use serde_json::{Value, json};
use tenure::Node;
use tokio::net::TcpStream;

use super::gateway_with;
use super::server::{Asked, SESSION, Server};
use crate::support::client::Connection;
use crate::support::session::{Session, initialize};
use crate::support::wait::{until, within};

/// An odd server, a node in front of it, and a session through both.
pub(super) async fn through(settings: &[(&str, &str)]) -> (Server, Node, Session) {
    let mut server = Server::start().await;
    let front = gateway_with(server.url(), settings).await;
    let (session, ()) = tokio::join!(Session::start(front.address()), server.shake_hands());
    (server, front, session)
}

/// Calls a tool; the server has the request and the client waits.
pub(super) async fn calling(server: &mut Server, session: &Session) -> (Asked, Connection) {
    let call = session.request(7, "tools/call", &json!({ "name": "any" })).begin(session.server).await;
    (server.post("tools/call").await, call)
}

/// The answer to a call, on a stream or not: that depends on how fast the machine is.
pub(super) async fn answer(mut call: Connection) -> Value {
    let response = call.response().await;
    let text = response.text();
    let message = text.lines().find_map(|line| line.strip_prefix("data: {")).map(|rest| format!("{{{rest}"));
    serde_json::from_str(&message.unwrap_or(text)).expect("JSON")
}

pub(super) fn news(text: &str) -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": text } })
}

#[tokio::test]
async fn a_stream_that_is_refused_for_now_is_opened_later() {
    let (mut server, _front, session) = through(&[]).await;
    server.get().await.refuse("503 Service Unavailable").await;
    server.get().await.refuse("409 Conflict").await;
    let mut stream = server.get().await.stream().await;
    stream.event(&news("late")).await;
    assert_eq!(session.listen().await.heard().await, "late");
}

#[tokio::test]
async fn an_answer_is_resumed_though_the_server_is_ill_for_a_while() {
    let (mut server, _front, session) = through(&[]).await;
    server.get().await.refuse("405 Method Not Allowed").await;
    let (asked, call) = calling(&mut server, &session).await;
    let last = asked.response(&json!({ "result": { "content": [] } }));
    let mut stream = asked.stream().await;
    stream.write("id: é1\nretry: 0\ndata:\n\n").await;
    drop(stream);
    server.get().await.refuse("502 Bad Gateway").await;
    let resumed = server.get().await;
    assert!(resumed.head.contains("last-event-id: é1"), "{}", resumed.head);
    resumed.stream().await.write(&format!("data: {last}\n\n")).await;
    assert_eq!(answer(call).await["result"], json!({ "content": [] }));
}

#[tokio::test]
async fn an_answer_after_an_id_that_cannot_be_sent_is_not_resumed() {
    let (mut server, _front, session) = through(&[]).await;
    server.get().await.refuse("405 Method Not Allowed").await;
    let (asked, call) = calling(&mut server, &session).await;
    asked.stream().await.write("id: \u{1}\nretry: 0\ndata:\n\n").await;
    // A GET without an id would be for another stream; it is not answered here.
    let answer = answer(call).await;
    assert_eq!(answer["error"]["data"]["reason"], "interrupted", "{answer}");
}

#[tokio::test]
async fn a_question_that_is_taken_back_on_a_calls_stream_is_withdrawn() {
    let (mut server, _front, session) = through(&[]).await;
    let (asked, call) = calling(&mut server, &session).await;
    let answer = asked.response(&json!({ "result": {} }));
    let mut stream = asked.stream().await;
    stream.event(&json!({ "jsonrpc": "2.0", "id": "theirs", "method": "roots/list" })).await;
    let mut events = call.events().await;
    let (_, question) = events.message().await.unwrap();
    assert_eq!(question["method"], "roots/list");
    let back =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": "theirs" } });
    stream.event(&back).await;
    let (_, withdrawn) = events.message().await.unwrap();
    assert_eq!(withdrawn["method"], "notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], question["id"], "the id that the client knows");
    stream.write(&format!("data: {answer}\n\n")).await;
    within("the answer", async { assert_eq!(events.heard().await, "result 7") }).await;
}

#[tokio::test]
async fn a_notification_that_is_not_taken_holds_a_call_up_for_a_while_only() {
    let mut server = Server::start().await;
    let front = gateway_with(server.url(), &[]).await;
    let begin = async { server.post("initialize").await.begin_session().await };
    let (session, ()) = tokio::join!(Session::start(front.address()), begin);
    let _held = server.post("notifications/initialized").await;
    let call = session.request(7, "tools/call", &json!({ "name": "any" })).begin(session.server).await;
    until("the call is taken", || front.sessions().list()[0].calls.len() == 1).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(11)).await;
    tokio::time::resume();
    server.post("tools/call").await.answer(&json!({ "result": {} })).await;
    assert_eq!(answer(call).await["result"], json!({}));
}

#[tokio::test]
async fn a_call_that_waits_for_a_notification_ends_with_its_session() {
    let mut server = Server::start().await;
    let front = gateway_with(server.url(), &[]).await;
    let begin = async { server.post("initialize").await.begin_session().await };
    let (session, ()) = tokio::join!(Session::start(front.address()), begin);
    let _held = server.post("notifications/initialized").await;
    let call = session.request(7, "tools/call", &json!({ "name": "any" })).begin(session.server).await;
    until("the call is taken", || front.sessions().list()[0].calls.len() == 1).await;
    assert_eq!(session.delete().send(session.server).await.status(), 204);
    assert!(answer(call).await["error"].is_object());
    server.delete().await.accept().await;
}

/// Sends `initialize` through a node, and has the server answer it badly; the session there must be ended.
async fn bad_beginning(answer: impl AsyncFnOnce(Asked) -> Option<Asked>) -> Value {
    let mut server = Server::start().await;
    let front = gateway_with(server.url(), &[("timeouts.initialize", "500ms")]).await;
    let answer = async {
        let held = answer(server.post("initialize").await).await;
        let ended = server.delete().await;
        assert!(ended.head.contains(&format!("mcp-session-id: {SESSION}")), "{}", ended.head);
        ended.accept().await;
        drop(held);
    };
    let (refused, ()) = tokio::join!(initialize("2025-11-25").send(front.address()), answer);
    refused.json()["error"].clone()
}

#[tokio::test]
async fn a_session_that_never_began_does_not_stay_behind() {
    let error = bad_beginning(async |asked| {
        asked.answer(&json!({ "error": { "code": -32000, "message": "not today" } })).await;
        None
    });
    assert_eq!(error.await["message"], "not today");

    let error = bad_beginning(async |asked| {
        asked.answer(&json!({ "result": { "protocolVersion": "1999-12-31" } })).await;
        None
    });
    assert_eq!(error.await["data"]["reason"], "backend_unavailable");

    // It names a session, and then nothing comes.
    let error = bad_beginning(async |asked| Some(asked.stream().await));
    assert_eq!(error.await["data"]["reason"], "timed_out");
}

#[tokio::test]
async fn a_server_hears_of_a_call_whose_time_is_up() {
    let (mut server, _front, session) = through(&[("timeouts.request", "200ms")]).await;
    server.get().await.refuse("405 Method Not Allowed").await;
    let (asked, call) = calling(&mut server, &session).await;
    assert_eq!(answer(call).await["error"]["data"]["reason"], "timed_out");
    let cancelled = server.post("notifications/cancelled").await;
    assert_eq!(cancelled.body["params"]["requestId"], asked.body["id"]);
    cancelled.accept().await;
}

#[tokio::test]
async fn a_session_that_is_named_too_late_does_not_stay_behind() {
    let mut server = Server::start().await;
    let front = gateway_with(server.url(), &[("timeouts.initialize", "100ms")]).await;
    let refused = initialize("2025-11-25").send(front.address()).await.json();
    assert_eq!(refused["error"]["data"]["reason"], "timed_out");
    server.post("initialize").await.begin_session().await;
    server.delete().await.accept().await;
}

#[tokio::test]
async fn a_call_that_never_left_says_so() {
    let (mut server, _front, session) = through(&[]).await;
    server.get().await.refuse("405 Method Not Allowed").await;
    let address = server.address();
    drop(server);
    within("the port is closed", async { while TcpStream::connect(address).await.is_ok() {} }).await;
    let error = session.tool(7, "any", &json!({})).await.json()["error"].clone();
    assert_eq!(error["data"]["reason"], "backend_unavailable");
    assert_eq!(error["data"]["refused"], true, "so the client may call again: {error}");
}

#[tokio::test]
async fn a_session_that_was_forgotten_is_opened_anew_though_the_server_says_400() {
    let (mut server, front, session) = through(&[]).await;
    server.get().await.refuse("405 Method Not Allowed").await;
    let (asked, call) = calling(&mut server, &session).await;
    let words =
        r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"No valid session ID provided"},"id":null}"#;
    asked.refuse_with("400 Bad Request", words).await;
    server.shake_hands().await;
    server.post("tools/call").await.answer(&json!({ "result": {} })).await;
    assert_eq!(answer(call).await["result"], json!({}));
    assert_eq!(front.sessions().tallies().created, 1, "the client noticed nothing");
}

#[tokio::test]
async fn a_call_waits_for_the_stream_that_questions_may_come_on() {
    let (mut server, _front, session) = through(&[]).await;
    let stream = server.get().await;
    let first = session.request(7, "tools/call", &json!({ "name": "any" })).begin(session.server).await;
    let early = tokio::time::timeout(Duration::from_millis(200), server.post("tools/call")).await;
    assert!(early.is_err(), "a question of this call would be lost");
    // A server that does not even say that it has the stream is waited for once.
    server.post("tools/call").await.answer(&json!({ "result": {} })).await;
    assert_eq!(answer(first).await["result"], json!({}));
    // The quickest of some: the machine may be slow, but not each time as slow as that.
    let mut quickest = Duration::MAX;
    for _ in 0..5 {
        let begun = tokio::time::Instant::now();
        let (asked, next) = calling(&mut server, &session).await;
        quickest = quickest.min(begun.elapsed());
        asked.answer(&json!({ "result": {} })).await;
        assert_eq!(answer(next).await["result"], json!({}));
    }
    assert!(quickest < Duration::from_millis(400), "{quickest:?}");
    drop(stream);
}
