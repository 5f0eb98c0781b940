//! How tasks end that do not end by themselves, and how long they are kept.

use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use serde_json::json;
use tenure_protocol::modern;
use tenure_protocol::{Eras, Method, RawJson};
use tenure_session::call::TaskWish;
use tenure_session::exchange::ExchangeAnswer;
use tenure_session::task::TaskLimits;

use crate::tasks::support::{Engine, MINUTE, SECOND, World, ann, caller, on_every_engine, request};

on_every_engine!(
    a_cancelled_task_stays_cancelled,
    a_cancellation_is_acknowledged_when_it_is_kept,
    a_task_ends_only_once,
    a_stop_ends_what_is_left_and_keeps_the_rest,
);

async fn a_cancelled_task_stays_cancelled(engine: Engine) {
    let mut world = World::new(engine);
    let (id, asked) = world.task(&ann()).await;
    let context = asked.context.clone();
    let question =
        tokio::spawn(
            async move { context.ask(&Method::ElicitationCreate, Some(&RawJson::EMPTY_OBJECT)).await },
        );
    world.until_status(&ann(), &id, "input_required").await;
    let acknowledged = json!({ "resultType": "complete" });
    assert_eq!(world.cancel(&ann(), &id).await["result"], acknowledged);
    let task = world.get(&ann(), &id).await["result"].take();
    assert_eq!((&task["status"], task.get("inputRequests")), (&json!("cancelled"), None));
    assert!(question.await.unwrap().is_err());
    // The server hears of it, and what it still says is not heard.
    tokio::time::timeout(10 * SECOND, asked.context.cancelled()).await.unwrap();
    asked.answer(&json!({ "content": [] }));
    assert_eq!(world.cancel(&ann(), &id).await["result"], acknowledged, "once more makes no difference");
    let mut world = world.killed().await;
    assert_eq!(world.get(&ann(), &id).await["result"]["status"], "cancelled");
    assert_eq!(world.cancel(&ann(), &id).await["result"], acknowledged);
    // Nor does it undo what has ended otherwise.
    let (done, asked) = world.task(&ann()).await;
    asked.answer(&json!({ "content": [] }));
    world.until_status(&ann(), &done, "completed").await;
    assert_eq!(world.cancel(&ann(), &done).await["result"], acknowledged);
    assert_eq!(world.get(&ann(), &done).await["result"]["status"], "completed");
}

async fn a_cancellation_is_acknowledged_when_it_is_kept(engine: Engine) {
    let mut world = World::new(engine);
    let (id, _asked) = world.task(&ann()).await;
    world.store.fail_puts(true);
    let cancel = world.send(&ann(), request("tasks/cancel", json!({ "taskId": id })));
    let puts = world.store.puts();
    while world.store.puts() < puts + 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(!cancel.is_finished(), "a crash could still take it back");
    assert_eq!(world.get(&ann(), &id).await["result"]["status"], "working");
    world.store.fail_puts(false);
    assert_eq!(cancel.await.unwrap()["result"], json!({ "resultType": "complete" }));
    assert_eq!(world.get(&ann(), &id).await["result"]["status"], "cancelled");
}

async fn a_task_ends_only_once(engine: Engine) {
    let mut world = World::new(engine);
    for _ in 0..50 {
        let (id, asked) = world.task(&ann()).await;
        let cancel = world.send(&ann(), request("tasks/cancel", json!({ "taskId": id })));
        asked.answer(&json!({ "content": [] }));
        assert_eq!(cancel.await.unwrap()["result"]["resultType"], "complete");
        let first = world.get(&ann(), &id).await["result"].take();
        assert!(first["status"] == "completed" || first["status"] == "cancelled", "{first}");
        assert_eq!(first["status"] == "completed", first.get("result").is_some());
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(world.get(&ann(), &id).await["result"], first);
    }
}

async fn a_stop_ends_what_is_left_and_keeps_the_rest(engine: Engine) {
    let mut world = World::new(engine);
    let (left, _asked) = world.task(&ann()).await;
    let (done, asked) = world.task(&ann()).await;
    asked.answer(&json!({ "content": ["x"] }));
    world.until_status(&ann(), &done, "completed").await;
    let world = world.stopped().await;
    let puts = world.store.puts();
    let interrupted = world.get(&ann(), &left).await["result"].take();
    assert_eq!((&interrupted["status"], &interrupted["error"]["code"]), (&json!("failed"), &json!(-31010)));
    assert_eq!(world.store.puts(), puts, "it was written when it ended");
    assert_eq!(world.get(&ann(), &done).await["result"]["result"]["content"], json!(["x"]));
}

