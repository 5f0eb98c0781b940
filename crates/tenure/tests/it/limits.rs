//! Every bound, reached on purpose.

use serde_json::json;

use crate::support::events::gist;
use crate::support::node::{Steered, demo_with, say};
use crate::support::session::{Session, initialize};
use crate::support::wait::{until, within};

#[tokio::test]
async fn beyond_the_most_sessions_a_client_is_told_to_try_later() {
    let node = demo_with(&[("session.max_sessions", "3")]).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(Session::start(node.address()).await);
    }
    let refused = initialize("2025-11-25").send(node.address()).await;
    assert_eq!(refused.fault(), (503, -31029, "too_many_sessions".to_owned()));
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.header("mcp-session-id"), None);
    assert_eq!(refused.json()["error"]["data"]["limit"], 3);
    assert_eq!(refused.json()["id"], 0);
    // Those there are work on, and a seat that comes free is taken.
    assert_eq!(held[0].request(1, "tools/list", &json!({})).send(node.address()).await.status(), 200);
    assert_eq!(held[1].delete().send(node.address()).await.status(), 204);
    Session::start(node.address()).await;
    assert_eq!(initialize("2025-11-25").send(node.address()).await.status(), 503);
}

#[tokio::test]
async fn a_seat_is_free_again_when_its_session_expires() {
    let node = demo_with(&[("session.max_sessions", "1"), ("session.idle_ttl", "30ms")]).await;
    Session::begin(node.address(), "2025-11-25").await;
    until("the session expires", || node.sessions().tallies().sessions == 0).await;
    Session::begin(node.address(), "2025-11-25").await;
}

#[tokio::test]
async fn beyond_the_most_sessions_of_one_principal_it_is_429() {
    let node = demo_with(&[("session.max_per_principal", "2")]).await;
    for _ in 0..2 {
        Session::start(node.address()).await;
    }
    let refused = initialize("2025-11-25").send(node.address()).await;
    assert_eq!(refused.fault(), (429, -31029, "too_many_sessions_of_principal".to_owned()));
    assert_eq!(refused.header("retry-after"), Some("1"));
}

#[tokio::test]
async fn beyond_the_most_requests_in_flight_one_is_refused_in_band_and_the_session_lives() {
    let mut steered = Steered::with(&[("session.max_pending", "2")]).await;
    let (session, _link) = steered.session().await;
    let (one, mut first) = steered.streaming_call(&session, 1).await;
    let (_two, _second) = steered.streaming_call(&session, 2).await;
    let refused = session.request(3, "tools/list", &json!({})).send(session.server).await;
    // In band, because some SDKs give up on any 4xx.
    assert_eq!(refused.fault(), (200, -31029, "too_many_requests".to_owned()));
    assert_eq!((refused.header("retry-after"), &refused.json()["id"]), (Some("1"), &json!(3)));
    assert_eq!(
        session.request(4, "ping", &json!({})).send(session.server).await.status(),
        200,
        "ping costs nothing"
    );
    one.answer(&json!({}));
    assert_eq!(first.rest().await, ["hello", "result 1"]);
    let mut connection = session.request(3, "tools/list", &json!({})).begin(session.server).await;
    steered.script.call().await.answer(&json!({}));
    assert_eq!(gist(&connection.response().await.json()), "result 3");
}

#[tokio::test]
async fn a_withdrawn_request_counts_until_its_handler_has_stopped() {
    let mut steered = Steered::with(&[("session.max_pending", "1")]).await;
    let (session, _link) = steered.session().await;
    let (call, mut stream) = steered.streaming_call(&session, 1).await;
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } });
    session.post(&cancel).send(session.server).await;
    assert_eq!(stream.rest().await, ["hello"]);
    // Else cancelling would be a way around the limit.
    let refused = session.request(2, "tools/list", &json!({})).send(session.server).await;
    assert_eq!(refused.fault().2, "too_many_requests");
    call.answer(&json!({}));
    // The handler's end is not announced; from then on there is room again.
    let admitted = async {
        loop {
            let mut connection = session.request(3, "tools/list", &json!({})).begin(session.server).await;
            tokio::select! {
                call = steered.script.call() => {
                    call.answer(&json!({}));
                    return gist(&connection.response().await.json());
                }
                refused = connection.response() => assert_eq!(refused.fault().2, "too_many_requests"),
            }
        }
    };
    assert_eq!(within("there is room again", admitted).await, "result 3");
}

#[tokio::test]
async fn beyond_the_most_streams_a_request_is_refused_in_band_and_a_get_with_429() {
    let mut steered = Steered::with(&[("streams.max_streams", "2")]).await;
    let (session, _link) = steered.session().await;
    let (one, mut first) = steered.streaming_call(&session, 1).await;
    let (_two, _second) = steered.streaming_call(&session, 2).await;
    let refused = session.request(3, "tools/call", &json!({})).send(session.server).await;
    assert_eq!(refused.fault(), (200, -31029, "too_many_streams".to_owned()));
    let refused = session.get().send(session.server).await;
    assert_eq!(refused.fault(), (429, -31029, "too_many_streams".to_owned()));
    assert_eq!(refused.header("retry-after"), Some("1"));
    // Resuming one that is there opens no other.
    first.heard().await;
    let mut resumed = session.resume(&first.last_id()).await;
    one.answer(&json!({}));
    assert_eq!(resumed.rest().await, ["result 1"]);
    drop((first, resumed));
    until("the stream is let go", || steered.node.sessions().list()[0].readers == 1).await;
    session.listen().await;
}

#[tokio::test]
async fn the_log_of_a_session_is_bounded_in_bytes() {
    let mut steered = Steered::with(&[("streams.max_session_bytes", "64KiB")]).await;
    let (session, _link) = steered.session().await;
    let (call, mut stream) = steered.streaming_call(&session, 1).await;
    stream.heard().await;
    let early = stream.last_id();
    drop(stream);
    for _ in 0..500 {
        say(&call, &"x".repeat(1000)).await;
    }
    assert!(steered.node.sessions().list()[0].events < 65);
    call.answer(&json!({}));
    let mut resumed = session.resume(&early).await;
    let kept = resumed.rest().await.len();
    assert!((2..=65).contains(&kept), "{kept}");
    assert!(resumed.raw().contains(": gap"));
}
