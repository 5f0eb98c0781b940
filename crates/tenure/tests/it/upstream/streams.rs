//! A server upstream refuses a stream: either it has none, or the session is gone.

use serde_json::json;

use super::odd::{answer, calling, news, through};
use super::server::{Asked, SESSION, Server};
use crate::support::client::Connection;
use crate::support::session::Session;

const NOT_FOUND: &str = "404 Not Found";

fn is_in_session(asked: &Asked) -> bool {
    asked.head.contains(&format!("mcp-session-id: {SESSION}"))
}

/// Calls a tool, which the server must get in the session that it has.
async fn calls_in_the_same_session(server: &mut Server, session: &Session) {
    let (asked, call) = calling(server, session).await;
    assert!(is_in_session(&asked), "{}", asked.head);
    asked.answer(&json!({ "result": { "content": [] } })).await;
    assert_eq!(answer(call).await["result"], json!({ "content": [] }));
    assert!(!server.has_posted("initialize"), "the session was good");
}

/// As many frameworks do by themselves for a method that has no handler.
#[tokio::test]
async fn a_server_without_a_stream_may_say_404_and_keeps_its_session() {
    let (mut server, _front, session) = through(&[]).await;
    server.get().await.refuse_with(NOT_FOUND, "<pre>Cannot GET /mcp</pre>").await;
    for _ in 0..2 {
        calls_in_the_same_session(&mut server, &session).await;
    }
}

#[tokio::test]
async fn a_server_that_was_ill_first_may_say_404_and_keeps_its_session() {
    let (mut server, _front, session) = through(&[]).await;
    server.get().await.refuse("503 Service Unavailable").await;
    server.get().await.refuse(NOT_FOUND).await;
    calls_in_the_same_session(&mut server, &session).await;
}

#[tokio::test]
async fn a_stream_that_is_not_found_any_more_is_opened_anew_if_the_session_is_there() {
    let (mut server, _front, session) = through(&[]).await;
    let mut stream = server.get().await.stream().await;
    stream.write("id: 1\nretry: 0\ndata:\n\n").await;
    let (held, call) = calling(&mut server, &session).await;
    drop(stream);
    let resumed = server.get().await;
    assert!(resumed.head.contains("last-event-id: 1"), "{}", resumed.head);
    resumed.refuse(NOT_FOUND).await;
    let ping = server.post("ping").await;
    assert!(is_in_session(&ping), "{}", ping.head);
    ping.answer(&json!({ "result": {} })).await;
    // It cannot be resumed, so it begins anew.
    let anew = server.get().await;
    assert!(!anew.head.contains("last-event-id"), "{}", anew.head);
    let mut stream = anew.stream().await;
    stream.event(&news("on the new stream")).await;
    assert_eq!(session.listen().await.heard().await, "on the new stream");
    // A call that was under way all the time has lost nothing.
    held.answer(&json!({ "result": { "content": [] } })).await;
    assert_eq!(answer(call).await["result"], json!({ "content": [] }));
    calls_in_the_same_session(&mut server, &session).await;
}

#[tokio::test]
async fn a_stream_that_is_not_found_any_more_ends_the_session_if_that_is_gone_too() {
    let (mut server, front, session) = through(&[]).await;
    let mut stream = server.get().await.stream().await;
    stream.write("retry: 0\n").await;
    drop(stream);
    server.get().await.refuse(NOT_FOUND).await;
    server.post("ping").await.refuse(NOT_FOUND).await;
    // From here on the session has no link.
    server.delete().await.refuse(NOT_FOUND).await;
    let call = session.request(7, "tools/call", &json!({ "name": "any" })).begin(session.server).await;
    server.shake_hands().await;
    let mut stream = server.get().await.stream().await;
    server.post("tools/call").await.answer(&json!({ "result": {} })).await;
    assert_eq!(answer(call).await["result"], json!({}));
    assert_eq!(front.sessions().tallies().created, 1, "the client noticed nothing");
    stream.event(&news("of the new session")).await;
    assert_eq!(session.listen().await.heard().await, "of the new session");
}

/// A call whose stream broke off after an event, and the request to resume it.
async fn broken_off(server: &mut Server, session: &Session, method: &str) -> (Asked, Connection) {
    server.get().await.refuse("405 Method Not Allowed").await;
    let call = session.request(7, method, &json!({ "name": "any" })).begin(session.server).await;
    let mut stream = server.post(method).await.stream().await;
    stream.write("id: 1\nretry: 0\ndata:\n\n").await;
    drop(stream);
    let resumed = server.get().await;
    assert!(resumed.head.contains("last-event-id: 1"), "{}", resumed.head);
    (resumed, call)
}

#[tokio::test]
async fn an_answer_that_cannot_be_resumed_fails_alone_if_the_session_is_there() {
    let (mut server, _front, session) = through(&[]).await;
    let (resumed, call) = broken_off(&mut server, &session, "tools/call").await;
    resumed.refuse(NOT_FOUND).await;
    server.post("ping").await.answer(&json!({ "result": {} })).await;
    let failed = answer(call).await;
    assert_eq!(failed["error"]["data"]["reason"], "interrupted", "{failed}");
    // The request is withdrawn, and messages are posted in their order.
    server.post("notifications/cancelled").await.accept().await;
    calls_in_the_same_session(&mut server, &session).await;
}

#[tokio::test]
async fn an_answer_that_cannot_be_resumed_is_asked_for_again_if_the_session_is_gone() {
    let (mut server, front, session) = through(&[]).await;
    let (resumed, call) = broken_off(&mut server, &session, "tools/list").await;
    resumed.refuse(NOT_FOUND).await;
    server.post("ping").await.refuse(NOT_FOUND).await;
    server.shake_hands().await;
    server.post("tools/list").await.answer(&json!({ "result": { "tools": [] } })).await;
    assert_eq!(answer(call).await["result"], json!({ "tools": [] }));
    assert_eq!(front.sessions().tallies().created, 1, "the client noticed nothing");
}
