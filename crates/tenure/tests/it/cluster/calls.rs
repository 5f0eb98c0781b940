//! Requests that reach another node than the one that has their session.

use serde_json::json;
use tenure_testkit::fake_backend::BackendEvent;

use super::world::Shared;
use crate::support::client::Response;
use crate::support::session::{Session, notification, request};
use crate::support::wait::{until, within};

/// A response without the things that differ between any two responses.
fn shown(response: &Response) -> (u16, Vec<(&'static str, Option<String>)>, String) {
    let names = ["content-type", "mcp-session-id", "retry-after", "allow", "content-length"];
    let headers = names.map(|name| (name, response.header(name).map(str::to_owned)));
    (response.status(), headers.to_vec(), response.text())
}

// B1
#[tokio::test]
async fn a_call_is_carried_out_where_its_session_is_and_answered_unchanged() {
    let (mut one, other) = Shared::new(&[]).pair().await;
    let session = one.session().await;
    for node in [one.address, other.address] {
        let ask = session.request(1, "tools/call", &json!({ "name": "any" }));
        let (response, ()) = tokio::join!(ask.send(node), async {
            one.script.call().await.answer(&json!({ "content": [], "odd": 1.50, "größe": "∞" }));
        });
        assert_eq!(response.status(), 200, "{response:?}");
        assert_eq!(response.json()["result"]["größe"], "∞");
        assert_eq!(response.header("mcp-session-id"), Some(session.id.as_str()));
    }
}

// B1
#[tokio::test]
async fn every_answer_is_the_same_at_every_node() {
    let (mut one, other) = Shared::new(&[("session.max_pending", "1")]).pair().await;
    let session = one.session().await;
    let stranger = Session { id: "0".repeat(32), ..session.clone() };
    let asks = || {
        vec![
            session.request(1, "ping", &json!({})),
            session.request(1, "initialize", &json!({})),
            session.post(&notification("notifications/progress")),
            session.post(&json!({ "jsonrpc": "2.0", "id": 77, "result": {} })),
            session.post_raw("{"),
            session.post_raw("[]"),
            session.post(&request(1, "ping", &json!({}))).without("Accept"),
            session.post(&request(1, "ping", &json!({}))).header("MCP-Protocol-Version", "1999-01-01"),
            session.get().without("Accept"),
            session.get().header("Last-Event-ID", "1-a-00000000"),
            stranger.request(1, "ping", &json!({})),
            stranger.delete(),
            stranger.get(),
        ]
    };
    for (here, there) in asks().into_iter().zip(asks()) {
        let text = String::from_utf8_lossy(&here.bytes()).into_owned();
        if text.contains("Last-Event-ID") {
            continue;
        }
        let (here, there) = (here.send(one.address).await, there.send(other.address).await);
        assert_eq!(shown(&here), shown(&there), "{text}");
    }
}

// B6
#[tokio::test]
async fn a_new_session_is_found_by_every_node_at_once() {
    let shared = Shared::new(&[("session.max_sessions", "5000"), ("session.max_per_principal", "5000")]);
    let (one, other) = (shared.demo().await, shared.demo().await);
    let mut tries = tokio::task::JoinSet::new();
    for lane in 0..8 {
        let (one, other) = (one.address(), other.address());
        tries.spawn(async move {
            for number in 0..125 {
                let session = Session::start(if number % 2 == 0 { one } else { other }).await;
                let elsewhere = if number % 2 == 0 { other } else { one };
                let pong = session.request(1, "tools/list", &json!({})).send(elsewhere).await;
                assert_eq!(pong.status(), 200, "{lane} {number}: {pong:?}");
                assert!(pong.json()["result"]["tools"].is_array(), "{pong:?}");
            }
        });
    }
    while let Some(tried) = tries.join_next().await {
        tried.unwrap();
    }
}

// B8
#[tokio::test]
async fn answers_to_questions_notifications_and_cancellations_reach_the_server() {
    let (mut one, other) = Shared::new(&[]).pair().await;
    let session = one.session().await;
    let there = session.moved_to(other.address);
    let connection = there.request(5, "tools/call", &json!({ "name": "any" })).begin(other.address).await;
    let call = one.script.call().await;
    let context = std::sync::Arc::clone(&call.context);
    let asking = tokio::spawn(async move {
        context.ask(&tenure_protocol::Method::new("sampling/createMessage"), None).await
    });
    let mut events = connection.events().await;
    let (_, question) = events.message().await.expect("a question");
    assert_eq!(question["method"], "sampling/createMessage");
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "model": "m" } });
    assert_eq!(there.post(&answer).send(other.address).await.status(), 202);
    let answered = within("the answer", asking).await.unwrap().expect("a result");
    assert!(String::from_utf8_lossy(answered.bytes()).contains("\"m\""));

    let told = notification("notifications/roots/list_changed");
    assert_eq!(there.post(&told).send(other.address).await.status(), 202);
    let heard = loop {
        if let BackendEvent::Heard(heard) = one.script.next().await {
            break heard;
        }
    };
    assert_eq!(heard.method.as_str(), "notifications/roots/list_changed");

    let cancel =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 5 } });
    assert_eq!(there.post(&cancel).send(other.address).await.status(), 202);
    until("the cancellation", || call.context.is_cancelled()).await;
    assert_eq!(events.rest().await, Vec::<String>::new(), "a cancelled request has no answer");
}

