//! Notifications of a server: subscriptions and changes of lists, by one listen for each session.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_protocol::{Method, Reason, RpcError};
use tenure_session::session::Reader;
use tenure_session::{Principal, Session};
use tenure_testkit::fake_responder::{FakeRequest, discovery};
use tenure_testkit::runtime::json_of;

use crate::over_exchanges::support::{World, next, send};

/// A session whose server offers every notification, its listen, and the client's reader.
async fn listening(world: &mut World) -> (Arc<Session>, FakeRequest, Reader) {
    let (session, _) = world.introduced("2025-11-25", &json!({}), &discovery()).await;
    let listen = world.server.expect("subscriptions/listen").await;
    listen.acknowledge(&[]).await;
    let reader = session.listen(None).await.unwrap();
    (session, listen, reader)
}

fn filter(listen: &FakeRequest) -> Value {
    listen.params()["notifications"].clone()
}

/// A listen's news.
async fn tell(listen: &FakeRequest, method: Method, uri: Option<&str>) {
    let mut params = json!({ "_meta": listen.subscription() });
    if let Some(uri) = uri {
        params["uri"] = json!(uri);
    }
    listen.say(&method, &params).await;
}

/// The next notification of the client, in short.
async fn hear(reader: &mut Reader) -> String {
    let message = next(reader).await;
    assert_eq!(message["params"]["_meta"], Value::Null, "{message}");
    let method = message["method"].as_str().unwrap().trim_start_matches("notifications/").to_owned();
    match message["params"]["uri"].as_str() {
        Some(uri) => format!("{method} {uri}"),
        None => method,
    }
}

async fn subscribe(world: &mut World, session: &Arc<Session>, uri: &str) -> (FakeRequest, Value) {
    let waiting = send(session, 1, "resources/subscribe", &json!({ "uri": uri }));
    let listen = world.server.expect("subscriptions/listen").await;
    listen.acknowledge(&[]).await;
    (listen, json_of(waiting.await.unwrap()))
}

#[tokio::test]
async fn a_client_that_is_ready_hears_of_the_lists_that_its_server_tells_of() {
    let mut world = World::new();
    let (_session, listen, mut reader) = listening(&mut world).await;
    assert_eq!(filter(&listen), json!({ "toolsListChanged": true, "resourcesListChanged": true }));
    assert_eq!(listen.meta("protocolVersion"), "2026-07-28");
    tell(&listen, Method::ToolsListChanged, None).await;
    tell(&listen, Method::ResourcesListChanged, None).await;
    assert_eq!(hear(&mut reader).await, "tools/list_changed");
    assert_eq!(hear(&mut reader).await, "resources/list_changed");
    // Notifications that were not asked for, or that no listen may send, are dropped.
    tell(&listen, Method::PromptsListChanged, None).await;
    tell(&listen, Method::ResourceUpdated, Some("a:b")).await;
    tell(&listen, Method::LogMessage, None).await;
    tell(&listen, Method::ToolsListChanged, None).await;
    assert_eq!(hear(&mut reader).await, "tools/list_changed");
}

#[tokio::test]
async fn a_subscription_is_a_new_listen_in_place_of_the_old_one() {
    let mut world = World::new();
    let (session, old, mut reader) = listening(&mut world).await;
    let waiting = send(&session, 1, "resources/subscribe", &json!({ "uri": "a:b" }));
    let new = world.server.expect("subscriptions/listen").await;
    let all = json!({
        "toolsListChanged": true, "resourcesListChanged": true, "resourceSubscriptions": ["a:b"],
    });
    assert_eq!(filter(&new), all);
    assert_ne!(new.id(), old.id());
    assert!(!old.is_dropped(), "the old one is needed until the new one is acknowledged");
    // Both listens report it, since both were open when it happened.
    tell(&old, Method::ToolsListChanged, None).await;
    new.acknowledge(&[]).await;
    tell(&new, Method::ToolsListChanged, None).await;
    assert_eq!(json_of(waiting.await.unwrap())["result"], json!({}));
    old.dropped().await;
    assert_eq!(hear(&mut reader).await, "tools/list_changed");
    tell(&new, Method::ResourceUpdated, Some("a:b")).await;
    assert_eq!(hear(&mut reader).await, "resources/updated a:b", "heard once, not twice");
    // The resource is already watched, so no listen is opened.
    let waiting = send(&session, 2, "resources/subscribe", &json!({ "uri": "a:b" }));
    assert_eq!(json_of(waiting.await.unwrap())["result"], json!({}));
    assert!(world.server.is_quiet());
    let waiting = send(&session, 3, "resources/unsubscribe", &json!({ "uri": "a:b" }));
    assert_eq!(json_of(waiting.await.unwrap())["result"], json!({}));
    // The session does not want this any more, though the server still sends it.
    tell(&new, Method::ResourceUpdated, Some("a:b")).await;
    let without = world.server.expect("subscriptions/listen").await;
    assert_eq!(filter(&without), json!({ "toolsListChanged": true, "resourcesListChanged": true }));
    without.acknowledge(&[]).await;
    new.dropped().await;
    tell(&without, Method::ResourcesListChanged, None).await;
    assert_eq!(hear(&mut reader).await, "resources/list_changed");
}

