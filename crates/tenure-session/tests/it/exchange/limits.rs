//! How much may go on at once.

use serde_json::json;

use super::support::{Try, World, accepted, gist, hang_up, json_of, settle};

#[tokio::test(start_paused = true)]
async fn only_so_many_requests_are_answered_at_once() {
    let mut world = World::with(|limits| (limits.max_running, limits.max_listens) = (1, 1));
    let (one, call) = world.begin(&Try::tool()).await;
    // Listens are counted apart: they last, and must not keep calls out.
    let (two, _listen) = world.begin(&Try::listen(&json!({}))).await;
    assert_eq!(world.ask(&Try::tool()).await["refused"], "too_many_requests");
    assert_eq!(world.ask(&Try::listen(&json!({}))).await["refused"], "too_many_requests");
    assert!(world.server.is_quiet());
    assert_eq!(world.tallies().running, 2);
    hang_up(two).await;
    let (three, _listen) = world.begin(&Try::listen(&json!({}))).await;
    hang_up(three).await;
    call.answer(&json!({}));
    assert_eq!(gist(&json_of(one.await.unwrap())), "complete 1");
    world.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_its_client_runs_not_but_its_next_attempt_does() {
    let mut world = World::with(|limits| limits.max_running = 1);
    let first = Try::tool();
    let (asked, call, answered) = world.asking(&first, "elicitation/create").await;
    let (other, busy) = world.begin(&first).await;
    let again = first.again(&asked, &json!({ "q1": accepted("Ann") }));
    assert_eq!(world.ask(&again).await["refused"], "too_many_requests");
    busy.answer(&json!({}));
    json_of(other.await.unwrap());
    let second = world.send(&again);
    answered.await.unwrap().unwrap();
    call.answer(&json!({}));
    assert_eq!(gist(&json_of(second.await.unwrap())), "complete 2", "it was refused, not used up");
}

#[tokio::test(start_paused = true)]
async fn refusals_take_no_place() {
    let world = World::with(|limits| limits.max_running = 1);
    for _ in 0..10 {
        assert_eq!(
            world.ask(&Try::tool().with("requestState", json!("x"))).await["refused"],
            "invalid_request_state"
        );
        assert_eq!(world.ask(&Try::of("tasks/get", json!({}))).await["refused"], "missing_client_capability");
    }
    settle().await;
    world.assert_idle();
    assert_eq!(world.tallies().begun, 0);
}

#[tokio::test(start_paused = true)]
async fn a_listen_watches_only_so_much() {
    let mut world = World::with(|limits| limits.max_subscriptions = 2);
    let uris = |count: usize| Try::listen(&json!({ "resourceSubscriptions": vec!["a:b"; count] }));
    assert_eq!(world.ask(&uris(3)).await["refused"], "too_many_subscriptions");
    assert_eq!(world.ask(&Try::listen(&json!(7))).await["refused"], "invalid_params");
    assert!(world.server.is_quiet());
    let (waiting, _call) = world.begin(&uris(2)).await;
    hang_up(waiting).await;
    world.assert_idle();
}
