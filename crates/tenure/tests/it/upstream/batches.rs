//! Several messages in one, which revision 2025-03-26 allows, wherever a server upstream sends them.

use serde_json::{Value, json};

use super::gateway_with;
use super::odd::{answer, calling, news, through};
use super::server::{Asked, Server, begun};
use crate::support::session::Session;

/// The response to a request, as part of a batch.
fn response(asked: &Asked, outcome: &Value) -> Value {
    serde_json::from_str(&asked.response(outcome)).unwrap()
}

fn ping() -> Value {
    json!({ "jsonrpc": "2.0", "id": "theirs", "method": "ping" })
}

#[tokio::test]
async fn a_batch_on_a_calls_stream_is_heard_and_answers_the_call() {
    let (mut server, _front, session) = through(&[]).await;
    server.get().await.refuse("405 Method Not Allowed").await;
    let (asked, call) = calling(&mut server, &session).await;
    let last = response(&asked, &json!({ "result": {} }));
    let mut stream = asked.stream().await;
    // Only the element that is not a message is lost; the order within a batch means nothing.
    stream.event(&json!([news("one"), 7, ping(), last, news("two")])).await;
    assert_eq!(call.events().await.rest().await, ["one", "two", "result 7"]);
    assert_eq!(server.posted_answer().await.body["id"], "theirs");
}

#[tokio::test]
async fn a_batch_as_json_is_heard_and_answers_the_call() {
    let (mut server, _front, session) = through(&[]).await;
    server.get().await.refuse("405 Method Not Allowed").await;
    let (asked, call) = calling(&mut server, &session).await;
    let last = response(&asked, &json!({ "result": {} }));
    asked.answer_json(&json!([news("one"), ping(), last])).await;
    assert_eq!(call.events().await.rest().await, ["one", "result 7"]);
    assert_eq!(server.posted_answer().await.body["id"], "theirs");
}

#[tokio::test]
async fn a_batch_without_the_answer_is_none() {
    let (mut server, _front, session) = through(&[]).await;
    server.get().await.refuse("405 Method Not Allowed").await;
    let (asked, call) = calling(&mut server, &session).await;
    let other = json!({ "jsonrpc": "2.0", "id": "other", "result": {} });
    asked.answer_json(&json!([other])).await;
    assert_eq!(answer(call).await["error"]["data"]["reason"], "backend_unavailable");
}

#[tokio::test]
async fn a_batch_of_what_belongs_to_no_request_is_heard() {
    let (mut server, _front, session) = through(&[]).await;
    let mut stream = server.get().await.stream().await;
    stream.event(&json!([news("one"), ping(), news("two")])).await;
    let mut events = session.listen().await;
    assert_eq!((events.heard().await, events.heard().await), ("one".to_owned(), "two".to_owned()));
    assert_eq!(server.posted_answer().await.body["id"], "theirs");
}

#[tokio::test]
async fn a_session_may_begin_with_a_batch() {
    for as_stream in [false, true] {
        let mut server = Server::start().await;
        let front = gateway_with(server.url(), &[]).await;
        let begin = async {
            let asked = server.post("initialize").await;
            let batch = json!([news("early"), response(&asked, &begun())]);
            match as_stream {
                true => asked.stream().await.event(&batch).await,
                false => asked.answer_json(&batch).await,
            }
            server.post("notifications/initialized").await.accept().await;
        };
        let (session, ()) = tokio::join!(Session::start(front.address()), begin);
        server.get().await.refuse("405 Method Not Allowed").await;
        let (asked, call) = calling(&mut server, &session).await;
        asked.answer(&json!({ "result": {} })).await;
        assert_eq!(answer(call).await["result"], json!({}));
    }
}
