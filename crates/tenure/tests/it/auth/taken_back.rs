//! What was opened with credentials ends when they are taken back: streams, listens, sockets. And what belongs to a request
//! alone goes by the credentials of that request.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::world::{Bearing, World, now};
use crate::support::client::{Ask, connect};
use crate::support::events::{Events, SseEvent};
use crate::support::modern;
use crate::support::session::{initialize_params, notification, request};
use crate::support::wait::within;

const DOORS: &str = "[doors]\nsse = true\nwebsocket = true\n";

fn listen() -> Ask {
    modern::ask(1, "subscriptions/listen", &json!({ "notifications": { "toolsListChanged": true } }))
}

/// A socket with this session and these credentials.
async fn socket(world: &World, token: &str) -> tokio_tungstenite::WebSocketStream<tokio::net::TcpStream> {
    let mut request = format!("ws://{}/ws", world.address()).into_client_request().unwrap();
    request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    let stream = connect(world.address()).await;
    let (mut socket, _) =
        within("a handshake", tokio_tungstenite::client_async(request, stream)).await.unwrap();
    let begin = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": initialize_params("2025-11-25") });
    socket.send(Message::text(begin.to_string())).await.unwrap();
    within("an answer", socket.next()).await.unwrap().unwrap();
    socket
}

/// The first event of GET `/sse`: where to post.
async fn open_sse(world: &World, token: &str) -> (Events, String) {
    let ask = Ask::new("GET", "/sse").header("Accept", "text/event-stream").bearer(token);
    let mut events = ask.open(world.address()).await;
    let SseEvent { data, .. } = events.event().await.expect("a first event");
    (events, data.expect("an address"))
}

#[tokio::test]
async fn what_a_static_key_has_opened_ends_when_the_key_is_revoked() {
    let world = World::with(DOORS).await;
    let (key, other) = (world.key("ci", ""), world.key("other", ""));
    world.node_reads_keys().await;
    let (session, of_other) = (world.session(&key).await, world.session(&other).await);
    let mut stream = session.get().bearer(&key).open(world.address()).await;
    let mut others = of_other.get().bearer(&other).open(world.address()).await;
    let mut listening = listen().bearer(&key).open(world.address()).await;
    assert_eq!(listening.message().await.unwrap().1["method"], "notifications/subscriptions/acknowledged");
    let (mut sse, _) = open_sse(&world, &key).await;
    let mut socket = socket(&world, &key).await;

    world.key_file().revoke("ci").unwrap();
    let ended = async {
        for (what, stream) in [("GET", &mut stream), ("listen", &mut listening), ("/sse", &mut sse)] {
            let items = stream.items().await;
            let last = items.last().unwrap_or_else(|| panic!("{what} says nothing"));
            assert!(last.starts_with("retry "), "{what}: its client is told to come back: {items:?}");
        }
        loop {
            match socket.next().await {
                Some(Ok(Message::Close(frame))) => break frame.expect("a reason").code,
                Some(Ok(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    let code = tokio::time::timeout(Duration::from_secs(10), ended).await.expect("all of them end");
    assert_eq!(code, CloseCode::Library(4401));
    let quiet = tokio::time::timeout(Duration::from_millis(200), others.message()).await;
    assert!(quiet.is_err(), "the stream of another key goes on: {quiet:?}");
}

#[tokio::test]
async fn a_listen_ends_with_its_token_and_its_client_comes_back() {
    let world = World::with("stream_grace = \"1s\"\n").await;
    let token = world.token_with("alice", &json!({ "exp": now().0 - 27 }));
    let mut listening = listen().bearer(&token).open(world.address()).await;
    let items = tokio::time::timeout(Duration::from_secs(20), listening.items()).await.expect("it ends");
    assert!(items.last().unwrap().starts_with("retry "), "{items:?}");
    let fresh = world.token("alice");
    let back = Ask::new("GET", "/mcp").header("Accept", "text/event-stream");
    let back =
        back.header("Last-Event-ID", &listening.last_id()).header("MCP-Protocol-Version", "2026-07-28");
    let mut back = back.bearer(&fresh).open(world.address()).await;
    let first = back.message().await.unwrap().1;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged", "it goes on: {first}");
}

#[tokio::test]
async fn a_posted_message_has_the_scopes_of_its_own_credentials() {
    let rules = format!("scopes = [\"* = mcp:use\", \"notebook_* = notes:read\"]\n{DOORS}");
    let world = World::with(&rules).await;
    let wide = world.token_with("alice", &json!({ "scope": "mcp:use notes:read" }));
    let narrow = world.token_with("alice", &json!({ "scope": "mcp:use" }));
    let (mut events, post) = open_sse(&world, &wide).await;
    let send = |message: Value, token: &str| {
        let ask = Ask::post_to(&post, &message.to_string()).without("Accept").bearer(token);
        let address = world.address();
        async move { assert_eq!(ask.send(address).await.status(), 202) }
    };
    send(request(0, "initialize", &initialize_params("2024-11-05")), &wide).await;
    assert_eq!(events.message().await.unwrap().1["id"], 0);
    send(notification("notifications/initialized"), &wide).await;
    for (id, token, sees) in [(1, &wide, true), (2, &narrow, false), (3, &wide, true)] {
        send(request(id, "tools/list", &json!({})), token).await;
        let (_, list) = events.message().await.unwrap();
        let names = list["result"]["tools"].to_string();
        assert_eq!((&list["id"], names.contains("notebook_read")), (&json!(id), sees), "{list}");
    }
}
