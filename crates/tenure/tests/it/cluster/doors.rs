//! Sessions of the doors `/sse` and `/ws`: messages reach the node that has the stream, and a client that comes back to another
//! node takes its session along.

use serde_json::{Value, json};

use super::world::Shared;
use crate::doors::support::{OldClient, Socket};
use crate::support::client::Ask;
use crate::support::node::{announce, say};
use crate::support::session::request;

const OPEN: &[(&str, &str)] = &[("doors.sse", "true"), ("doors.websocket", "true")];

#[tokio::test]
async fn messages_for_a_stream_may_be_posted_to_any_node() {
    let (mut one, other) = Shared::new(OPEN).pair().await;
    let mut client = OldClient::open(one.address).await;
    client.server = other.address;
    client.initialize("2024-11-05").await;
    let link = one.script.opened().await;
    client.call(1, "any", &json!({})).await;
    let call = one.script.call().await;
    say(&call, "hello").await;
    assert_eq!(client.heard().await, "hello");
    call.answer(&json!({}));
    assert_eq!(client.heard().await, "result 1");
    announce(&link, "news").await;
    assert_eq!(client.heard().await, "news");
    // The same refusals, whichever node is asked.
    for post in ["/messages?sessionId=0", &format!("/messages?sessionId={}", "0".repeat(32)), "/messages"] {
        let refused = async |server| Ask::post_to(post, "{}").without("Accept").send(server).await;
        let (here, there) = (refused(one.address).await, refused(other.address).await);
        assert_eq!((here.status(), here.text()), (there.status(), there.text()), "{post}");
    }
    let garbled = client.ask("{").send(other.address).await;
    assert_eq!((garbled.status(), garbled.text()), {
        let here = client.ask("{").send(one.address).await;
        (here.status(), here.text())
    });
}

#[tokio::test]
async fn messages_for_a_stream_of_a_lost_node_are_refused() {
    let shared = Shared::new(OPEN);
    let (mut one, other) = shared.pair().await;
    let client = OldClient::start(one.address).await;
    one.script.opened().await;
    let name = one.name();
    one.lose().await;
    shared.remove(name).await;
    let refused = client.ask(&request(1, "ping", &json!({})).to_string()).send(other.address).await;
    assert_eq!(refused.status(), 404, "{refused:?}");
}

// B11
#[tokio::test]
async fn a_stream_of_post_sse_whose_node_is_lost_still_says_when_it_is_done() {
    let shared = Shared::new(&[("doors.post_sse", "true")]);
    let (mut one, mut other) = shared.pair().await;
    let session = one.session().await;
    let read = request(1, "resources/read", &json!({ "uri": "a:b" })).to_string();
    let read = Ask::post_to("/sse", &read).without("Accept").header("Mcp-Session-Id", &session.id);
    let connection = read.begin(other.address).await;
    let call = one.script.call().await;
    say(&call, "hello").await;
    let mut events = connection.events().await;
    assert_eq!(events.heard().await, "hello");
    let name = one.name();
    one.lose().await;
    drop(call);
    shared.remove(name).await;
    other.script.call().await.answer(&json!({ "contents": [] }));
    let mut kinds = Vec::new();
    while let Some(event) = events.event().await {
        let data: Value = serde_json::from_str(&event.data.expect("data")).expect("a message");
        kinds.push((event.event.unwrap_or_default(), data["result"].is_object()));
    }
    assert_eq!(kinds, [("message".to_owned(), true), ("done".to_owned(), false)]);
    assert!(events.is_complete());
}

#[tokio::test]
async fn an_event_source_that_comes_back_to_another_node_takes_its_session_along() {
    let (mut one, mut other) = Shared::new(OPEN).pair().await;
    let mut client = OldClient::start(one.address).await;
    let link = one.script.opened().await;
    announce(&link, "news").await;
    assert_eq!(client.heard().await, "news");
    let last = client.events.last_id();
    // Its old connection still stands, as far as the first node knows.
    let mut back = OldClient::back(other.address, &last).await;
    let link = other.script.opened().await;
    announce(&link, "more news").await;
    assert_eq!(back.heard().await, "more news");
    back.call(4, "any", &json!({})).await;
    other.script.call().await.answer(&json!({}));
    assert_eq!(back.heard().await, "result 4");
    assert!(client.events.next().await.is_none(), "another connection has taken its place");
}

#[tokio::test]
async fn a_socket_that_comes_back_to_another_node_takes_its_session_along() {
    let (mut one, mut other) = Shared::new(OPEN).pair().await;
    let socket = Socket::start(one.address).await;
    one.script.opened().await;
    let id = socket.id.clone();
    drop(socket);
    let mut back = Socket::back(other.address, &id).await;
    other.script.opened().await;
    back.send(&request(7, "ping", &json!({}))).await;
    assert_eq!(back.heard().await, "result 7");
}
