//! Stopping: what is going on is finished in time or interrupted, and nothing is left.

use std::sync::{Arc, Mutex};
use std::task::Poll;

use serde_json::json;
use tenure_protocol::{Method, RawJson};
use tenure_session::exchange::Exchanges;
use tenure_session::port::BoxFuture;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::support::{
    Try, World, accepted, error_of, flow_of, gist, json_of, next, pass, question, rest, say, seconds, settle,
};

fn stop(world: &World, grace: u64) -> JoinHandle<usize> {
    let exchanges = world.exchanges.clone();
    tokio::spawn(async move { exchanges.shut_down(seconds(grace)).await })
}

#[tokio::test(start_paused = true)]
async fn nothing_going_on_is_stopped_at_once() {
    let world = World::new();
    let before = Instant::now();
    assert_eq!(world.exchanges.shut_down(seconds(30)).await, 0);
    assert_eq!(before.elapsed(), seconds(0));
    assert_eq!(world.ask(&Try::tool()).await["refused"], "draining");
    assert_eq!(world.exchanges.shut_down(seconds(30)).await, 0, "again");
}

#[tokio::test(start_paused = true)]
async fn calls_in_flight_are_finished_and_nothing_new_is_taken() {
    let mut world = World::new();
    let (waiting, call) = world.begin(&Try::tool()).await;
    let (streaming, second) = world.begin(&Try::tool().level("info")).await;
    say(&second, "hello").await;
    let mut flow = flow_of(streaming.await.unwrap());
    let before = Instant::now();
    let stopping = stop(&world, 30);
    pass(seconds(2)).await;
    assert!(!stopping.is_finished());
    assert_eq!(world.ask(&Try::tool()).await["refused"], "draining");
    call.answer(&json!({}));
    assert_eq!(gist(&json_of(waiting.await.unwrap())), "complete 1");
    say(&second, "still here").await;
    pass(seconds(1)).await;
    assert!(!stopping.is_finished());
    second.answer(&json!({}));
    assert_eq!(rest(&mut flow).await, ["hello", "still here", "complete 1"]);
    drop(flow);
    assert_eq!(stopping.await.unwrap(), 0);
    assert_eq!(before.elapsed(), seconds(3), "as soon as they are done");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_done_in_time_is_interrupted() {
    let mut world = World::new();
    let (waiting, call) = world.begin(&Try::tool()).await;
    let (streaming, second) = world.begin(&Try::tool().level("info")).await;
    say(&second, "hello").await;
    let mut flow = flow_of(streaming.await.unwrap());
    let before = Instant::now();
    let stopping = stop(&world, 5);
    assert_eq!(error_of(&json_of(waiting.await.unwrap())), (-31010, "interrupted"));
    assert_eq!(before.elapsed(), seconds(5));
    assert_eq!(rest(&mut flow).await, ["hello", "error 1 interrupted"]);
    assert_eq!(stopping.await.unwrap(), 2);
    assert!(call.is_dropped() && second.is_dropped());
    drop(flow);
    world.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn calls_that_wait_for_their_client_are_ended_at_once() {
    let mut world = World::new();
    let first = Try::tool();
    let (asked, call, answered) = world.asking(&first, "elicitation/create").await;
    let before = Instant::now();
    assert_eq!(world.exchanges.shut_down(seconds(30)).await, 0);
    assert_eq!(before.elapsed(), seconds(0));
    answered.await.unwrap().unwrap_err();
    assert!(call.is_dropped() && call.context.is_cancelled());
    world.assert_idle();
    let late = world.ask(&first.again(&asked, &json!({ "q1": accepted("Ann") }))).await;
    assert_eq!(late["refused"], "draining");
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_client_came_back_is_finished_like_any_other() {
    for in_time in [true, false] {
        let mut world = World::new();
        let first = Try::tool();
        let (asked, call, answered) = world.asking(&first, "elicitation/create").await;
        let second = world.send(&first.again(&asked, &json!({ "q1": accepted("Ann") })).json_only());
        answered.await.unwrap().unwrap();
        let stopping = stop(&world, 5);
        pass(seconds(1)).await;
        assert!(!stopping.is_finished() && !call.is_dropped());
        if in_time {
            call.answer(&json!({}));
            assert_eq!(gist(&json_of(second.await.unwrap())), "complete 2");
            assert_eq!(stopping.await.unwrap(), 0);
        } else {
            assert_eq!(error_of(&json_of(second.await.unwrap())), (-31010, "interrupted"));
            assert_eq!(stopping.await.unwrap(), 1);
            call.dropped().await;
        }
        world.assert_idle();
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_whose_elders_have_only_now_gone_is_waited_for_too() {
    let mut world = World::new();
    let first = Try::tool().level("info");
    let (waiting, call) = world.begin(&first).await;
    say(&call, "hello").await;
    let mut flow = flow_of(waiting.await.unwrap());
    assert_eq!(gist(&next(&mut flow).await), "hello");
    let answered = question(&call, "elicitation/create", json!({}));
    let asked = next(&mut flow).await;
    // The client is back before the connection of its first attempt is closed.
    let second = world.send(&first.again(&asked, &json!({ "q1": accepted("Ann") })).json_only());
    answered.await.unwrap().unwrap();
    drop(flow);
    let stopping = stop(&world, 60);
    pass(seconds(30)).await;
    assert!(!stopping.is_finished(), "the second attempt is in flight");
    call.answer(&json!({}));
    assert_eq!(gist(&json_of(second.await.unwrap())), "complete 2");
    assert_eq!(stopping.await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_question_while_stopping_is_refused_since_its_client_could_not_come_back() {
    let mut world = World::new();
    let (waiting, call) = world.begin(&Try::tool()).await;
    let stopping = stop(&world, 5);
    settle().await;
    let answered = question(&call, "elicitation/create", json!({}));
    assert_eq!(error_of(&json_of(waiting.await.unwrap())), (-31010, "draining"));
    answered.await.unwrap().unwrap_err();
    assert!(call.is_dropped());
    assert_eq!(stopping.await.unwrap(), 0);
    world.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_ignores_everything_does_not_hold_up_the_end() {
    let world = World::acting(|call| {
        Box::pin(async move {
            loop {
                let _ = call.context.notify(&Method::LogMessage, None).await;
                let _ = call.context.ask(&Method::RootsList, None).await;
                tokio::time::sleep(seconds(1)).await;
            }
        })
    });
    let nothing = json!({});
    let waiting = world.send(&Try::tool().json_only().can(nothing));
    let parked = world.ask(&Try::tool()).await;
    assert_eq!(gist(&parked), "input_required 1");
    let before = Instant::now();
    assert_eq!(world.exchanges.shut_down(seconds(3)).await, 1);
    assert_eq!(before.elapsed(), seconds(3));
    // Most probably for want of what it asked for in vain.
    assert!(json_of(waiting.await.unwrap())["error"]["code"].is_i64());
    world.assert_idle();
}

/// A server that, while it begins its first call, sees the process told to stop.
fn stopped_by_its_call(grace: u64) -> (World, Arc<Mutex<Option<BoxFuture<usize>>>>) {
    let exchanges: Arc<Mutex<Option<Exchanges>>> = Arc::default();
    let stopping: Arc<Mutex<Option<BoxFuture<usize>>>> = Arc::default();
    let (of_call, by_call) = (Arc::clone(&exchanges), Arc::clone(&stopping));
    let world = World::acting(move |_| {
        let (exchanges, stopping) = (Arc::clone(&of_call), Arc::clone(&by_call));
        let mut polls = 0;
        let answer = tokio::time::Instant::now() + seconds(2);
        let mut timer = Box::pin(tokio::time::sleep_until(answer));
        Box::pin(std::future::poll_fn(move |cx| {
            polls += 1;
            if polls == 1 {
                let exchanges = exchanges.lock().unwrap().clone().unwrap();
                let mut stop: BoxFuture<usize> =
                    Box::pin(async move { exchanges.shut_down(seconds(grace)).await });
                // As far as it gets now; the test does the rest.
                let stopped =
                    stop.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
                if let Poll::Ready(interrupted) = stopped {
                    stop = Box::pin(std::future::ready(interrupted));
                }
                *stopping.lock().unwrap() = Some(stop);
            }
            timer.as_mut().poll(cx).map(|()| Ok(RawJson::EMPTY_OBJECT))
        }))
    });
    *exchanges.lock().unwrap() = Some(world.exchanges.clone());
    (world, stopping)
}

#[tokio::test(start_paused = true)]
async fn a_call_that_begins_to_wait_just_while_stopping_has_the_grace_period_too() {
    for (grace, answer, interrupted) in [(5, "complete 1", 0), (1, "error 1 interrupted", 1)] {
        let (world, stopping) = stopped_by_its_call(grace);
        let waiting = world.send(&Try::tool());
        settle().await;
        let stop = stopping.lock().unwrap().take().unwrap();
        assert_eq!(stop.await, interrupted, "{grace} s");
        assert_eq!(gist(&json_of(waiting.await.unwrap())), answer);
        world.assert_idle();
    }
}
