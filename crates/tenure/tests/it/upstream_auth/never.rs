//! What a client sends to prove who it is goes no further than to us.

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use super::world::{BY_SECRET, EXCHANGE, World, echo};
use crate::auth::world::Bearing;
use crate::doors::support::{OldClient, shake, tool_call};
use crate::support::client::Ask;
use crate::support::modern;
use crate::support::session::{Session, initialize, initialize_params, notification, request};
use crate::support::wait::{until, within};

/// Marks of everything that a client may send of itself.
const MARKS: [(&str, &str); 6] = [
    ("Cookie", "sid=cookie-of-the-client"),
    ("Proxy-Authorization", "Basic proxy-of-the-client"),
    ("DPoP", "dpop-of-the-client"),
    ("X-Tenure-Principal", "principal-of-the-client"),
    ("Forwarded", "for=forwarded-of-the-client"),
    ("X-Custom", "custom-of-the-client"),
];

fn marked(mut ask: Ask, token: &str) -> Ask {
    for (name, value) in MARKS {
        ask = ask.header(name, value);
    }
    ask.bearer(token)
}

/// Uses everything that there is: a session with its stream, calls, and its end; exchanges; and every door.
async fn use_everything(world: &World, token: &str) {
    let address = world.address();
    let began = marked(initialize("2025-11-25"), token).send(address).await;
    let session = Session::of(address, "/mcp", &began);
    let said = marked(session.post(&notification("notifications/initialized")), token).send(address).await;
    assert_eq!(said.status(), 202);
    let stream = marked(session.get(), token).open(address).await;
    let called = marked(echo(&session, 1, "hi"), token).send(address).await;
    assert!(called.json()["result"].is_object(), "{called:?}");
    drop(stream);
    let call =
        |id: u64| request(id, "tools/call", &json!({ "name": "public_echo", "arguments": { "text": "hi" } }));
    for (path, id) in [("/rpc", 2), ("/sse", 3)] {
        let ask = Ask::post_to(path, &call(id).to_string()).header("Mcp-Session-Id", &session.id);
        let answered = marked(ask, token).send(address).await;
        assert_eq!(answered.status(), 200, "{path}: {answered:?}");
    }
    // The server's stream is opened right after the handshake.
    until("a GET", || world.seen().iter().any(|seen| seen.method == "GET")).await;
    assert_eq!(marked(session.delete(), token).send(address).await.status(), 204);
    until("a DELETE", || world.seen().iter().any(|seen| seen.method == "DELETE")).await;

    let echo = json!({ "name": "public_echo", "arguments": { "text": "hi" } });
    for ask in [modern::ask(1, "tools/list", &json!({})), modern::ask(2, "tools/call", &echo)] {
        let answered = marked(ask, token).send(address).await;
        assert_eq!(answered.status(), 200, "{answered:?}");
    }
    let authorization = format!("Bearer {token}");
    let headers = [("authorization", authorization.as_str()), ("cookie", MARKS[0].1), ("dpop", MARKS[2].1)];
    let (mut socket, _) = shake(address, &headers).await.expect("a socket");
    for message in [
        request(0, "initialize", &initialize_params("2025-11-25")),
        notification("notifications/initialized"),
        tool_call(1, "public_echo", &json!({ "text": "hi" })),
    ] {
        socket.send(Message::text(message.to_string())).await.unwrap();
    }
    for _ in 0..2 {
        within("an answer", socket.next()).await.unwrap().unwrap();
    }
    let old = marked(Ask::new("GET", "/sse").header("Accept", "text/event-stream"), token);
    let mut events = old.open(address).await;
    let endpoint = events.event().await.unwrap().data.unwrap();
    let client = OldClient { server: address, events, post: endpoint };
    let hello = request(0, "initialize", &initialize_params("2024-11-05"));
    let posted = marked(client.ask(&hello.to_string()), token).send(address).await;
    assert_eq!(posted.status(), 202, "{posted:?}");
}

/// Nothing of the client reached the server behind.
fn assert_clean(world: &World, token: &str, mode: &str) {
    let seen = world.recorder.seen();
    let bodies: Vec<&str> = seen.iter().map(|seen| seen.method.as_str()).collect();
    for method in ["GET", "POST", "DELETE"] {
        assert!(bodies.contains(&method), "{mode}: there was no {method}");
    }
    assert!(seen.len() > 10, "{mode}: {} requests", seen.len());
    for request in seen {
        let text = request.text();
        assert!(!text.contains("of-the-client"), "{mode}: {text}");
        assert!(!text.contains(token), "{mode}: {text}");
        assert!(request.header("x-api-key").is_none(), "{mode}: {text}");
    }
}

#[tokio::test]
async fn up1_the_server_behind_sees_no_credentials_of_a_client_in_any_mode() {
    for (mode, upstream, expected) in [
        ("none", "", "-"),
        ("fixed", "headers = [\"Authorization: Bearer fixed\"]\n", "Bearer fixed"),
        ("client credentials", BY_SECRET, "Bearer upstream-token-1-gateway"),
        ("token exchange", EXCHANGE, "Bearer upstream-token-1-ann"),
    ] {
        let world = World::with(upstream).await;
        let token = world.token("ann");
        use_everything(&world, &token).await;
        assert_clean(&world, &token, mode);
        assert_eq!(world.seen_values("authorization"), [expected], "{mode}");
        assert_eq!(world.seen_values("x-tenure-principal"), ["-"], "{mode}");
    }
}

#[tokio::test]
async fn up1_nor_does_one_that_speaks_http_sse() {
    for (mode, upstream, expected) in [
        ("fixed", "headers = [\"Authorization: Bearer fixed\"]\n", "Bearer fixed"),
        ("token exchange", EXCHANGE, "Bearer upstream-token-1-ann"),
    ] {
        let world = World::with_path("/sse", &format!("{upstream}era = \"legacy\"\n")).await;
        let token = world.token("ann");
        let session = marked(initialize("2025-11-25"), &token).send(world.address()).await;
        let session = Session::of(world.address(), "/mcp", &session);
        let ready = marked(session.post(&notification("notifications/initialized")), &token);
        assert_eq!(world.send(ready).await.status(), 202);
        let called = marked(echo(&session, 1, "hi"), &token);
        let called = world.send(called).await;
        assert!(called.json()["result"].is_object(), "{called:?}");
        for request in world.seen() {
            let text = request.text();
            assert!(!text.contains("of-the-client") && !text.contains(&token), "{mode}: {text}");
        }
        assert_eq!(world.seen_values("authorization"), [expected], "{mode}");
    }
}
