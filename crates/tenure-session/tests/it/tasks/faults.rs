//! What happens when the store fails, or loses its answer.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tenure_session::call::{Became, TaskWish};
use tenure_session::port::store::{Expected, RecordKey, Space, StoreError};
use tenure_testkit::crash::Last;

use crate::tasks::support::{Engine, World, ann, id, on_every_engine, request};

on_every_engine!(
    a_call_that_cannot_become_a_task_goes_on,
    a_beginning_whose_answer_is_lost_is_looked_for,
    an_end_is_not_seen_before_it_is_kept,
    a_server_is_let_go_before_the_end_of_its_task_is_kept,
    an_end_whose_answer_is_lost_is_the_end,
    a_store_that_cannot_be_read_is_said,
    an_interrupted_task_whose_answer_is_lost_is_looked_at_again,
    an_outcome_that_the_store_finds_too_large_is_an_error,
    an_end_that_the_store_will_never_take_is_given_up,
    an_end_over_what_makes_no_sense_is_given_up,
    a_task_whose_beginning_has_an_unknown_outcome_is_taken_back,
);

const BOTH: [Last; 2] = [Last::Done, Last::Undone];

async fn a_call_that_cannot_become_a_task_goes_on(engine: Engine) {
    let mut world = World::new(engine);
    let answer = world.send(&ann(), request("tools/call", json!({ "name": "dig" })));
    let asked = world.server.expect("tools/call").await;
    world.store.fail_puts(true);
    let error = asked.context.become_task(TaskWish::default()).await.unwrap_err();
    assert!(error.is(tenure_protocol::Reason::StoreUnavailable));
    assert_eq!(world.tasks.count(), 0);
    world.store.fail_puts(false);
    // It may try again.
    assert_eq!(asked.context.become_task(TaskWish::default()).await, Ok(Became::Task));
    assert_eq!(answer.await.unwrap()["result"]["resultType"], "task");
    let answer = world.send(&ann(), request("tools/call", json!({ "name": "dig" })));
    let asked = world.server.expect("tools/call").await;
    world.store.fail_puts(true);
    asked.context.become_task(TaskWish::default()).await.unwrap_err();
    asked.answer(&json!({ "content": [] }));
    assert_eq!(answer.await.unwrap()["result"], json!({ "resultType": "complete", "content": [] }));
    assert_eq!((world.tasks.count(), world.records().await), (1, 1));
}

async fn a_beginning_whose_answer_is_lost_is_looked_for(engine: Engine) {
    let mut world = World::new(engine);
    for put in BOTH {
        let answer = world.send(&ann(), request("tools/call", json!({ "name": "dig" })));
        let asked = world.server.expect("tools/call").await;
        world.store.lose_answer_of_next_put(put);
        // A write that was not done is repeated.
        let became = asked.context.become_task(TaskWish::default()).await;
        assert_eq!(became, Ok(Became::Task), "{put:?}");
        let id = id(&answer.await.unwrap());
        asked.answer(&json!({ "content": [] }));
        world.until_status(&ann(), &id, "completed").await;
    }
    assert_eq!((world.tasks.count(), world.records().await), (2, 2));
}

async fn an_end_is_not_seen_before_it_is_kept(engine: Engine) {
    let mut world = World::new(engine);
    let (id, asked) = world.task(&ann()).await;
    world.store.fail_puts(true);
    let puts = world.store.puts();
    asked.answer(&json!({ "content": ["kept"] }));
    while world.store.puts() < puts + 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(world.get(&ann(), &id).await["result"]["status"], "working");
    world.store.fail_puts(false);
    let task = world.until_status(&ann(), &id, "completed").await;
    assert_eq!(task["result"]["content"], json!(["kept"]));
    assert_eq!(world.tasks.live(), 0);
}

async fn a_server_is_let_go_before_the_end_of_its_task_is_kept(engine: Engine) {
    let mut world = World::new(engine);
    let (id, asked) = world.task(&ann()).await;
    world.store.fail_puts(true);
    let cancel = world.send(&ann(), request("tasks/cancel", json!({ "taskId": id })));
    asked.dropped().await;
    assert_eq!(world.get(&ann(), &id).await["result"]["status"], "working", "the store did not take it yet");
    world.store.fail_puts(false);
    assert_eq!(cancel.await.unwrap()["result"], json!({ "resultType": "complete" }));
    assert_eq!(world.get(&ann(), &id).await["result"]["status"], "cancelled");
}

async fn an_end_whose_answer_is_lost_is_the_end(engine: Engine) {
    let mut world = World::new(engine);
    for put in BOTH {
        let (id, asked) = world.task(&ann()).await;
        world.store.lose_answer_of_next_put(put);
        asked.answer(&json!({ "content": ["once"] }));
        let task = world.until_status(&ann(), &id, "completed").await;
        assert_eq!(task["result"]["content"], json!(["once"]), "{put:?}");
    }
}

