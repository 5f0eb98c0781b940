//! `/ws`: a session over a WebSocket.

use serde_json::json;
use tokio_tungstenite::tungstenite::{Bytes, Message};

use super::support::{OldClient, Socket, answer, refusal, shake, tool_call};
use crate::support::client::Ask;
use crate::support::node::{Steered, announce, demo_with, say};
use crate::support::session::{Session, initialize_params, notification, request};
use crate::support::wait::{until, within};

const OPEN: &[(&str, &str)] = &[("doors.websocket", "true"), ("doors.linger", "100ms")];

#[tokio::test]
async fn a_session_from_beginning_to_end() {
    let node = demo_with(OPEN).await;
    let mut socket = Socket::start(node.address()).await;
    socket.send(&request(1, "tools/list", &json!({}))).await;
    let list = socket.next().await;
    assert!(list["result"]["tools"].as_array().is_some_and(|tools| !tools.is_empty()), "{list}");

    socket.send(&tool_call(2, "long_task", &json!({ "seconds": 2, "interval_ms": 10 }))).await;
    for progress in [0.0, 1.0, 2.0] {
        assert_eq!(socket.next().await["params"]["progress"], progress);
    }
    assert_eq!(socket.heard().await, "result 2");

    socket.send(&tool_call(3, "ask_name", &json!({}))).await;
    let question = socket.next().await;
    assert_eq!(question["method"], "elicitation/create");
    socket.send(&answer(&question["id"], &json!({ "action": "accept", "content": { "name": "Ada" } }))).await;
    assert_eq!(socket.next().await["result"]["content"][0]["text"], "Hello, Ada!");

    assert_eq!(node.sessions().tallies().sessions, 1);
    within("goodbye", socket.frames.close(None)).await.unwrap();
    until("the session ends with its client", || node.sessions().tallies().sessions == 0).await;
    let dead = Session { server: node.address(), id: socket.id, path: "/mcp".to_owned() };
    assert_eq!(refusal(&dead.get().send(node.address()).await), (404, "session_deleted".to_owned()));
}

#[tokio::test]
async fn a_binary_frame_means_the_same_as_text() {
    let node = demo_with(OPEN).await;
    let mut socket = Socket::start(node.address()).await;
    let ping = request(1, "tools/list", &json!({})).to_string();
    socket.send_frame(Message::Binary(Bytes::from(ping.into_bytes()))).await;
    assert_eq!(socket.heard().await, "result 1");
    socket.send_frame(Message::Binary(Bytes::from_static(b"\xff\xfe"))).await;
    assert_eq!(socket.next().await["error"]["data"]["reason"], "parse_error");
}

#[tokio::test]
async fn news_calls_and_cancellation_share_the_socket() {
    let mut steered = Steered::with(OPEN).await;
    let mut socket = Socket::start(steered.address()).await;
    let link = steered.script.opened().await;
    announce(&link, "news").await;
    assert_eq!(socket.heard().await, "news");
    socket.send(&tool_call(1, "one", &json!({}))).await;
    let one = steered.script.call().await;
    socket.send(&tool_call(2, "two", &json!({}))).await;
    let two = steered.script.call().await;
    assert_eq!(two.context.caller().transport, "websocket");
    say(&two, "two works").await;
    assert_eq!(socket.heard().await, "two works");
    let mut cancel = notification("notifications/cancelled");
    cancel["params"] = json!({ "requestId": 1 });
    socket.send(&cancel).await;
    within("the cancellation", one.context.cancelled()).await;
    two.answer(&json!({}));
    assert_eq!(socket.heard().await, "result 2");
}