#[tokio::test]
async fn a_subscription_that_the_server_does_not_honour_fails() {
    let mut world = World::new();
    let (session, old, mut reader) = listening(&mut world).await;
    let waiting = send(&session, 1, "resources/subscribe", &json!({ "uri": "no:no" }));
    let new = world.server.expect("subscriptions/listen").await;
    new.acknowledge(&["no:no"]).await;
    assert_eq!(json_of(waiting.await.unwrap())["error"]["code"], -32602);
    old.dropped().await;
    tell(&new, Method::ToolsListChanged, None).await;
    assert_eq!(hear(&mut reader).await, "tools/list_changed");
    let (next, answer) = subscribe(&mut world, &session, "a:b").await;
    assert_eq!(answer["result"], json!({}));
    assert_eq!(filter(&next)["resourceSubscriptions"], json!(["a:b"]), "it is not asked for again");
}

#[tokio::test]
async fn a_listen_that_fails_is_an_error_and_the_old_one_goes_on() {
    let mut world = World::new();
    let (session, old, mut reader) = listening(&mut world).await;
    let waiting = send(&session, 1, "resources/subscribe", &json!({ "uri": "a:b" }));
    let new = world.server.expect("subscriptions/listen").await;
    tell(&old, Method::ToolsListChanged, None).await;
    new.fail(RpcError::of(Reason::BackendUnavailable, "not now"));
    assert_eq!(json_of(waiting.await.unwrap())["error"]["code"], -31011);
    assert_eq!(hear(&mut reader).await, "tools/list_changed");
    assert!(!old.is_dropped());
    tell(&old, Method::ResourcesListChanged, None).await;
    assert_eq!(hear(&mut reader).await, "resources/list_changed");
}

#[tokio::test]
async fn subscriptions_that_come_together_share_a_listen() {
    let mut world = World::new();
    let (session, _old, _reader) = listening(&mut world).await;
    let first = send(&session, 1, "resources/subscribe", &json!({ "uri": "a:1" }));
    let listen = world.server.expect("subscriptions/listen").await;
    let others: Vec<_> = (2..50)
        .map(|n| send(&session, n, "resources/subscribe", &json!({ "uri": format!("a:{n}") })))
        .collect();
    while session.info().calls.len() < 49 {
        tokio::task::yield_now().await;
    }
    listen.acknowledge(&[]).await;
    assert_eq!(json_of(first.await.unwrap())["result"], json!({}));
    let listen = world.server.expect("subscriptions/listen").await;
    assert_eq!(filter(&listen)["resourceSubscriptions"].as_array().unwrap().len(), 49);
    listen.acknowledge(&["a:7"]).await;
    for (n, other) in (2..50).zip(others) {
        let answer = json_of(other.await.unwrap());
        assert_eq!(answer["error"].is_object(), n == 7, "{answer}");
    }
    assert!(world.server.is_quiet());
}

#[tokio::test(start_paused = true)]
async fn a_listen_that_ends_is_opened_again_and_the_client_told_of_all_it_may_have_missed() {
    let mut world = World::new();
    let (session, _old, mut reader) = listening(&mut world).await;
    let (listen, _) = subscribe(&mut world, &session, "a:b").await;
    let mut pauses = Vec::new();
    let mut last = tokio::time::Instant::now();
    listen.fail(RpcError::of(Reason::BackendUnavailable, "the stream broke"));
    for _ in 0..4 {
        let again = world.server.expect("subscriptions/listen").await;
        pauses.push(last.elapsed());
        last = tokio::time::Instant::now();
        again.fail(RpcError::of(Reason::BackendUnavailable, "still down"));
    }
    assert!(pauses.iter().all(|pause| *pause >= Duration::from_millis(250)), "{pauses:?}");
    assert!(pauses[3] > pauses[0], "{pauses:?}");
    let again = world.server.expect("subscriptions/listen").await;
    assert_eq!(filter(&again)["resourceSubscriptions"], json!(["a:b"]));
    again.acknowledge(&[]).await;
    let mut heard = Vec::new();
    for _ in 0..3 {
        heard.push(hear(&mut reader).await);
    }
    assert_eq!(heard, ["tools/list_changed", "resources/list_changed", "resources/updated a:b"]);
    // A listen that ended normally is opened again too; and soon, since it had lasted.
    tokio::time::sleep(Duration::from_secs(61)).await;
    again.answer(&json!({ "resultType": "complete" }));
    world.server.expect("subscriptions/listen").await.acknowledge(&[]).await;
    assert_eq!(hear(&mut reader).await, "tools/list_changed");
}