async fn a_store_that_cannot_be_read_is_said(engine: Engine) {
    let mut world = World::new(engine);
    let (id, asked) = world.task(&ann()).await;
    asked.answer(&json!({ "content": [] }));
    world.until_status(&ann(), &id, "completed").await;
    world.store.set_broken(true);
    let error = world.get(&ann(), &id).await["error"].take();
    assert_eq!(error["data"]["reason"], "store_unavailable");
    world.store.set_broken(false);
    assert_eq!(world.get(&ann(), &id).await["result"]["status"], "completed");
}

async fn an_interrupted_task_whose_answer_is_lost_is_looked_at_again(engine: Engine) {
    let mut world = World::new(engine);
    for put in BOTH {
        let (id, _asked) = world.task(&ann()).await;
        world = world.killed().await;
        world.store.lose_answer_of_next_put(put);
        assert_eq!(world.get(&ann(), &id).await["result"]["status"], "failed", "{put:?}");
    }
}

async fn a_task_whose_beginning_has_an_unknown_outcome_is_taken_back(engine: Engine) {
    let mut world = World::new(engine);
    for put in BOTH {
        let answer = world.send(&ann(), request("tools/call", json!({ "name": "dig" })));
        let asked = world.server.expect("tools/call").await;
        world.store.lose_answer_of_next_put(put);
        // A write that is done is the first call, its repetition the next, and the look for it the last. A repetition of
        // one that was not done would begin the task, so that one fails.
        world.store.fail_nth(if put == Last::Done { 2 } else { 0 });
        assert!(asked.context.become_task(TaskWish::default()).await.is_err());
        asked.answer(&json!({ "content": [] }));
        assert_eq!(answer.await.unwrap()["result"]["resultType"], "complete");
        let taken_back = async {
            while (world.tasks.count(), world.records().await) != (0, 0) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), taken_back).await.expect("it is taken back");
    }
}

async fn an_outcome_that_the_store_finds_too_large_is_an_error(engine: Engine) {
    let mut world = World::new(engine);
    let (id, asked) = world.task(&ann()).await;
    world.store.fail_puts_with(StoreError::TooLarge);
    let puts = world.store.puts();
    asked.answer(&json!({ "content": [] }));
    while world.store.puts() == puts {
        tokio::task::yield_now().await;
    }
    // The error in place of the outcome is small enough.
    world.store.fail_puts(false);
    let task = world.until_status(&ann(), &id, "failed").await;
    assert_eq!(task["error"]["data"]["reason"], "event_too_large");
}

async fn an_end_that_the_store_will_never_take_is_given_up(engine: Engine) {
    let mut world = World::new(engine);
    let (id, asked) = world.task(&ann()).await;
    world.store.fail_puts_with(StoreError::TooLarge);
    let puts = world.store.puts();
    asked.answer(&json!({ "content": [] }));
    while world.tasks.live() > 0 {
        assert!(world.store.puts() < puts + 10, "it is tried again and again");
        tokio::task::yield_now().await;
    }
    assert_eq!(world.store.puts(), puts + 2, "with its outcome, and without");
    world.store.fail_puts(false);
    assert_eq!(world.get(&ann(), &id).await["result"]["status"], "failed");
    assert_eq!((world.tasks.count(), world.records().await), (1, 1));
}

async fn an_end_over_what_makes_no_sense_is_given_up(engine: Engine) {
    let mut world = World::new(engine);
    let (id, asked) = world.task(&ann()).await;
    let store = world.store.inner();
    let (key, record) = store.list(Space::Task, None, 1).await.unwrap().remove(0);
    let (key, expected) = (RecordKey { space: Space::Task, key }, Expected::Version(record.version));
    store.put(key, Bytes::from_static(b"nonsense"), expected, record.deadline).await.unwrap();
    asked.answer(&json!({ "content": [] }));
    let given_up = async {
        while world.tasks.live() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), given_up).await.expect("it is given up");
    let error = world.get(&ann(), &id).await["error"].take();
    assert_eq!(error["data"]["reason"], "store_unavailable");
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_a_store_that_never_answers() {
    let mut world = World::new(Engine::memory());
    let answer = world.send(&ann(), request("tools/call", json!({ "name": "dig" })));
    let asked = world.server.expect("tools/call").await;
    world.store.hold_answer_of_next_put();
    let context = asked.context.clone();
    let becoming = tokio::spawn(async move { context.become_task(TaskWish::default()).await });
    let stopping = world.exchanges.shut_down(Duration::from_secs(1));
    let stopped = tokio::time::timeout(Duration::from_secs(60), stopping).await;
    assert_eq!(stopped.expect("it stops in time"), 1);
    assert_eq!(answer.await.unwrap()["error"]["data"]["reason"], "interrupted");
    assert!(becoming.await.unwrap().is_err());
}
