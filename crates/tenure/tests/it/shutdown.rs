//! Stopping without a store that outlives the process: what is in flight is finished, the rest is answered.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::net::TcpStream;

use crate::support::client::Connection;
use crate::support::events::gist;
use crate::support::node::{Steered, demo, demo_with, say};
use crate::support::session::{Session, initialize};
use crate::support::wait::within;

#[tokio::test]
async fn stopping_waits_for_a_call_in_flight() {
    let mut steered = Steered::start().await;
    let (session, _link) = steered.session().await;
    let (call, mut stream) = steered.streaming_call(&session, 1).await;
    let mut quiet = session.request(2, "tools/call", &json!({})).begin(session.server).await;
    let quiet_call = steered.script.call().await;
    let stopping = tokio::spawn(steered.node.stop());
    say(&call, "still working").await;
    assert_eq!(
        (stream.heard().await, stream.heard().await),
        ("hello".to_owned(), "still working".to_owned())
    );
    assert!(!stopping.is_finished());
    quiet_call.answer(&json!({}));
    assert_eq!(gist(&quiet.response().await.json()), "result 2");
    call.answer(&json!({}));
    assert_eq!(stream.rest().await, ["result 1"]);
    assert!(stream.is_complete());
    within("the node stops", stopping).await.unwrap();
}

#[tokio::test]
async fn no_new_session_is_taken_while_stopping() {
    let mut steered = Steered::start().await;
    let (session, _link) = steered.session().await;
    let (call, mut stream) = steered.streaming_call(&session, 1).await;
    let server = session.server;
    steered.node.sessions().drain();
    let refused = initialize("2025-11-25").send(server).await;
    assert_eq!(refused.fault(), (503, -31010, "draining".to_owned()));
    assert_eq!(refused.header("retry-after"), Some("1"));
    let stopping = tokio::spawn(steered.node.stop());
    // Sessions that are there go on.
    let mut other = session.request(2, "tools/list", &json!({})).begin(server).await;
    steered.script.call().await.answer(&json!({}));
    assert_eq!(gist(&other.response().await.json()), "result 2");
    assert!(!stopping.is_finished());
    call.answer(&json!({}));
    assert_eq!(stream.rest().await, ["hello", "result 1"]);
    within("the node stops", stopping).await.unwrap();
    assert!(TcpStream::connect(server).await.is_err(), "the port is closed");
}

#[tokio::test]
async fn listening_clients_are_told_when_to_come_back() {
    let node = demo_with(&[("shutdown.retry", "3s")]).await;
    let session = Session::start(node.address()).await;
    let mut stream = session.listen().await;
    stream.event().await.unwrap();
    let stopping = tokio::spawn(node.stop());
    assert_eq!(stream.items().await, ["retry 3000"]);
    assert!(stream.is_complete());
    within("the node stops", stopping).await.unwrap();
}

#[tokio::test]
async fn what_is_unfinished_after_the_grace_period_is_answered_as_interrupted() {
    let mut steered = Steered::with(&[("shutdown.grace", "100ms"), ("streams.json_wait", "0s")]).await;
    let (session, _link) = steered.session().await;
    let (call, mut stream) = steered.streaming_call(&session, 1).await;
    let mut quiet = session.request(2, "tools/call", &json!({})).begin(session.server).await;
    let quiet_call = steered.script.call().await;
    let before = Instant::now();
    let stopping = tokio::spawn(steered.node.stop());
    assert_eq!(stream.rest().await, ["hello", "error 1 interrupted"]);
    assert!(stream.is_complete());
    let answer = quiet.response().await;
    assert_eq!(gist(&answer.json()), "error 2 interrupted");
    assert_eq!(answer.json()["error"]["code"], -31010);
    within("the node stops", stopping).await.unwrap();
    assert!(before.elapsed() >= Duration::from_millis(100), "not before the grace period is over");
    drop((call, quiet_call));
}

#[tokio::test]
async fn a_batch_is_interrupted_answer_by_answer() {
    let mut steered = Steered::with(&[("shutdown.grace", "100ms")]).await;
    let session = Session::of_revision(steered.address(), "2025-03-26").await;
    let call = |id: u64| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {} });
    let mut stream = session.post(&json!([call(1), call(2), call(3)])).open(session.server).await;
    let (first, second, third) =
        (steered.script.call().await, steered.script.call().await, steered.script.call().await);
    first.answer(&json!({}));
    assert_eq!(stream.heard().await, "result 1");
    let stopping = tokio::spawn(steered.node.stop());
    let mut rest = stream.rest().await;
    rest.sort();
    assert_eq!(rest, ["error 2 interrupted", "error 3 interrupted"]);
    within("the node stops", stopping).await.unwrap();
    drop((second, third));
}

#[tokio::test]
async fn idle_and_half_open_connections_do_not_delay_the_end() {
    let node = demo().await;
    let server = node.address();
    let session = Session::start(server).await;
    let mut idle = Connection::open(server).await;
    idle.write(&session.request(1, "ping", &json!({})).bytes()).await;
    assert_eq!(idle.response().await.status(), 200);
    let mut silent = Connection::open(server).await;
    let mut half = Connection::open(server).await;
    half.write(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n").await;
    let before = Instant::now();
    within("the node stops", node.stop()).await;
    assert!(before.elapsed() < Duration::from_secs(3), "stopped in {:?}", before.elapsed());
    for connection in [&mut idle, &mut silent, &mut half] {
        assert_eq!(connection.until_closed().await, b"");
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_does_not_delay_the_end_for_long() {
    let mut steered = Steered::with(&[("shutdown.grace", "100ms")]).await;
    let (session, _link) = steered.session().await;
    let (call, stream) = steered.streaming_call(&session, 1).await;
    for _ in 0..200 {
        say(&call, &"x".repeat(64 << 10)).await;
    }
    let before = Instant::now();
    within("the node stops", steered.node.stop()).await;
    assert!(before.elapsed() < Duration::from_secs(5), "stopped in {:?}", before.elapsed());
    drop((call, stream));
}

#[tokio::test]
async fn a_backend_that_ignores_the_end_of_its_link_does_not_delay_it() {
    let mut steered = Steered::with(&[("shutdown.grace", "100ms")]).await;
    let (session, _link) = steered.session().await;
    let (call, _stream) = steered.streaming_call(&session, 1).await;
    within("the node stops", steered.node.stop()).await;
    steered.script.closed().await;
    assert!(call.context.is_cancelled());
}
