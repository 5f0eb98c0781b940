//! Expiry: by deadline, never while in use, never brought back.

use std::time::Duration;

use serde_json::json;
use tenure_protocol::Reason;
use tenure_session::{Limits, Principal};
use tenure_testkit::runtime::{self, json_of, send};

use crate::runtime::support::{World, request};

const MINUTE: Duration = Duration::from_secs(60);

fn limits(idle: Option<Duration>, lifetime: Option<Duration>) -> Limits {
    Limits {
        idle_ttl: idle,
        max_lifetime: lifetime,
        tombstone_ttl: 60 * MINUTE,
        dormant_after: None,
        ..Limits::default()
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_expires_and_says_so() {
    let world = World::with(limits(Some(30 * MINUTE), None));
    let session = world.session().await;
    tokio::time::sleep(29 * MINUTE).await;
    assert!(world.sessions.find(session.id(), &Principal::ANONYMOUS).await.is_ok());
    tokio::time::sleep(2 * MINUTE).await;
    let error = world.sessions.find(session.id(), &Principal::ANONYMOUS).await.unwrap_err();
    assert_eq!(error.reason(), Reason::SessionExpired);
    assert_eq!(world.sessions.tallies().sessions, 0);
    // Long after, the reason is forgotten, but the session is as dead.
    tokio::time::sleep(120 * MINUTE).await;
    let error = world.sessions.find(session.id(), &Principal::ANONYMOUS).await.unwrap_err();
    assert_eq!(error.reason(), Reason::SessionNotFound);
}

#[tokio::test(start_paused = true)]
async fn use_keeps_a_session_alive_up_to_its_lifetime() {
    let world = World::with(limits(Some(30 * MINUTE), Some(120 * MINUTE)));
    let session = world.session().await;
    for n in 0..5 {
        tokio::time::sleep(20 * MINUTE).await;
        json_of(request(&session, n, "ping").await.unwrap());
    }
    tokio::time::sleep(21 * MINUTE).await;
    assert_eq!(request(&session, 9, "ping").await.unwrap_err().reason(), Reason::SessionExpired);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_listener_and_a_long_call_are_use() {
    let mut limits = limits(Some(30 * MINUTE), None);
    limits.request_timeout = 600 * MINUTE;
    limits.max_request_time = 600 * MINUTE;
    let mut world = World::with(limits);
    let (listening, calling) = (world.session().await, world.session().await);
    let reader = listening.listen(None).await.unwrap();
    let waiting = send(&calling, runtime::request(1, "tools/call", &json!({})));
    let call = world.script.call().await;
    drop(waiting);
    tokio::time::sleep(300 * MINUTE).await;
    assert_eq!(world.sessions.list().len(), 2);
    drop(reader);
    call.answer(&json!({}));
    tokio::time::sleep(65 * MINUTE).await;
    assert_eq!(world.sessions.list().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_in_use_does_not_expire() {
    let world = World::with(limits(Some(30 * MINUTE), None));
    let session = world.session().await;
    let (first, second) = (session.in_use(), session.in_use());
    tokio::time::sleep(300 * MINUTE).await;
    drop(first);
    tokio::time::sleep(300 * MINUTE).await;
    drop(second);
    // The idle time starts anew with the last end of use.
    tokio::time::sleep(29 * MINUTE).await;
    json_of(request(&session, 1, "ping").await.unwrap());
    tokio::time::sleep(61 * MINUTE).await;
    assert_eq!(request(&session, 2, "ping").await.unwrap_err().reason(), Reason::SessionExpired);
}

#[tokio::test(start_paused = true)]
async fn a_session_without_limits_never_expires() {
    let world = World::with(limits(None, None));
    let session = world.session().await;
    tokio::time::sleep(10_000 * MINUTE).await;
    json_of(request(&session, 1, "ping").await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_idle_sessions_expire_each_at_its_own_time() {
    let world = World::with(limits(Some(30 * MINUTE), None));
    for n in 0..10_000u64 {
        world.session().await;
        if n % 100 == 99 {
            tokio::time::sleep(Duration::from_secs(6)).await;
        }
    }
    // Spread over ten minutes; the first are due thirty minutes after they came.
    assert_eq!(world.sessions.list().len(), 10_000);
    tokio::time::sleep(25 * MINUTE).await;
    let left = world.sessions.list().len();
    assert!((4_800..=5_200).contains(&left), "{left} left");
    tokio::time::sleep(6 * MINUTE).await;
    assert_eq!(world.sessions.tallies().sessions, 0);
}

#[tokio::test(start_paused = true)]
async fn a_session_expires_and_sleeps_in_its_time_though_the_clock_is_set_back() {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let expiring = World::with(limits(Some(30 * MINUTE), None));
    let sleeping = World::with(Limits { dormant_after: Some(5 * MINUTE), ..limits(None, None) });
    for world in [&expiring, &sleeping] {
        drop(world.session().await);
        world.clock.set_back(2 * DAY);
    }
    // The first look finds a use that lies ahead. From then on the session counts as idle.
    tokio::time::sleep(11 * MINUTE).await;
    assert_eq!(sleeping.sessions.tallies().awake, 0);
    tokio::time::sleep(50 * MINUTE).await;
    assert_eq!(expiring.sessions.tallies().sessions, 0);
}
