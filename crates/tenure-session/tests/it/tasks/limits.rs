//! How many tasks there may be, and how large.

use serde_json::{Value, json};
use tenure_session::call::{Became, TaskWish};
use tenure_session::task::TaskLimits;

use crate::tasks::support::{Engine, World, ann, bob, on_every_engine, request};

on_every_engine!(
    there_are_only_so_many,
    tasks_of_an_earlier_process_count,
    an_outcome_is_only_so_large,
    without_tasks_no_client_is_told_of_them,
    where_there_are_tasks_the_server_says_so,
);

/// What a call that wants to be a task hears.
async fn refused(world: &mut World, who: &tenure_session::Principal) -> Option<String> {
    let answer = world.send(who, request("tools/call", json!({ "name": "dig" })));
    let asked = world.server.expect("tools/call").await;
    let became = asked.context.become_task(TaskWish::default()).await;
    asked.answer(&json!({ "content": [] }));
    answer.await.unwrap();
    let error: Value = became.err()?.raw().read().unwrap();
    error["data"]["reason"].as_str().map(str::to_owned)
}

async fn there_are_only_so_many(engine: Engine) {
    let limits = TaskLimits { max: 3, max_per_principal: 2, ..TaskLimits::default() };
    let mut world = World::with(engine, limits);
    assert_eq!(refused(&mut world, &ann()).await, None);
    assert_eq!(refused(&mut world, &ann()).await, None);
    let too_many = Some("too_many_tasks".to_owned());
    assert_eq!(refused(&mut world, &ann()).await, too_many, "of one caller");
    assert_eq!(refused(&mut world, &bob()).await, None);
    assert_eq!(refused(&mut world, &bob()).await, too_many, "in all");
    assert_eq!((world.tasks.count(), world.records().await), (3, 3));
}

async fn tasks_of_an_earlier_process_count(engine: Engine) {
    let mut world = World::with(engine, TaskLimits { max: 2, ..TaskLimits::default() });
    assert_eq!(refused(&mut world, &ann()).await, None);
    assert_eq!(refused(&mut world, &bob()).await, None);
    let mut world = world.killed().await;
    while world.tasks.count() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(refused(&mut world, &ann()).await, Some("too_many_tasks".to_owned()));
}

async fn an_outcome_is_only_so_large(engine: Engine) {
    let mut world = World::with(engine, TaskLimits { max_outcome_bytes: 1000, ..TaskLimits::default() });
    let (id, asked) = world.task(&ann()).await;
    asked.answer(&json!({ "content": ["x".repeat(900)] }));
    world.until_status(&ann(), &id, "completed").await;
    let (id, asked) = world.task(&ann()).await;
    asked.answer(&json!({ "content": ["x".repeat(1000)] }));
    let task = world.until_status(&ann(), &id, "failed").await;
    assert_eq!(task["error"]["data"], json!({ "reason": "event_too_large", "limit": 1000 }));
    let (id, asked) = world.task(&ann()).await;
    asked.fail(tenure_protocol::RpcError::new(-32000, &"x".repeat(1000)));
    let task = world.until_status(&ann(), &id, "failed").await;
    assert_eq!(task["error"]["data"]["reason"], "event_too_large");
}

async fn without_tasks_no_client_is_told_of_them(engine: Engine) {
    let mut world = World::with(engine, TaskLimits { max: 0, ..TaskLimits::default() });
    let answer = world.send(&ann(), request("tools/call", json!({ "name": "dig" })));
    let asked = world.server.expect("tools/call").await;
    assert_eq!(asked.context.become_task(TaskWish::default()).await, Ok(Became::No));
    asked.answer(&json!({ "content": [] }));
    assert_eq!(answer.await.unwrap()["result"]["resultType"], "complete");
    let discovered = world.send(&ann(), request("server/discover", json!({})));
    world.server.expect("server/discover").await.answer(&json!({ "capabilities": { "tools": {} } }));
    assert_eq!(discovered.await.unwrap()["result"]["capabilities"], json!({ "tools": {} }));
    // Whatever the server says to it.
    let get = world.send(&ann(), request("tasks/get", json!({ "taskId": "x" })));
    world.server.expect("tasks/get").await.fail(tenure_protocol::RpcError::new(-32601, "no"));
    assert_eq!(get.await.unwrap()["error"]["code"], -32601);
}

async fn where_there_are_tasks_the_server_says_so(engine: Engine) {
    let mut world = World::new(engine);
    let discovered = world.send(&ann(), request("server/discover", json!({})));
    world.server.expect("server/discover").await.answer(&json!({ "capabilities": { "tools": {} } }));
    let capabilities = discovered.await.unwrap()["result"]["capabilities"].take();
    assert_eq!(capabilities, json!({ "tools": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } }));
}
