//! Which session serves which request, and how long it is kept.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::json;
use tenure_layers::bridge::{PoolLimits, Reuse};
use tenure_protocol::Reason;
use tenure_testkit::fake_backend::{BackendEvent, Opens};
use tenure_testkit::fake_client::FakeClient;

use crate::bridge::support::{World, by, tool, value};

#[tokio::test]
async fn the_session_that_was_used_last_is_used_first() {
    let mut world = World::new();
    let client = FakeClient::new(json!({}));
    let (one, two) = (world.start(tool(&client, "t")), world.start(tool(&client, "t")));
    let (first, second) = (world.script.call().await, world.script.call().await);
    assert_ne!(first.link, second.link, "a session has one request at a time");
    let last = first.link;
    second.answer(&json!({}));
    while !one.is_finished() && !two.is_finished() {
        tokio::task::yield_now().await;
    }
    first.answer(&json!({}));
    one.await.unwrap().unwrap();
    two.await.unwrap().unwrap();
    for _ in 0..3 {
        assert_eq!(world.done(tool(&client, "t")).await, last);
    }
}

#[tokio::test]
async fn principals_and_capabilities_never_share_a_session() {
    let mut world = World::new();
    let (plain, able) = (FakeClient::new(json!({})), FakeClient::new(json!({ "roots": {} })));
    let mut links = HashSet::new();
    for name in ["ann", "bob"] {
        for client in [&plain, &able] {
            links.insert(world.done(by(name, client, tool(client, "t"))).await);
        }
    }
    links.insert(world.done(tool(&plain, "t")).await);
    assert_eq!(links.len(), 5);
    // Other words for the same capabilities are the same capabilities.
    let again = FakeClient::new(json!({ "roots": { "listChanged": true }, "extensions": {} }));
    assert!(links.contains(&world.done(by("ann", &again, tool(&again, "t"))).await));
    assert_eq!(world.bridge.sessions(), 5);
}

#[tokio::test]
async fn each_request_has_a_session_of_its_own_if_so_configured() {
    let mut world = World::with(PoolLimits { reuse: Reuse::Request, ..PoolLimits::default() });
    let client = FakeClient::new(json!({}));
    let first = world.done(tool(&client, "t")).await;
    world.script.closed().await;
    assert_ne!(world.done(tool(&client, "t")).await, first);
    world.script.closed().await;
    assert_eq!(world.bridge.sessions(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_unused_session_is_closed() {
    let mut world = World::new();
    let client = FakeClient::new(json!({}));
    world.done(tool(&client, "t")).await;
    tokio::time::sleep(Duration::from_secs(59)).await;
    world.done(tool(&client, "t")).await;
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert_eq!(world.bridge.sessions(), 1);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(world.bridge.sessions(), 0);
    world.script.closed().await;
    // And the next one is closed as well.
    world.done(tool(&client, "t")).await;
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(world.bridge.sessions(), 0);
}

#[tokio::test(start_paused = true)]
async fn at_the_limit_requests_wait_and_then_are_refused() {
    let mut world = World::with(PoolLimits { max: 2, ..PoolLimits::default() });
    let client = FakeClient::new(json!({}));
    let running = [world.start(tool(&client, "t")), world.start(tool(&client, "t"))];
    let (one, two) = (world.script.call().await, world.script.call().await);
    let refused = world.start(tool(&client, "t"));
    let refused = value(refused.await.unwrap());
    assert_eq!(refused["error"]["code"], -31029);
    assert_eq!(refused["error"]["data"]["reason"], Reason::TooManyRequests.as_str());
    // A request that waits gets the session of the request that ends.
    let waiting = world.start(tool(&client, "t"));
    tokio::task::yield_now().await;
    let link = one.link;
    one.answer(&json!({}));
    let third = world.script.call().await;
    assert_eq!(third.link, link);
    third.answer(&json!({}));
    two.answer(&json!({}));
    waiting.await.unwrap().unwrap();
    for call in running {
        call.await.unwrap().unwrap();
    }
    assert_eq!(world.bridge.sessions(), 2);
}

#[tokio::test]
async fn an_unused_session_makes_room_for_another_principal() {
    let mut world = World::with(PoolLimits { max: 2, ..PoolLimits::default() });
    let client = FakeClient::new(json!({}));
    let mut closed = 0;
    for name in ["ann", "bob", "cleo", "dan"] {
        let answer = world.start(by(name, &client, tool(&client, "t")));
        loop {
            match world.script.next().await {
                BackendEvent::Call(call) => break call.answer(&json!({})),
                seen => closed += usize::from(matches!(seen, BackendEvent::Closed)),
            }
        }
        answer.await.unwrap().unwrap();
        assert!(world.bridge.sessions() <= 2);
    }
    drop(world.bridge);
    while closed < 4 {
        closed += usize::from(matches!(world.script.next().await, BackendEvent::Closed));
    }
}

#[tokio::test]
async fn a_thousand_calls_leave_no_more_sessions_than_the_limit_and_none_when_all_is_dropped() {
    let mut world = World::with(PoolLimits { max: 8, ..PoolLimits::default() });
    let clients = [FakeClient::new(json!({})), FakeClient::new(json!({ "roots": {} }))];
    let mut calls = Vec::new();
    for number in 0..1000_usize {
        let client = &clients[number % 2];
        let mut call = world.start(by(["ann", "bob", "cleo"][number % 3], client, tool(client, "t")));
        if number % 10 == 9 {
            // Some leave before they are answered.
            tokio::select! {
                biased;
                () = tokio::task::yield_now() => call.abort(),
                _ = &mut call => {}
            }
        }
        calls.push(call);
    }
    let (mut opened, mut closed, mut answered) = (0_usize, 0_usize, 0_usize);
    let mut count = |seen: BackendEvent| match seen {
        BackendEvent::Opened(_) => opened += 1,
        BackendEvent::Closed => closed += 1,
        BackendEvent::Call(call) => {
            answered += 1;
            call.answer(&json!({ "content": [] }));
        }
        BackendEvent::Heard(_) => {}
    };
    let all = futures_util::future::join_all(calls);
    tokio::pin!(all);
    loop {
        tokio::select! {
            _ = &mut all => break,
            seen = world.script.next() => count(seen),
        }
        assert!(world.bridge.sessions() <= 8, "{}", world.bridge.sessions());
    }
    let left = world.bridge.sessions();
    assert!(left <= 8, "{left}");
    world.bridge.close().await;
    assert_eq!(world.bridge.sessions(), 0);
    while opened > closed {
        match world.script.next().await {
            BackendEvent::Closed => closed += 1,
            BackendEvent::Opened(_) => opened += 1,
            _ => {}
        }
    }
    assert!(answered >= 900, "{answered}");
    assert_eq!(opened, closed);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_be_opened_is_an_error_and_leaves_nothing() {
    let world = World::new();
    for (opens, code) in [(Opens::Refuses, -31011), (Opens::Nonsense, -31011), (Opens::Hangs, -31012)] {
        world.backend.set_opens(opens);
        let answer = value(world.call("t").await.unwrap());
        assert_eq!(answer["error"]["code"], code, "{opens:?}");
        assert_eq!(world.bridge.sessions(), 0);
    }
}

#[tokio::test]
async fn nothing_is_taken_after_the_end() {
    let mut world = World::new();
    let client = FakeClient::new(json!({}));
    world.done(tool(&client, "t")).await;
    world.bridge.close().await;
    world.script.closed().await;
    let answer = value(world.call("t").await.unwrap());
    assert_eq!(answer["error"]["data"]["reason"], "draining");
}
