//! What operators see of exchanges that are under way.

use serde_json::json;
use tenure_protocol::Method;
use tenure_session::exchange::{CallStanding, ExchangeInfo, WaitsFor};
use tenure_session::{Principal, Route};

use super::support::{Try, World, accepted, flow_of, json_of, next, say, settle};

/// What is listed, in short.
fn listed(world: &World) -> Vec<(CallStanding, WaitsFor, u64)> {
    world.exchanges.list().into_iter().map(|info| (info.standing, info.waits_for, info.attempts)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_call_is_listed_with_its_owner_and_tool_until_it_is_answered() {
    let mut world = World::new();
    let (waiting, call) = world.begin(&Try::tool().by("alice").at("notes")).await;
    settle().await;
    let all = world.exchanges.list();
    let [ExchangeInfo { label, principal, route, method, tool, attempts, standing, waits_for, .. }] =
        &all[..]
    else {
        panic!("{all:?}");
    };
    assert!(label.starts_with("x-"), "{label}");
    assert_eq!((principal, route), (&Principal::named("alice"), &Route::named("notes")));
    assert_eq!((method, tool.as_deref(), attempts), (&Method::ToolsCall, Some("t"), &1));
    assert_eq!((standing, waits_for), (&CallStanding::Running, &WaitsFor::Server));
    call.answer(&json!({ "content": [] }));
    json_of(waiting.await.unwrap());
    assert_eq!(listed(&world), []);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_asked_its_client_waits_for_it_and_is_listed_once_when_that_is_back() {
    let mut world = World::new();
    let first = Try::tool();
    let (asked, call, answered) = world.asking(&first, "elicitation/create").await;
    settle().await;
    assert_eq!(listed(&world), [(CallStanding::Parked, WaitsFor::Client { questions: 1 }, 1)]);
    let back = world.send(&first.again(&asked, &json!({ "q1": accepted("Ann") })));
    answered.await.unwrap().unwrap();
    settle().await;
    assert_eq!(listed(&world), [(CallStanding::Running, WaitsFor::Server, 2)]);
    call.answer(&json!({ "content": [] }));
    json_of(back.await.unwrap());
    assert_eq!(listed(&world), []);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_what_its_call_waits_for() {
    let mut world = World::with(|limits| limits.max_waiting = 2);
    let (waiting, call) = world.begin(&Try::tool().level("info")).await;
    say(&call, "one").await;
    let mut flow = flow_of(waiting.await.unwrap());
    next(&mut flow).await;
    // The reader waits once, so that the call is listed, and then reads no more.
    assert!(super::support::is_quiet(&mut flow).await);
    assert_eq!(listed(&world), [(CallStanding::Running, WaitsFor::Server, 1)]);
    say(&call, "two").await;
    say(&call, "three").await;
    assert_eq!(listed(&world), [(CallStanding::Running, WaitsFor::Reader, 1)]);
    next(&mut flow).await;
    assert_eq!(listed(&world), [(CallStanding::Running, WaitsFor::Server, 1)]);
}
