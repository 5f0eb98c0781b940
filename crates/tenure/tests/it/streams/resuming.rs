//! `Last-Event-ID`: exactly the later events of exactly that stream, then live.

use serde_json::json;

use crate::support::client::Ask;
use crate::support::events::SseItem;
use crate::support::node::{Steered, announce, say};
use crate::support::session::Session;
use crate::support::wait::until;

#[tokio::test]
async fn a_post_stream_is_resumed_with_get_and_goes_on_live() {
    let mut steered = Steered::start().await;
    let (session, _link) = steered.session().await;
    let (call, mut stream) = steered.streaming_call(&session, 1).await;
    say(&call, "two").await;
    assert_eq!((stream.heard().await, stream.heard().await), ("hello".to_owned(), "two".to_owned()));
    let after_two = stream.last_id();
    drop(stream);
    say(&call, "three").await;
    say(&call, "four").await;
    let mut resumed = session.resume(&after_two).await;
    assert_eq!(resumed.header("mcp-session-id"), Some(session.id.as_str()));
    assert_eq!((resumed.heard().await, resumed.heard().await), ("three".to_owned(), "four".to_owned()));
    say(&call, "five").await;
    assert_eq!(resumed.heard().await, "five");
    call.answer(&json!({}));
    assert_eq!(resumed.rest().await, ["result 1"]);
    assert!(resumed.is_complete());
}

#[tokio::test]
async fn replayed_events_keep_their_ids() {
    let mut steered = Steered::start().await;
    let (session, _link) = steered.session().await;
    let (call, mut stream) = steered.streaming_call(&session, 1).await;
    let prime = stream.event().await.unwrap().id.unwrap();
    say(&call, "two").await;
    call.answer(&json!({}));
    let mut original = Vec::new();
    while let Some(message) = stream.message().await {
        original.push(message);
    }
    for (from, skipped) in [(&prime, 0), (&original[0].0, 1), (&original[1].0, 2), (&original[2].0, 3)] {
        let mut resumed = session.resume(from).await;
        let mut replayed = Vec::new();
        while let Some(message) = resumed.message().await {
            replayed.push(message);
        }
        assert_eq!(replayed, original[skipped..]);
    }
}

#[tokio::test]
async fn a_resumed_stream_is_primed_with_the_id_it_was_resumed_from() {
    let mut steered = Steered::start().await;
    let (session, link) = steered.session().await;
    let mut stream = session.listen().await;
    announce(&link, "one").await;
    stream.heard().await;
    let mut resumed = session.resume(&stream.last_id()).await;
    assert_eq!(resumed.next().await, Some(SseItem::Comment("stream".to_owned())));
    let prime = resumed.event().await.unwrap();
    // A client cut off right here comes back with the same id and misses nothing.
    assert_eq!((prime.id, prime.data), (Some(stream.last_id()), Some(String::new())));
}

#[tokio::test]
async fn a_get_stream_is_resumed_after_the_event_that_is_named() {
    let mut steered = Steered::start().await;
    let (session, link) = steered.session().await;
    let mut stream = session.listen().await;
    for n in 1..=3 {
        announce(&link, &n.to_string()).await;
        assert_eq!(stream.heard().await, n.to_string());
    }
    let after_three = stream.last_id();
    drop(stream);
    for n in 4..=6 {
        announce(&link, &n.to_string()).await;
    }
    let mut resumed = session.resume(&after_three).await;
    for n in 4..=6 {
        assert_eq!(resumed.heard().await, n.to_string());
    }
    for n in 7..=8 {
        announce(&link, &n.to_string()).await;
        assert_eq!(resumed.heard().await, n.to_string());
    }
}

#[tokio::test]
async fn without_an_id_a_get_goes_on_where_the_last_one_stopped() {
    let mut steered = Steered::start().await;
    let (session, link) = steered.session().await;
    let mut stream = session.listen().await;
    announce(&link, "one").await;
    assert_eq!(stream.heard().await, "one");
    drop(stream);
    until("the server notices", || steered.node.sessions().list()[0].readers == 0).await;
    announce(&link, "two").await;
    assert_eq!(session.listen().await.heard().await, "two");
}

#[tokio::test]
async fn a_finished_stream_replays_its_answer_and_ends() {
    let mut steered = Steered::start().await;
    let (session, _link) = steered.session().await;
    let (call, mut stream) = steered.streaming_call(&session, 1).await;
    assert_eq!(stream.heard().await, "hello");
    let after_hello = stream.last_id();
    call.answer(&json!({}));
    assert_eq!(stream.rest().await, ["result 1"]);
    let at_the_end = stream.last_id();
    for _ in 0..2 {
        let mut again = session.resume(&after_hello).await;
        assert_eq!(again.items().await, [": stream", "prime", "result 1"]);
        let mut empty = session.resume(&at_the_end).await;
        assert_eq!(empty.items().await, [": stream", "prime"], "nothing is left to replay");
        assert!(empty.is_complete());
    }
}

