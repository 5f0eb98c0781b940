//! Calls that wait for their client: how many, how long, and what is left of those that wait in vain.

use serde_json::json;
use tenure_session::budget::{Budget, BudgetLimits, Peer, Resource, Share};
use tenure_session::exchange::ExchangeTallies;
use tokio::time::Instant;

use super::support::{
    Try, World, accepted, error_of, gist, json_of, keys_of, pass, question, seconds, settle, value,
};

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_come_back_is_given_up_and_the_server_is_told() {
    for (method, told) in [
        ("elicitation/create", json!({ "action": "cancel" })),
        ("sampling/createMessage", json!("timed_out")),
        ("roots/list", json!("timed_out")),
    ] {
        let mut world = World::new();
        let first = Try::tool();
        let (asked, call, answered) = world.asking(&first, method).await;
        let before = Instant::now();
        let answer = value(answered.await.unwrap());
        assert_eq!(before.elapsed().as_secs(), 600);
        let heard =
            if answer["error"].is_null() { answer } else { answer["error"]["data"]["reason"].clone() };
        assert_eq!(heard, told, "{method}");
        assert!(!call.is_dropped(), "it has a moment to end well");
        pass(seconds(2)).await;
        assert!(call.is_dropped() && call.context.is_cancelled());
        world.assert_idle();
        let late = world.ask(&first.again(&asked, &json!({ "q1": accepted("Ann") }))).await;
        assert_eq!(late["refused"], "invalid_request_state");
        assert!(world.server.is_quiet(), "no second run without a request");
        assert_eq!(world.exchanges.shut_down(seconds(0)).await, 0, "no task is left");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_well_when_its_client_is_gone_leaves_nothing_either() {
    let mut world = World::new();
    let (_, call, answered) = world.asking(&Try::tool(), "elicitation/create").await;
    assert_eq!(value(answered.await.unwrap()), json!({ "action": "cancel" }));
    call.answer(&json!({ "content": [] }));
    settle().await;
    world.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn the_time_begins_anew_with_every_attempt() {
    let mut world = World::new();
    let mut attempt = Try::tool();
    let (mut asked, call, _answered) = world.asking(&attempt, "elicitation/create").await;
    for _ in 0..5 {
        pass(seconds(590)).await;
        assert_eq!(world.tallies().parked, 1);
        attempt = attempt.again(&asked, &json!({}));
        asked = world.ask(&attempt).await;
        assert_eq!(keys_of(&asked), ["q1"]);
    }
    pass(seconds(599)).await;
    assert_eq!(world.tallies().parked, 1);
    pass(seconds(3)).await;
    assert!(call.is_dropped());
    world.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_there_is_never_given_up() {
    let mut world = World::with(|limits| {
        limits.request_timeout = seconds(10_000);
        limits.max_request_time = seconds(10_000);
    });
    let first = Try::tool().json_only();
    let (asked, call, answered) = world.asking(&first, "elicitation/create").await;
    let second = world.send(&first.again(&asked, &json!({ "q1": accepted("Ann") })));
    answered.await.unwrap().unwrap();
    // Longer than it would be waited for.
    pass(seconds(5000)).await;
    assert!(!call.is_dropped());
    call.answer(&json!({}));
    assert_eq!(gist(&json_of(second.await.unwrap())), "complete 2");
}

#[tokio::test(start_paused = true)]
async fn an_answer_waits_for_the_client_too_but_not_longer() {
    let mut world = World::new();
    let first = Try::tool();
    let (asked, call, answered) = world.asking(&first, "elicitation/create").await;
    answered.abort();
    call.answer(&json!({ "content": [] }));
    pass(seconds(300)).await;
    assert_eq!(world.tallies().parked, 1);
    let answer = world.ask(&first.again(&asked, &json!({ "q1": accepted("Ann") }))).await;
    assert_eq!(gist(&answer), "complete 2");
    settle().await;
    world.assert_idle();

    let (_, call, answered) = world.asking(&first, "elicitation/create").await;
    answered.abort();
    call.answer(&json!({ "content": [] }));
    pass(seconds(601)).await;
    world.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn only_so_many_calls_wait() {
    let mut world = World::with(|limits| limits.max_parked = 2);
    let first = Try::tool();
    let (one, call, answered) = world.asking(&first, "elicitation/create").await;
    let (_two, _call, _answered) = world.asking(&first, "elicitation/create").await;
    let (waiting, third) = world.begin(&first).await;
    let refused = question(&third, "elicitation/create", json!({}));
    assert_eq!(error_of(&json_of(waiting.await.unwrap())), (-31029, "too_many_requests"));
    refused.await.unwrap().unwrap_err();
    assert!(third.is_dropped(), "its client could not come back for it");
    assert_eq!(world.tallies(), ExchangeTallies { running: 0, parked: 2, begun: 3 });
    // One that waits already may wait once more.
    let again = first.again(&one, &json!({ "q1": accepted("Ann") }));
    let second = world.send(&again);
    answered.await.unwrap().unwrap();
    let _answered = question(&call, "elicitation/create", json!({}));
    let asked = json_of(second.await.unwrap());
    assert_eq!(keys_of(&asked), ["q2"]);
    let last = world.send(&again.again(&asked, &json!({})));
    call.answer(&json!({}));
    assert_eq!(gist(&json_of(last.await.unwrap())), "complete 3");
    settle().await;
    let (_, _call, _answered) = world.asking(&first, "elicitation/create").await;
    assert_eq!(world.tallies().parked, 2, "there is room again");
}

#[tokio::test(start_paused = true)]
async fn those_who_do_not_come_back_make_room_for_others() {
    let mut world = World::with(|limits| limits.max_parked = 3);
    let (ann, bob) = (Try::tool().by("ann"), Try::tool().by("bob"));
    let (bobs, _bobs_call, bobs_answered) = world.asking(&bob, "elicitation/create").await;
    pass(seconds(1)).await;
    let (anns, anns_call, anns_answered) = world.asking(&ann, "elicitation/create").await;
    let (_, _anns_second_call, _answered) = world.asking(&ann, "elicitation/create").await;
    pass(seconds(28)).await;
    let (waiting, call) = world.begin(&bob).await;
    let _refused = question(&call, "elicitation/create", json!({}));
    assert_eq!(error_of(&json_of(waiting.await.unwrap())), (-31029, "too_many_requests"), "not so soon");
    pass(seconds(5)).await;
    // The first call of the peer that has most.
    let (_, _call, _answered) = world.asking(&bob, "elicitation/create").await;
    assert_eq!(world.tallies().parked, 3);
    assert_eq!(value(anns_answered.await.unwrap())["error"]["data"]["reason"], "client_gone");
    settle().await;
    assert!(anns_call.is_dropped());
    let late = world.ask(&ann.again(&anns, &json!({ "q1": accepted("Ann") }))).await;
    assert_eq!(late["refused"], "invalid_request_state");
    let back = world.send(&bob.again(&bobs, &json!({ "q1": accepted("Bob") })));
    assert_eq!(value(bobs_answered.await.unwrap()), accepted("Bob"));
    drop(back);
}

#[tokio::test(start_paused = true)]
async fn none_may_wait_where_none_is_allowed() {
    let mut world = World::with(|limits| limits.max_parked = 0);
    let (waiting, call) = world.begin(&Try::tool()).await;
    let _refused = question(&call, "elicitation/create", json!({}));
    assert_eq!(error_of(&json_of(waiting.await.unwrap())), (-31029, "too_many_requests"));
    world.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn a_thousand_that_wait_in_vain_are_all_gone_in_the_end() {
    let mut world = World::new();
    let mut calls = Vec::new();
    for _ in 0..1000 {
        let (_, call, answered) = world.asking(&Try::tool(), "elicitation/create").await;
        calls.push((call, answered));
    }
    assert_eq!(world.tallies().parked, 1000);
    pass(seconds(602)).await;
    world.assert_idle();
    assert!(calls.iter().all(|(call, _)| call.is_dropped()));
    assert_eq!(world.exchanges.shut_down(seconds(0)).await, 0);
}

/// Of this resource one client may hold one half, if it is alone.
fn budget(resource: Resource, total: usize) -> Budget {
    Budget::new(BudgetLimits::default().with(resource, total).with_share(50))
}

fn share(budget: &Budget, last: u8) -> Share {
    budget.share(Peer::at([127, 0, 0, last].into()))
}

fn used(budget: &Budget, resource: Resource) -> usize {
    budget.usage()[resource as usize].used
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_answer_uses_up_its_own_places_alone() {
    let mut world = World::new();
    let budget = budget(Resource::Parked, 8);
    let (greedy, other) = (Try::tool().within(share(&budget, 2)), Try::tool().within(share(&budget, 1)));
    let (others, others_call, others_answered) = world.asking(&other, "elicitation/create").await;
    pass(seconds(1)).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(world.asking(&greedy, "elicitation/create").await);
    }
    let (waiting, call) = world.begin(&greedy).await;
    let _refused = question(&call, "elicitation/create", json!({}));
    assert_eq!(error_of(&json_of(waiting.await.unwrap())), (-31029, "too_many_requests"));
    assert_eq!(used(&budget, Resource::Parked), 4);
    held.push(world.asking(&other, "elicitation/create").await);
    pass(seconds(31)).await;
    // Its own first one makes room, and not that of the other, which has waited longer.
    held.push(world.asking(&greedy, "elicitation/create").await);
    assert_eq!((world.tallies().parked, used(&budget, Resource::Parked)), (5, 5));
    let (_, _, given_up) = held.remove(0);
    assert_eq!(value(given_up.await.unwrap())["error"]["data"]["reason"], "client_gone");
    let back = world.send(&other.again(&others, &json!({ "q1": accepted("Bob") })));
    assert_eq!(value(others_answered.await.unwrap()), accepted("Bob"));
    others_call.answer(&json!({}));
    assert_eq!(gist(&json_of(back.await.unwrap())), "complete 2");
    assert_eq!(used(&budget, Resource::Parked), 4);
    pass(seconds(602)).await;
    world.assert_idle();
    assert_eq!(used(&budget, Resource::Parked), 0);
}

#[tokio::test(start_paused = true)]
async fn when_all_places_are_taken_the_peer_with_most_calls_makes_room() {
    let mut world = World::new();
    let budget = Budget::new(BudgetLimits::default().with(Resource::Parked, 4).with_share(75));
    let [one, greedy, third, fourth] = [1, 2, 3, 4].map(|last| Try::tool().within(share(&budget, last)));
    let (_, _ones_call, ones_answered) = world.asking(&one, "elicitation/create").await;
    pass(seconds(1)).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(world.asking(&greedy, "elicitation/create").await);
    }
    let _thirds = world.asking(&third, "elicitation/create").await;
    assert_eq!(used(&budget, Resource::Parked), 4);
    pass(seconds(31)).await;
    let _fourths = world.asking(&fourth, "elicitation/create").await;
    assert_eq!((world.tallies().parked, used(&budget, Resource::Parked)), (4, 4));
    settle().await;
    let over = |(_, _, answered): &(_, _, tokio::task::JoinHandle<_>)| answered.is_finished();
    assert_eq!(held.iter().filter(|call| over(call)).count(), 1);
    assert!(!ones_answered.is_finished(), "though it has waited longer");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_waits_takes_memory_from_the_share_of_its_client_and_is_lost_if_there_is_none() {
    const MIB: usize = 1 << 20;
    let mut world = World::new();
    let budget = budget(Resource::Memory, 4 * MIB);
    let first = Try::tool().within(share(&budget, 1));
    let answers = json!({ "q1": accepted("Ann") });
    for (bytes, gets) in [(MIB, "complete 2"), (3 * MIB, "too_much_held")] {
        let (asked, call, answered) = world.asking(&first, "elicitation/create").await;
        answered.abort();
        call.answer(&json!({ "content": [{ "type": "text", "text": "x".repeat(bytes) }] }));
        settle().await;
        assert_eq!(used(&budget, Resource::Memory) > MIB, bytes == MIB);
        let answer = world.ask(&first.again(&asked, &answers)).await;
        let got = match answer["error"].is_null() {
            true => gist(&answer),
            false => error_of(&answer).1.to_owned(),
        };
        assert_eq!(got, gets);
        settle().await;
        assert_eq!(used(&budget, Resource::Memory), 0);
    }
}