// B9
#[tokio::test]
async fn an_id_in_flight_is_taken_at_every_node() {
    let (mut one, other) = Shared::new(&[]).pair().await;
    let session = one.session().await;
    let first = session.request(1, "tools/call", &json!({ "name": "any" })).begin(one.address).await;
    let call = one.script.call().await;
    let second = session.request(1, "tools/list", &json!({})).send(other.address).await;
    assert_eq!(second.json()["error"]["data"]["reason"], "duplicate_request_id", "{second:?}");
    call.answer(&json!({}));
    drop(first);
}

// B15
#[tokio::test]
async fn a_session_that_is_deleted_at_one_node_is_dead_at_all() {
    let (mut one, other) = Shared::new(&[]).pair().await;
    let session = one.session().await;
    assert_eq!(session.delete().send(other.address).await.status(), 204);
    for node in [one.address, other.address] {
        let late = session.request(1, "ping", &json!({})).send(node).await;
        assert_eq!((late.status(), late.fault().2.contains("deleted")), (404, true), "{late:?}");
    }
    assert_eq!(session.delete().send(other.address).await.status(), 404);
}

#[tokio::test]
async fn a_batch_is_answered_by_the_node_that_has_its_session() {
    let (mut one, other) = Shared::new(&[]).pair().await;
    let session = Session::of_revision(one.address, "2025-03-26").await;
    one.script.opened().await;
    let batch = json!([request(1, "ping", &json!({})), request(2, "ping", &json!({}))]);
    let mut events = session.post(&batch).open(other.address).await;
    let mut ids = Vec::new();
    while let Some((_, answer)) = events.message().await {
        ids.push(answer["id"].as_u64().unwrap());
    }
    ids.sort_unstable();
    assert_eq!(ids, [1, 2]);
}

#[tokio::test]
async fn a_client_that_hangs_up_elsewhere_does_not_end_its_call() {
    let (mut one, other) = Shared::new(&[]).pair().await;
    let session = one.session().await;
    let connection = session.request(1, "tools/call", &json!({ "name": "any" })).begin(other.address).await;
    let call = one.script.call().await;
    drop(connection);
    // The call goes on, and a later message of it is a stream that could be resumed.
    assert!(!call.context.is_cancelled());
    call.answer(&json!({}));
    let next = session.request(2, "ping", &json!({})).send(other.address).await;
    assert_eq!(next.status(), 200);
}

#[tokio::test]
async fn one_node_alone_serves_as_before() {
    let shared = Shared::new(&[]);
    let mut one = shared.node().await;
    let session = one.session().await;
    assert_eq!(session.request(1, "ping", &json!({})).send(one.address).await.status(), 200);
    assert!(shared.owner(&session).await.is_some());
}