#[tokio::test(start_paused = true)]
async fn a_listen_that_ends_as_soon_as_it_began_is_opened_less_and_less_often() {
    let mut world = World::new();
    let (_session, mut listen, _reader) = listening(&mut world).await;
    let mut pauses = Vec::new();
    for _ in 0..5 {
        let before = tokio::time::Instant::now();
        listen.answer(&json!({ "resultType": "complete" }));
        listen = world.server.expect("subscriptions/listen").await;
        listen.acknowledge(&[]).await;
        pauses.push(before.elapsed());
    }
    assert!(pauses[4] > 4 * pauses[0], "{pauses:?}");
}

#[tokio::test]
async fn what_is_watched_stays_so_when_something_else_fails() {
    let mut world = World::new();
    let (session, _old, mut reader) = listening(&mut world).await;
    let (listen, _) = subscribe(&mut world, &session, "a:1").await;
    let other = send(&session, 2, "resources/subscribe", &json!({ "uri": "a:2" }));
    let new = world.server.expect("subscriptions/listen").await;
    let again = send(&session, 3, "resources/subscribe", &json!({ "uri": "a:1" }));
    while session.info().calls.len() < 2 {
        tokio::task::yield_now().await;
    }
    new.fail(RpcError::new(-32603, "no"));
    assert_eq!(json_of(other.await.unwrap())["error"]["code"], -32603);
    assert_eq!(json_of(again.await.unwrap())["result"], json!({}));
    tell(&listen, Method::ResourceUpdated, Some("a:1")).await;
    assert_eq!(hear(&mut reader).await, "resources/updated a:1");
    assert!(!listen.is_dropped() && world.server.is_quiet());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_will_not_be_listened_to_is_asked_once() {
    let mut world = World::new();
    let (session, _) = world.introduced("2025-11-25", &json!({}), &discovery()).await;
    let listen = world.server.expect("subscriptions/listen").await;
    listen.fail(RpcError::new(-32601, "no listens here"));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(world.server.is_quiet());
    // A new subscription is asked for again.
    let (listen, answer) = subscribe(&mut world, &session, "a:b").await;
    assert_eq!(answer["result"], json!({}));
    assert_eq!(filter(&listen)["toolsListChanged"], true);
}

#[tokio::test]
async fn a_subscription_that_is_withdrawn_is_none() {
    let mut world = World::new();
    let (session, _old, _reader) = listening(&mut world).await;
    let waiting = send(&session, 1, "resources/subscribe", &json!({ "uri": "a:b" }));
    let listen = world.server.expect("subscriptions/listen").await;
    let params = tenure_protocol::RawJson::trusted(r#"{"requestId":1}"#);
    let cancelled = tenure_protocol::Notification { method: Method::Cancelled, params: Some(params) };
    session.notification(cancelled).unwrap();
    assert!(matches!(waiting.await.unwrap(), tenure_session::Answer::Withdrawn));
    listen.acknowledge(&[]).await;
    let without = world.server.expect("subscriptions/listen").await;
    assert_eq!(filter(&without), json!({ "toolsListChanged": true, "resourcesListChanged": true }));
}

#[tokio::test]
async fn a_session_that_ends_closes_its_listen() {
    let mut world = World::new();
    let (session, listen, _reader) = listening(&mut world).await;
    world.sessions.delete(session.id(), &Principal::ANONYMOUS).await.unwrap();
    listen.dropped().await;
}

#[tokio::test]
async fn a_session_that_is_woken_listens_again_to_all_it_watched() {
    let mut world = World::new();
    let (session, _old, _reader) = listening(&mut world).await;
    for uri in ["a:1", "a:2", "a:3"] {
        assert_eq!(subscribe(&mut world, &session, uri).await.1["result"], json!({}));
    }
    session.saved().await;
    let mut world = world.killed();
    let (id, sessions) = (*session.id(), world.sessions.clone());
    let finding = tokio::spawn(async move { sessions.find(&id, &Principal::ANONYMOUS).await });
    world.server.discovered().await;
    // No subscription waits for the server, or the session would not wake before it answers.
    let session = finding.await.unwrap().unwrap();
    let mut reader = session.listen(None).await.unwrap();
    let listen = loop {
        let listen = world.server.expect("subscriptions/listen").await;
        listen.acknowledge(&[]).await;
        if filter(&listen)["resourceSubscriptions"].as_array().is_some_and(|uris| uris.len() == 3) {
            break listen;
        }
    };
    let mut heard: Vec<_> = Vec::new();
    while heard.len() < 3 {
        heard.push(hear(&mut reader).await);
    }
    tell(&listen, Method::ResourceUpdated, Some("a:2")).await;
    assert_eq!(hear(&mut reader).await, "resources/updated a:2");
}
