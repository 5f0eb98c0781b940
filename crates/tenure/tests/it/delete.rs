//! The client ends its session, and nothing brings it back.

use serde_json::json;

use crate::support::client::Ask;
use crate::support::events::gist;
use crate::support::node::{Steered, demo, demo_with};
use crate::support::session::{Session, initialize_params, notification, request};
use crate::support::wait::until;

#[tokio::test]
async fn delete_is_204_without_a_body() {
    let node = demo().await;
    let session = Session::start(node.address()).await;
    let response = session.delete().send(node.address()).await;
    assert_eq!((response.status(), response.body.len()), (204, 0));
    assert_eq!((response.header("content-length"), response.header("content-type")), (None, None));
    assert_eq!(node.sessions().tallies().sessions, 0);
}

#[tokio::test]
async fn after_delete_everything_is_404_and_says_why() {
    let node = demo().await;
    let session = Session::start(node.address()).await;
    let last_event = session.listen().await.event().await.unwrap().id.unwrap();
    assert_eq!(session.delete().send(node.address()).await.status(), 204);
    let asks = [
        session.request(1, "ping", &json!({})),
        session.request(1, "tools/list", &json!({})),
        session.request(1, "initialize", &initialize_params("2025-11-25")),
        session.post(&notification("notifications/initialized")),
        session.post_raw(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
        session.get(),
        session.get().header("Last-Event-ID", &last_event),
        session.delete(),
    ];
    for ask in asks {
        let response = ask.clone().send(node.address()).await;
        assert_eq!(response.fault(), (404, -32001, "session_deleted".to_owned()), "{ask:?}");
        assert_eq!(response.header("mcp-session-id"), None);
    }
}

#[tokio::test]
async fn delete_without_a_session_id_is_400() {
    let node = demo().await;
    let response = Ask::new("DELETE", "/mcp").send(node.address()).await;
    assert_eq!(response.fault(), (400, -32602, "session_required".to_owned()));
}

#[tokio::test]
async fn delete_leaves_other_sessions_alone() {
    let node = demo().await;
    let (gone, stays) = (Session::start(node.address()).await, Session::start(node.address()).await);
    let work = json!({ "workspace_id": stays.workspace().await, "text": "still here" });
    stays.tool(1, "session_counter_inc", &work).await;
    let mut stream = stays.listen().await;
    assert_eq!(gone.delete().send(node.address()).await.status(), 204);
    let response = stays.tool(2, "session_counter_get", &work).await;
    assert_eq!(response.json()["result"]["structuredContent"]["counter"], 1);
    let watch = stays.request(3, "resources/subscribe", &json!({ "uri": "demo://notebook" }));
    assert_eq!(watch.send(node.address()).await.status(), 200);
    stays.tool(4, "notebook_append", &work).await;
    let (_, message) = stream.message().await.unwrap();
    assert_eq!(message["method"], "notifications/resources/updated");
}

#[tokio::test]
async fn delete_ends_open_streams_and_tells_the_backend() {
    let mut steered = Steered::start().await;
    let (session, _link) = steered.session().await;
    let mut listening = session.listen().await;
    assert!(listening.event().await.is_some());
    assert_eq!(session.delete().send(session.server).await.status(), 204);
    assert_eq!(listening.items().await, Vec::<String>::new());
    assert!(listening.is_complete(), "an end, not a cut");
    steered.script.closed().await;
}

#[tokio::test]
async fn calls_in_flight_are_answered_when_their_session_is_deleted() {
    let mut steered = Steered::with(&[("streams.json_wait", "0s")]).await;
    let (session, _link) = steered.session().await;
    let mut quiet = session.request(1, "tools/call", &json!({})).begin(session.server).await;
    let quiet_call = steered.script.call().await;
    let (stream_call, mut stream) = steered.streaming_call(&session, 2).await;
    assert_eq!(session.delete().send(session.server).await.status(), 204);
    let answer = quiet.response().await;
    assert_eq!(gist(&answer.json()), "error 1 session_deleted");
    assert_eq!(stream.rest().await, ["hello", "error 2 session_deleted"]);
    assert!(quiet_call.context.is_cancelled() && stream_call.context.is_cancelled(), "the backend may stop");
}

#[tokio::test]
async fn a_session_can_be_deleted_before_it_is_initialized() {
    let node = demo().await;
    let session = Session::begin(node.address(), "2025-11-25").await;
    assert_eq!(session.delete().send(node.address()).await.status(), 204);
    let said = session.post(&notification("notifications/initialized")).send(node.address()).await;
    assert_eq!(said.fault().2, "session_deleted");
}

#[tokio::test]
async fn the_end_is_forgotten_after_a_while_and_the_id_stays_dead() {
    let node = demo_with(&[("session.tombstone_ttl", "20ms")]).await;
    let session = Session::start(node.address()).await;
    assert_eq!(session.delete().send(node.address()).await.status(), 204);
    let mut reasons = Vec::new();
    loop {
        let response = session.request(1, "ping", &json!({})).send(node.address()).await;
        assert_eq!(response.status(), 404);
        reasons.push(response.fault().2);
        if reasons.last().is_some_and(|reason| reason == "session_not_found") {
            break;
        }
        assert!(reasons.len() < 5000, "it is never forgotten");
    }
}

#[tokio::test]
async fn beyond_the_limit_the_oldest_ends_are_forgotten_first() {
    let node = demo_with(&[("session.max_tombstones", "2")]).await;
    let mut ended = Vec::new();
    for _ in 0..4 {
        let session = Session::start(node.address()).await;
        assert_eq!(session.delete().send(node.address()).await.status(), 204);
        ended.push(session);
    }
    let mut reasons = Vec::new();
    for session in ended {
        let response = session.request(1, "ping", &json!({})).send(node.address()).await;
        assert_eq!(response.status(), 404);
        reasons.push(response.fault().2);
    }
    assert_eq!(reasons, ["session_not_found", "session_not_found", "session_deleted", "session_deleted"]);
}

#[tokio::test]
async fn an_idle_session_expires_and_says_so() {
    let node = demo_with(&[("session.idle_ttl", "30ms")]).await;
    let session = Session::begin(node.address(), "2025-11-25").await;
    until("the session expires", || node.sessions().tallies().sessions == 0).await;
    let response = session.post(&request(1, "ping", &json!({}))).send(node.address()).await;
    assert_eq!(response.fault(), (404, -32001, "session_expired".to_owned()));
}

#[tokio::test]
async fn a_session_that_is_too_old_expires_even_if_it_is_used() {
    let node = demo_with(&[("session.max_lifetime", "300ms"), ("session.idle_ttl", "200ms")]).await;
    let session = Session::start(node.address()).await;
    let mut stream = session.listen().await;
    stream.event().await.unwrap();
    assert_eq!(stream.rest().await, Vec::<String>::new());
    assert!(stream.is_complete());
    let response = session.request(1, "ping", &json!({})).send(node.address()).await;
    assert_eq!(response.fault(), (404, -32001, "session_expired".to_owned()));
}

#[tokio::test]
async fn a_session_with_an_open_stream_does_not_expire_for_being_idle() {
    let node = demo_with(&[("session.idle_ttl", "200ms"), ("http.keep_alive", "100ms")]).await;
    let session = Session::start(node.address()).await;
    let mut stream = session.listen().await;
    // Eight comments are several times the idle time.
    for _ in 0..8 {
        assert!(stream.next().await.is_some());
    }
    assert_eq!(session.request(1, "ping", &json!({})).send(node.address()).await.status(), 200);
    drop(stream);
    until("the session expires once it has no reader", || node.sessions().tallies().sessions == 0).await;
}
