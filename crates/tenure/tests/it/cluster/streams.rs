//! Streams that are read at another node than the one that has their session.

use serde_json::json;

use super::world::Shared;
use crate::support::events::gist;
use crate::support::node::{announce, say};
use crate::support::session::Session;

// B10
#[tokio::test]
async fn the_standalone_stream_is_the_same_at_every_node() {
    let (mut one, other) = Shared::new(&[]).pair().await;
    let session = Session::start(one.address).await;
    let link = one.script.opened().await;
    let mut events = session.get().open(other.address).await;
    assert_eq!(events.header("content-type"), Some("text/event-stream"));
    let mut ids = Vec::new();
    for text in ["first", "second"] {
        announce(&link, text).await;
        assert_eq!(events.heard().await, text);
        ids.push(events.last_id());
    }
    assert_ne!(ids[0], ids[1]);
    // B13: an id that one node has issued is good at all of them.
    for node in [one.address, other.address] {
        let mut resumed = session.get().header("Last-Event-ID", &ids[0]).open(node).await;
        assert_eq!(resumed.heard().await, "second");
    }
}

// B10
#[tokio::test]
async fn a_call_that_becomes_a_stream_streams_through_any_node() {
    let (mut one, other) = Shared::new(&[]).pair().await;
    let session = one.session().await;
    let connection = session.request(1, "tools/call", &json!({ "name": "any" })).begin(other.address).await;
    let call = one.script.call().await;
    say(&call, "hello").await;
    let mut events = connection.events().await;
    assert_eq!(events.heard().await, "hello");
    say(&call, "again").await;
    assert_eq!(events.heard().await, "again");
    call.answer(&json!({ "content": [] }));
    let (_, answer) = events.message().await.expect("an answer");
    assert_eq!(gist(&answer), gist(&json!({ "jsonrpc": "2.0", "id": 1, "result": { "content": [] } })));
    assert!(events.message().await.is_none() && events.is_complete());
}

// B12
#[tokio::test]
async fn a_stream_has_one_reader_and_the_newer_one_wins_wherever_it_is() {
    let (mut one, other) = Shared::new(&[]).pair().await;
    let session = Session::start(one.address).await;
    let link = one.script.opened().await;
    let mut first = session.get().open(other.address).await;
    announce(&link, "to the first").await;
    assert_eq!(first.heard().await, "to the first");
    let mut second = session.get().open(one.address).await;
    assert_eq!(first.rest().await, Vec::<String>::new(), "it ended");
    announce(&link, "to the second").await;
    assert_eq!(second.heard().await, "to the second");
    let mut third = session.get().open(other.address).await;
    assert_eq!(second.rest().await, Vec::<String>::new(), "it ended");
    announce(&link, "to the third").await;
    assert_eq!(third.heard().await, "to the third");
}

// B13
#[tokio::test]
async fn an_event_id_of_another_session_is_honoured_at_no_node() {
    let (mut one, other) = Shared::new(&[("streams.unknown_event_id", "error")]).pair().await;
    let session = Session::start(one.address).await;
    let link = one.script.opened().await;
    let mut events = session.get().open(other.address).await;
    announce(&link, "secret").await;
    assert_eq!(events.heard().await, "secret");
    let id = events.last_id();
    let stranger = one.session().await;
    for node in [one.address, other.address] {
        let refused = stranger.get().header("Last-Event-ID", &id).send(node).await;
        assert_eq!(refused.status(), 400, "{refused:?}");
        assert!(!refused.text().contains("secret"));
    }
}
