//! What is left of tasks when their process was killed.

use serde_json::{Value, json};
use tenure_protocol::Method;

use crate::tasks::support::{Engine, MINUTE, World, ann, bob, on_every_engine};

on_every_engine!(
    what_was_under_way_was_interrupted,
    what_had_ended_is_there_as_it_was,
    a_client_that_may_not_see_a_task_does_not_wake_it,
    tasks_of_a_revoked_owner_are_not_started_again,
);

async fn what_was_under_way_was_interrupted(engine: Engine) {
    let mut world = World::new(engine);
    let (working, _first) = world.task(&ann()).await;
    let (asking, second) = world.task(&ann()).await;
    let context = second.context.clone();
    tokio::spawn(async move {
        context.ask(&Method::ElicitationCreate, Some(&tenure_protocol::RawJson::EMPTY_OBJECT)).await
    });
    world.until_status(&ann(), &asking, "input_required").await;
    let mut world = world.killed().await;
    let interrupted = |task: &Value| {
        assert_eq!(task["result"]["status"], "failed", "{task}");
        let error = &task["result"]["error"];
        assert_eq!((&error["code"], &error["data"]["reason"]), (&json!(-31010), &json!("interrupted")));
        assert_eq!(task["result"].get("inputRequests"), None);
    };
    let seen = world.get(&ann(), &working).await;
    interrupted(&seen);
    // Whichever request comes first finds it.
    assert_eq!(world.update(&ann(), &asking, json!({ "q1": {} })).await["result"]["resultType"], "complete");
    interrupted(&world.get(&ann(), &asking).await);
    assert_eq!(world.cancel(&ann(), &asking).await["result"]["resultType"], "complete");
    interrupted(&world.get(&ann(), &asking).await);
    // It was written down, and is the same for the next process.
    let puts = world.store.puts();
    assert_eq!(world.get(&ann(), &working).await, seen);
    assert_eq!(world.store.puts(), puts);
    world.clock.turn(MINUTE);
    let world_after = world.killed().await;
    assert_eq!(world_after.get(&ann(), &working).await, seen);
    world = world_after;
    assert!(world.server.is_quiet(), "nothing is done twice");
    assert_eq!((world.tasks.live(), world.records().await), (0, 2));
}

async fn what_had_ended_is_there_as_it_was(engine: Engine) {
    let mut world = World::new(engine);
    let (completed, asked) = world.task(&ann()).await;
    asked.answer(&json!({ "content": [{ "type": "text", "text": "\u{e9}" }], "isError": true }));
    let (failed, asked) = world.task(&ann()).await;
    asked.fail(tenure_protocol::RpcError::new(-32000, "no"));
    let (cancelled, _asked) = world.task(&ann()).await;
    world.cancel(&ann(), &cancelled).await;
    let mut before = Vec::new();
    for (id, status) in [(&completed, "completed"), (&failed, "failed"), (&cancelled, "cancelled")] {
        world.until_status(&ann(), id, status).await;
        before.push((id, world.get(&ann(), id).await));
    }
    let world = world.killed().await;
    for (id, before) in before {
        assert_eq!(world.get(&ann(), id).await, before);
    }
}

async fn a_client_that_may_not_see_a_task_does_not_wake_it(engine: Engine) {
    let mut world = World::new(engine);
    let (id, _asked) = world.task(&ann()).await;
    let world = world.killed().await;
    for _ in 0..2 {
        assert_eq!(world.get(&bob(), &id).await["error"]["code"], -32602);
    }
    assert_eq!(world.store.puts(), 0);
}

/// A revoked principal that comes back with new credentials would otherwise start what it had begun with the old ones.
async fn tasks_of_a_revoked_owner_are_not_started_again(engine: Engine) {
    let mut world = World::new(engine);
    let (of_ann, _first) = world.task(&ann()).await;
    let (of_bob, _second) = world.task(&bob()).await;
    let world = world.killed().await;
    assert_eq!(world.exchanges.cancel_tasks_left(&ann()).await, Ok(1));
    assert_eq!(world.exchanges.cancel_tasks_left(&ann()).await, Ok(0), "they have ended");
    assert_eq!(world.get(&ann(), &of_ann).await["result"]["status"], "cancelled");
    assert_eq!(world.get(&bob(), &of_bob).await["result"]["status"], "failed", "interrupted, as any other");
}
