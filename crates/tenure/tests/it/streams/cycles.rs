//! Connections that break again and again: nothing is lost, nothing comes twice, nothing changes places.

use std::time::Duration;

use serde_json::json;

use crate::support::events::Events;
use crate::support::node::{Steered, announce, say};
use crate::support::proxy::Proxy;
use crate::support::wait::within;

/// Reads this many messages, which must be numbers that follow each other.
async fn expect_numbers(stream: &mut Events, numbers: std::ops::RangeInclusive<u32>) {
    for n in numbers {
        assert_eq!(stream.heard().await, n.to_string());
    }
}

#[tokio::test]
async fn events_go_on_being_added_while_the_client_is_away_cycle_after_cycle() {
    let mut steered = Steered::start().await;
    let (session, link) = steered.session().await;
    let mut stream = session.listen().await;
    let mut said = 0;
    // What the client reads in each cycle; as many again are sent before it comes back.
    for (first, last) in [(1, 10), (11, 15), (16, 20), (21, 25)] {
        while said < last + 3 {
            said += 1;
            announce(&link, &said.to_string()).await;
        }
        expect_numbers(&mut stream, first..=last).await;
        let id = stream.last_id();
        drop(stream);
        said += 1;
        announce(&link, &said.to_string()).await;
        stream = session.resume(&id).await;
    }
    expect_numbers(&mut stream, 26..=said).await;
    announce(&link, "live").await;
    assert_eq!(stream.heard().await, "live");
}

/// The stream and the position that an event id names.
fn parts(id: &str) -> (u32, u64) {
    let parts: Vec<_> = id.split('-').collect();
    assert_eq!(parts.len(), 3, "{id}");
    (u32::from_str_radix(parts[0], 16).unwrap(), u64::from_str_radix(parts[1], 16).unwrap())
}

#[tokio::test]
async fn ids_differ_across_connections_and_name_their_stream() {
    let mut steered = Steered::start().await;
    let (session, link) = steered.session().await;
    let mut stream = session.listen().await;
    let mut given = vec![parts(&stream.event().await.unwrap().id.unwrap())];
    for _ in 0..5 {
        for _ in 0..3 {
            announce(&link, "news").await;
            let next = parts(&stream.message().await.unwrap().0);
            assert!(next.0 == given[0].0 && !given.contains(&next), "{next:?} after {given:?}");
            given.push(next);
        }
        stream = session.resume(&stream.last_id()).await;
    }
    let (_call, mut other) = steered.streaming_call(&session, 1).await;
    let elsewhere = parts(&other.message().await.unwrap().0);
    assert_ne!(elsewhere.0, given[0].0);
    assert!(given.iter().all(|(_, place)| *place != elsewhere.1), "positions are unique in the session");
}

#[tokio::test]
async fn a_long_replay_is_complete_and_in_order() {
    let mut steered = Steered::start().await;
    let (session, _link) = steered.session().await;
    let (call, mut stream) = steered.streaming_call(&session, 1).await;
    stream.heard().await;
    let id = stream.last_id();
    drop(stream);
    for n in 1..=3000 {
        say(&call, &n.to_string()).await;
    }
    let mut resumed = session.resume(&id).await;
    expect_numbers(&mut resumed, 1..=3000).await;
    call.answer(&json!({}));
    assert_eq!(resumed.rest().await, ["result 1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_comes_back_while_events_pour_in_misses_none() {
    let mut steered = Steered::start().await;
    let (session, _link) = steered.session().await;
    let (call, mut stream) = steered.streaming_call(&session, 1).await;
    stream.heard().await;
    let pour = tokio::spawn(async move {
        for n in 1..=2000 {
            say(&call, &n.to_string()).await;
            if n % 16 == 0 {
                tokio::task::yield_now().await;
            }
        }
        call.answer(&json!({}));
    });
    let mut next = 1;
    while next <= 2000 {
        let reads = 1 + next % 97;
        for _ in 0..reads.min(2001 - next) {
            assert_eq!(stream.heard().await, next.to_string());
            next += 1;
        }
        stream = session.resume(&stream.last_id()).await;
    }
    assert_eq!(stream.rest().await, ["result 1"]);
    within("the call is answered", pour).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_resets_connections_loses_nothing() {
    let mut steered = Steered::start().await;
    let proxy = Proxy::to(steered.address()).await;
    let (session, _link) = steered.session().await;
    let (call, mut stream) = steered.streaming_call(&session, 1).await;
    stream.heard().await;
    let mut last = stream.last_id();
    let through = session.moved_to(proxy.address());
    let pour = tokio::spawn(async move {
        for n in 1..=300 {
            say(&call, &n.to_string()).await;
            // The cuts have to fall in between.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        call.answer(&json!({}));
    });
    let mut heard = Vec::new();
    while heard.last().is_none_or(|gist: &String| gist != "result 1") {
        let mut stream = through.resume(&last).await;
        for _ in 0..20 {
            let Some((id, message)) = stream.message().await else { break };
            heard.push(crate::support::events::gist(&message));
            last = id;
        }
        proxy.cut();
    }
    let expected: Vec<_> = (1..=300).map(|n| n.to_string()).chain(["result 1".to_owned()]).collect();
    assert_eq!(heard, expected);
    assert!(proxy.accepted() >= 15);
    within("the call is answered", pour).await.unwrap();
}