#[tokio::test]
async fn a_stop_waits_for_a_task_that_is_about_to_end() {
    let mut world = World::new(Engine::memory());
    let (id, asked) = world.task(&ann()).await;
    let exchanges = world.exchanges.clone();
    let stopping = tokio::spawn(async move { exchanges.shut_down(MINUTE).await });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!stopping.is_finished());
    asked.answer(&json!({ "content": ["just in time"] }));
    assert_eq!(stopping.await.unwrap(), 0);
    let world = world.stopped().await;
    assert_eq!(world.get(&ann(), &id).await["result"]["result"]["content"], json!(["just in time"]));
}

fn wish(ttl: Duration) -> TaskWish {
    TaskWish { ttl: Some(ttl), poll: None }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_takes_longer_than_it_may_fails() {
    let mut world = World::new(Engine::memory());
    let (id, asked) = world.task_with(&ann(), wish(5 * MINUTE)).await;
    tokio::time::sleep(5 * MINUTE - SECOND).await;
    assert_eq!(world.get(&ann(), &id).await["result"]["status"], "working");
    tokio::time::sleep(2 * SECOND).await;
    let task = world.get(&ann(), &id).await["result"].take();
    assert_eq!((&task["status"], &task["error"]["data"]["reason"]), (&json!("failed"), &json!("timed_out")));
    assert!(asked.is_dropped());
}

#[tokio::test(start_paused = true)]
async fn an_outcome_is_kept_for_its_time_and_then_forgotten() {
    let mut world =
        World::with(Engine::memory(), TaskLimits { max_ttl: 8 * SECOND, ..TaskLimits::default() });
    // No task gets longer than configured.
    let (id, asked) = world.task_with(&ann(), wish(5 * MINUTE)).await;
    assert_eq!(world.get(&ann(), &id).await["result"]["ttlMs"], 8000);
    // From the end on, so that a slow one can be asked for too.
    world.clock.turn(7 * SECOND);
    asked.answer(&json!({ "content": [] }));
    world.until_status(&ann(), &id, "completed").await;
    world.clock.turn(8 * SECOND - Duration::from_millis(1));
    world.store.swept().await;
    assert_eq!(world.get(&ann(), &id).await["result"]["status"], "completed");
    world.clock.turn(Duration::from_millis(1));
    assert_eq!(world.get(&ann(), &id).await["error"]["data"]["reason"], "task_not_found", "swept or not");
    world.store.swept().await;
    assert_eq!((world.records().await, world.tasks.count()), (0, 0));
    // One that an earlier process left, and that no client asks for.
    drop(world.task(&ann()).await);
    let mut world = world.killed().await;
    world.store.swept().await;
    assert_eq!((world.records().await, world.tasks.count()), (1, 1));
    world.clock.turn(16 * SECOND);
    world.store.swept().await;
    assert_eq!((world.records().await, world.tasks.count()), (0, 0));
    assert!(world.server.is_quiet());
    drop(world.task(&ann()).await);
}

/// What comes of it so far.
async fn once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx))).await
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_a_task_that_its_client_has_just_heard_of() {
    let mut world = World::new(Engine::memory());
    let checked = modern::check(request("tools/call", json!({ "name": "dig" })), None, Eras::Both).unwrap();
    // Polled by hand, so that no other task runs between the answer and the stop.
    let mut calling = Box::pin(world.exchanges.request(checked, caller(&ann())));
    assert!(once(&mut calling).await.is_pending());
    let asked = world.server.expect("tools/call").await;
    let context = asked.context.clone();
    let mut becoming = Box::pin(context.become_task(TaskWish::default()));
    assert!(once(&mut becoming).await.is_pending());
    let answer = loop {
        match once(&mut calling).await {
            Poll::Ready(answer) => break answer,
            Poll::Pending => tokio::task::yield_now().await,
        }
    };
    drop(calling);
    let mut stopping = Box::pin(world.exchanges.shut_down(MINUTE));
    assert!(once(&mut stopping).await.is_pending());
    let ExchangeAnswer::Json { body, .. } = answer else { panic!("the task, not {answer:?}") };
    let id = crate::tasks::support::id(&serde_json::from_slice(&body).unwrap());
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    asked.answer(&json!({ "content": ["in time"] }));
    assert_eq!(stopping.await, 0);
    let world = world.stopped().await;
    assert_eq!(world.get(&ann(), &id).await["result"]["result"]["content"], json!(["in time"]));
}