#[tokio::test]
async fn hanging_up_is_no_cancellation_and_the_result_comes_by_resuming() {
    let mut steered = Steered::start().await;
    let (session, _link) = steered.session().await;
    let (call, mut stream) = steered.streaming_call(&session, 1).await;
    let prime = stream.event().await.unwrap().id.unwrap();
    drop(stream);
    until("the server notices", || steered.node.sessions().list()[0].readers == 0).await;
    assert!(!call.context.is_cancelled());
    call.answer(&json!({ "done": true }));
    let mut resumed = session.resume(&prime).await;
    assert_eq!(resumed.heard().await, "hello");
    assert_eq!(resumed.message().await.unwrap().1["result"]["done"], true);
    assert_eq!(resumed.next().await, None);
}

#[tokio::test]
async fn hanging_up_before_anything_was_said_is_no_cancellation_either() {
    let mut steered = Steered::with(&[("streams.json_wait", "0s")]).await;
    let (session, _link) = steered.session().await;
    let connection = session.request(1, "tools/call", &json!({})).begin(session.server).await;
    let call = steered.script.call().await;
    drop(connection);
    // Its own second request comes after the server has noticed.
    let (second, _stream) = steered.streaming_call(&session, 2).await;
    assert!(!call.context.is_cancelled());
    // It is still in flight: its id is taken, and what it says from now on can be resumed.
    let again = session.request(1, "tools/list", &json!({})).send(session.server).await;
    assert_eq!(again.fault().2, "duplicate_request_id");
    drop(second);
    call.answer(&json!({}));
    until("the call ends", || steered.node.sessions().list()[0].calls.is_empty()).await;
}

#[tokio::test]
async fn resuming_takes_a_stream_over_from_a_connection_that_seems_alive() {
    let mut steered = Steered::start().await;
    let (session, _link) = steered.session().await;
    let (call, mut stuck) = steered.streaming_call(&session, 1).await;
    assert_eq!(stuck.heard().await, "hello");
    let mut resumed = session.resume(&stuck.last_id()).await;
    say(&call, "two").await;
    assert_eq!(resumed.heard().await, "two");
    assert_eq!(stuck.rest().await, Vec::<String>::new(), "no message comes twice");
    call.answer(&json!({}));
    assert_eq!(resumed.rest().await, ["result 1"]);
}

#[tokio::test]
async fn resuming_one_stream_shows_nothing_of_the_others() {
    let mut steered = Steered::start().await;
    let (session, link) = steered.session().await;
    let (one, mut first) = steered.streaming_call(&session, 1).await;
    let (two, mut second) = steered.streaming_call(&session, 2).await;
    let (first_id, second_id) =
        (first.event().await.unwrap().id.unwrap(), second.event().await.unwrap().id.unwrap());
    announce(&link, "news").await;
    say(&one, "of one").await;
    say(&two, "of two").await;
    one.answer(&json!({}));
    two.answer(&json!({}));
    assert_eq!(session.resume(&first_id).await.rest().await, ["hello", "of one", "result 1"]);
    assert_eq!(session.resume(&second_id).await.rest().await, ["hello", "of two", "result 2"]);
    assert_eq!(session.listen().await.heard().await, "news");
}

#[tokio::test]
async fn the_server_may_close_early_and_the_client_polls_for_the_answer() {
    let mut steered = Steered::with(&[("streams.retry", "150ms")]).await;
    let (session, _link) = steered.session().await;
    let (call, mut stream) = steered.streaming_call(&session, 1).await;
    call.context.close_connection();
    assert_eq!(stream.items().await, [": stream", "prime", "hello", "retry 150"]);
    assert!(stream.is_complete());
    call.answer(&json!({}));
    assert_eq!(session.resume(&stream.last_id()).await.rest().await, ["result 1"]);
}

#[tokio::test]
async fn the_server_does_not_close_early_on_older_clients() {
    let mut steered = Steered::start().await;
    let session = Session::of_revision(steered.address(), "2025-06-18").await;
    let (call, mut stream) = steered.streaming_call(&session, 1).await;
    call.context.close_connection();
    say(&call, "still here").await;
    call.answer(&json!({}));
    assert_eq!(stream.items().await, [": stream", "hello", "still here", "result 1"]);
}

#[tokio::test]
async fn resuming_needs_the_session_it_belongs_to() {
    let mut steered = Steered::start().await;
    let (session, _link) = steered.session().await;
    let (_call, mut stream) = steered.streaming_call(&session, 1).await;
    let id = stream.event().await.unwrap().id.unwrap();
    let nameless = Ask::get().header("Last-Event-ID", &id).send(session.server).await;
    assert_eq!(nameless.fault(), (400, -32602, "session_required".to_owned()));
    let unknown = session.get().header("Last-Event-ID", &id).header("Mcp-Session-Id", &"0".repeat(32));
    // Never a fresh stream: a client whose session is gone has to learn it.
    assert_eq!(unknown.send(session.server).await.fault(), (404, -32001, "session_not_found".to_owned()));
}