#[tokio::test]
async fn pings_are_answered_in_both_directions() {
    use futures_util::StreamExt;
    let node = demo_with(&[("doors.websocket", "true"), ("http.keep_alive", "20ms")]).await;
    let mut socket = Socket::start(node.address()).await;
    socket.send_frame(Message::Ping(Bytes::from_static(b"hello"))).await;
    let (mut pong, mut pings) = (false, 0);
    while !pong || pings < 3 {
        match within("a frame", socket.frames.next()).await.unwrap().unwrap() {
            Message::Pong(payload) => pong = payload == b"hello"[..],
            Message::Ping(_) => pings += 1,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_client_that_answers_no_pings_is_given_up() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let node = demo_with(&[("doors.websocket", "true"), ("http.keep_alive", "50ms")]).await;
    let mut stream = crate::support::client::connect(node.address()).await;
    let head = "GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut said = Vec::new();
    // It reads all that comes and says nothing.
    within("the end", stream.read_to_end(&mut said)).await.unwrap();
    let said = String::from_utf8_lossy(&said);
    assert!(
        said.to_ascii_lowercase().contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="),
        "{said}"
    );
}

#[tokio::test]
async fn the_subprotocol_is_named_if_it_is_asked_for() {
    let node = demo_with(OPEN).await;
    let (_, plain) = shake(node.address(), &[]).await.unwrap();
    assert!(!plain.headers().contains_key("sec-websocket-protocol"));
    let (_, asked) = shake(node.address(), &[("sec-websocket-protocol", "mcp")]).await.unwrap();
    assert_eq!(asked.headers()["sec-websocket-protocol"], "mcp");
}

#[tokio::test]
async fn what_is_no_handshake_is_told_what_to_do() {
    let node = demo_with(OPEN).await;
    let plain = Ask::new("GET", "/ws").send(node.address()).await;
    assert_eq!(refusal(&plain), (426, "upgrade_required".to_owned()));
    assert_eq!(
        (plain.header("upgrade"), plain.header("sec-websocket-version")),
        (Some("websocket"), Some("13"))
    );
    let shake = || {
        Ask::new("GET", "/ws")
            .header("Connection", "keep-alive, Upgrade")
            .header("Upgrade", "websocket")
            .header("Sec-WebSocket-Version", "13")
            .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
    };
    let old = shake().header("Sec-WebSocket-Version", "8").send(node.address()).await;
    assert_eq!(refusal(&old), (426, "upgrade_required".to_owned()));
    let keyless = shake().header("Sec-WebSocket-Key", "short").send(node.address()).await;
    assert_eq!(refusal(&keyless), (400, "invalid_request".to_owned()));
    let posted = Ask::post_to("/ws", "{}").send(node.address()).await;
    assert_eq!((posted.status(), posted.header("allow")), (405, Some("GET")));
    let good = shake().begin(node.address()).await.head().await;
    assert_eq!(
        (good.status, good.header("sec-websocket-accept")),
        (101, Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="))
    );
}

#[tokio::test]
async fn a_session_of_another_door_can_be_talked_in_and_outlives_the_socket() {
    let mut steered = Steered::with(OPEN).await;
    let (session, link) = steered.session().await;
    let mut socket = Socket::back(session.server, &session.id).await;
    assert_eq!(socket.id, session.id);
    announce(&link, "news").await;
    assert_eq!(socket.heard().await, "news");
    socket.send(&tool_call(1, "any", &json!({}))).await;
    steered.script.call().await.answer(&json!({}));
    assert_eq!(socket.heard().await, "result 1");
    within("goodbye", socket.frames.close(None)).await.unwrap();
    socket.closed().await;
    let listed = session.request(2, "tools/list", &json!({})).begin(session.server).await;
    steered.script.call().await.answer(&json!({}));
    drop(listed);
    assert_eq!(steered.node.sessions().tallies().sessions, 1);
}

#[tokio::test]
async fn somebody_else_who_reads_the_news_does_not_end_the_talk() {
    let mut steered = Steered::with(OPEN).await;
    let mut socket = Socket::start(steered.address()).await;
    let link = steered.script.opened().await;
    let session = Session { server: steered.address(), id: socket.id.clone(), path: "/mcp".to_owned() };
    let mut elsewhere = session.listen().await;
    announce(&link, "news").await;
    assert_eq!(elsewhere.heard().await, "news");
    socket.send(&tool_call(1, "one", &json!({}))).await;
    steered.script.call().await.answer(&json!({}));
    assert_eq!(socket.heard().await, "result 1");
}

#[tokio::test]
async fn a_client_that_does_not_finish_its_handshake_has_a_session_as_long_as_its_connection() {
    let settings = [("doors.sse", "true"), ("doors.websocket", "true"), ("session.handshake_ttl", "1s")];
    let node = demo_with(&settings).await;
    let initialize = request(0, "initialize", &initialize_params("2024-11-05"));
    let mut socket = Socket::open(node.address(), &[]).await;
    socket.send(&initialize).await;
    assert_eq!(socket.heard().await, "result 0");
    let mut old = OldClient::open(node.address()).await;
    old.send(&initialize).await;
    assert_eq!(old.heard().await, "result 0");
    // Begun later, and over before they are.
    Session::begin(node.address(), "2025-11-25").await;
    assert_eq!(node.sessions().tallies().sessions, 3);
    until("a handshake without a connection ends", || node.sessions().tallies().sessions == 2).await;
    let ping = request(1, "ping", &json!({}));
    socket.send(&ping).await;
    assert_eq!(socket.heard().await, "result 1");
    old.send(&ping).await;
    assert_eq!(old.heard().await, "result 1");
}
