//! `notifications/cancelled`: the only way to withdraw a request.

use serde_json::{Value, json};

use crate::support::node::{Steered, demo, say};
use crate::support::session::{Session, notification};
use crate::support::wait::within;

fn cancel(id: &Value) -> Value {
    let mut message = notification("notifications/cancelled");
    message["params"] = json!({ "requestId": id, "reason": "changed my mind" });
    message
}

#[tokio::test]
async fn a_cancelled_stream_ends_without_an_answer() {
    let mut steered = Steered::start().await;
    let (session, _link) = steered.session().await;
    let (call, mut stream) = steered.streaming_call(&session, 1).await;
    let response = session.post(&cancel(&json!(1))).send(session.server).await;
    assert_eq!((response.status(), response.body.len()), (202, 0));
    within("the handler is told", call.context.cancelled()).await;
    assert!(call.context.progress(1.0, None, None).await.is_ok(), "progress without a token says nothing");
    call.answer(&json!({ "too": "late" }));
    assert_eq!(stream.rest().await, ["hello"]);
    assert!(stream.is_complete());
    assert_eq!(session.resume(&stream.last_id()).await.rest().await, Vec::<String>::new(), "nor later");
}

#[tokio::test]
async fn a_request_cancelled_before_it_said_anything_is_answered_with_an_empty_stream() {
    let mut steered = Steered::with(&[("streams.json_wait", "0s")]).await;
    let (session, _link) = steered.session().await;
    let connection = session.request(1, "tools/call", &json!({})).begin(session.server).await;
    let call = steered.script.call().await;
    assert_eq!(session.post(&cancel(&json!(1))).send(session.server).await.status(), 202);
    let mut stream = connection.events().await;
    assert_eq!(stream.rest().await, Vec::<String>::new());
    assert!(stream.is_complete());
    assert!(call.context.is_cancelled());
}

#[tokio::test]
async fn a_cancelled_id_may_be_used_again() {
    let mut steered = Steered::start().await;
    let (session, _link) = steered.session().await;
    let (first, mut stream) = steered.streaming_call(&session, 1).await;
    session.post(&cancel(&json!(1))).send(session.server).await;
    assert_eq!(stream.rest().await, ["hello"]);
    let (second, mut stream) = steered.streaming_call(&session, 1).await;
    first.answer(&json!({ "of": "the first" }));
    say(&second, "second").await;
    second.answer(&json!({ "of": "the second" }));
    assert_eq!((stream.heard().await, stream.heard().await), ("hello".to_owned(), "second".to_owned()));
    assert_eq!(stream.message().await.unwrap().1["result"]["of"], "the second");
}

#[tokio::test]
async fn ids_are_compared_as_json_when_cancelling() {
    let mut steered = Steered::start().await;
    let (session, _link) = steered.session().await;
    let body = r#"{"jsonrpc":"2.0","id":"\u0061b","method":"tools/call","params":{}}"#;
    let connection = session.post_raw(body).begin(session.server).await;
    let call = steered.script.call().await;
    say(&call, "hello").await;
    let mut stream = connection.events().await;
    for other in [json!("abc"), json!(1), json!(null), json!({})] {
        assert_eq!(
            session.post(&cancel(&other)).send(session.server).await.status(),
            202,
            "unknown ids are ignored"
        );
    }
    assert!(!call.context.is_cancelled());
    session.post(&cancel(&json!("ab"))).send(session.server).await;
    assert_eq!(stream.rest().await, ["hello"]);
}

#[tokio::test]
async fn one_session_cannot_cancel_the_requests_of_another() {
    let mut steered = Steered::start().await;
    let (mine, _) = steered.session().await;
    let (other, _) = steered.session().await;
    let (call, mut stream) = steered.streaming_call(&mine, 1).await;
    assert_eq!(other.post(&cancel(&json!(1))).send(other.server).await.status(), 202);
    assert!(!call.context.is_cancelled());
    call.answer(&json!({}));
    assert_eq!(stream.rest().await, ["hello", "result 1"]);
}

#[tokio::test]
async fn cancelling_stops_the_work_of_the_demo() {
    let node = demo().await;
    let session = Session::start(node.address()).await;
    let params =
        json!({ "name": "long_task", "arguments": { "seconds": 3600 }, "_meta": { "progressToken": 1 } });
    let mut stream = session.request(1, "tools/call", &params).open(node.address()).await;
    assert_eq!(stream.message().await.unwrap().1["method"], "notifications/progress");
    session.post(&cancel(&json!(1))).send(node.address()).await;
    assert_eq!(stream.rest().await, Vec::<String>::new());
    within("nothing is left to wait for", node.stop()).await;
}

#[tokio::test]
async fn a_request_that_takes_too_long_is_answered_with_an_error_and_its_handler_told() {
    let mut steered = Steered::with(&[("timeouts.request", "300ms")]).await;
    let (session, _link) = steered.session().await;
    let (call, mut stream) = steered.streaming_call(&session, 1).await;
    assert_eq!(stream.rest().await, ["hello", "error 1 timed_out"]);
    assert!(call.context.is_cancelled());
}
