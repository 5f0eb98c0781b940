//! Withdrawn by their clients, or out of time.

use serde_json::json;
use tenure_protocol::Method;
use tenure_session::exchange::ExchangeTallies;
use tokio::time::Instant;

use super::support::{
    Try, World, accepted, error_of, flow_of, gist, hang_up, json_of, keys_of, next, pass, rest, say, seconds,
    settle,
};

#[tokio::test(start_paused = true)]
async fn hanging_up_before_there_is_an_answer_cancels_the_call() {
    for streams in [true, false] {
        let mut world = World::new();
        let attempt = if streams { Try::tool() } else { Try::tool().json_only() };
        let (waiting, call) = world.begin(&attempt).await;
        let token = call.context.cancellation();
        assert!(!token.is_cancelled());
        hang_up(waiting).await;
        assert!(token.is_cancelled() && call.context.is_cancelled());
        assert!(call.is_dropped(), "the server's future is gone");
        world.assert_idle();
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_up_in_a_stream_cancels_the_call() {
    let mut world = World::new();
    let (waiting, call) = world.begin(&Try::tool().level("info")).await;
    let context = call.context.clone();
    say(&call, "hello").await;
    let mut flow = flow_of(waiting.await.unwrap());
    assert_eq!(gist(&next(&mut flow).await), "hello");
    assert!(!call.is_dropped());
    drop(flow);
    assert!(call.is_dropped() && context.is_cancelled());
    world.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn hanging_up_before_the_first_message_of_a_stream_was_read_cancels_the_call() {
    let mut world = World::new();
    let (waiting, call) = world.begin(&Try::tool().level("info")).await;
    say(&call, "hello").await;
    drop(waiting.await.unwrap());
    assert!(call.is_dropped());
    world.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn hanging_up_in_a_later_attempt_cancels_the_call() {
    for streams in [true, false] {
        let mut world = World::new();
        let first = Try::tool().level("info");
        let (asked, call, question) = world.asking(&first, "elicitation/create").await;
        let second = world.send(&first.again(&asked, &json!({ "q1": accepted("Ann") })));
        question.await.unwrap().unwrap();
        let token = call.context.cancellation();
        if streams {
            say(&call, "hello").await;
            drop(flow_of(second.await.unwrap()));
        } else {
            settle().await;
            hang_up(second).await;
        }
        assert!(token.is_cancelled());
        call.dropped().await;
        settle().await;
        world.assert_idle();
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_nothing_for_too_long_is_given_up() {
    let mut world = World::new();
    let before = Instant::now();
    let (waiting, call) = world.begin(&Try::tool().json_only()).await;
    let answer = json_of(waiting.await.unwrap());
    assert_eq!(error_of(&answer), (-31012, "timed_out"));
    assert_eq!(before.elapsed(), seconds(300));
    assert!(call.is_dropped() && call.context.is_cancelled());
    world.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn progress_gives_a_server_more_time_but_not_for_ever() {
    let mut world = World::with(|limits| limits.max_request_time = seconds(1000));
    let before = Instant::now();
    // Also for a client that does not want to hear of it.
    let (waiting, call) = world.begin(&Try::tool()).await;
    let mut flow = flow_of(waiting.await.unwrap());
    let context = call.context.clone();
    let reporting = tokio::spawn(async move {
        loop {
            tokio::time::sleep(seconds(280)).await;
            let params = tenure_protocol::RawJson::of(&json!({ "progressToken": 1, "progress": 1 }));
            if context.notify(&Method::Progress, Some(&params)).await.is_err() {
                break;
            }
        }
    });
    assert_eq!(rest(&mut flow).await, ["error 1 timed_out"]);
    assert_eq!(before.elapsed(), seconds(1000));
    assert!(call.is_dropped());
    reporting.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn silence_after_progress_is_too_long_when_it_is_as_long_as_any() {
    let mut world = World::new();
    let before = Instant::now();
    let (waiting, call) = world.begin(&Try::tool().token(1)).await;
    pass(seconds(5)).await;
    call.say(&Method::Progress, &json!({ "progressToken": 1, "progress": 1 })).await;
    let mut flow = flow_of(waiting.await.unwrap());
    next(&mut flow).await;
    assert_eq!(rest(&mut flow).await, ["error 1 timed_out"]);
    assert_eq!(before.elapsed(), seconds(305));
}

#[tokio::test(start_paused = true)]
async fn each_attempt_has_its_own_time() {
    let mut world = World::new();
    let first = Try::tool().json_only();
    let (waiting, call) = world.begin(&first).await;
    pass(seconds(250)).await;
    let question = super::support::question(&call, "elicitation/create", json!({}));
    let asked = json_of(waiting.await.unwrap());
    assert_eq!(keys_of(&asked), ["q1"]);
    // The client's own time does not count.
    pass(seconds(500)).await;
    let before = Instant::now();
    let second = world.send(&first.again(&asked, &json!({ "q1": accepted("Ann") })));
    question.await.unwrap().unwrap();
    assert_eq!(error_of(&json_of(second.await.unwrap())), (-31012, "timed_out"));
    assert_eq!(before.elapsed(), seconds(300));
    call.dropped().await;
    settle().await;
    world.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn calls_that_come_and_go_leave_nothing_behind() {
    let mut world = World::new();
    for _ in 0..1000 {
        let (waiting, call) = world.begin(&Try::tool()).await;
        hang_up(waiting).await;
        assert!(call.is_dropped());
    }
    assert_eq!(world.tallies(), ExchangeTallies { running: 0, parked: 0, begun: 1000 });
    assert_eq!(world.exchanges.shut_down(seconds(0)).await, 0);
}
