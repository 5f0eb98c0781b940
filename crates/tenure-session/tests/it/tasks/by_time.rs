//! Calls that become tasks because they run for long, whichever server they are for, and go on in the next process.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_protocol::{Method, RpcError};
use tenure_session::Route;
use tenure_session::call::{Caller, Granted};
use tenure_session::exchange::Exchanges;
use tenure_session::fingerprint::Fingerprint;
use tenure_session::task::{TaskLimits, Tasks};
use tenure_store::memory::Memory;
use tenure_testkit::clock::HandClock;
use tenure_testkit::fake_responder::{FakeRequest, FakeResponder};
use tokio::time::Instant;

use crate::tasks::support::{
    By, Engine, World, ann, bob, caller, exchanges, id, on_every_engine, request, request_of, send, send_as,
};

on_every_engine!(
    a_call_that_may_be_carried_out_twice_goes_on_after_a_kill,
    a_call_that_goes_on_after_a_kill_has_the_scopes_it_was_sent_with,
    any_other_call_was_interrupted_by_a_kill,
    a_call_goes_on_after_a_process_has_left,
);

const SOON: Duration = Duration::from_millis(20);

fn soon() -> TaskLimits {
    TaskLimits { after: Some(SOON), ..TaskLimits::default() }
}

/// A call that has run for so long that it is a task.
async fn grown(world: &mut World) -> (String, FakeRequest) {
    let answer =
        world.send(&ann(), request("tools/call", json!({ "name": "dig", "arguments": { "deep": 1.50 } })));
    let asked = world.server.expect("tools/call").await;
    let created = answer.await.unwrap();
    assert_eq!(created["result"]["resultType"], "task", "{created}");
    (id(&created), asked)
}

/// Answers the question which tools may be called twice.
async fn hint(world: &mut World, annotations: &Value) {
    let listed = json!({ "tools": [{ "name": "dig", "annotations": annotations }] });
    world.server.expect("tools/list").await.answer(&listed);
}

async fn a_call_that_may_be_carried_out_twice_goes_on_after_a_kill(engine: Engine) {
    let mut world = World::with(engine, soon());
    let (id, call) = grown(&mut world).await;
    let before = call.params();
    let mut world = world.killed().await;
    assert_eq!(world.get(&bob(), &id).await["error"]["code"], -32602, "it is its owner's alone");
    assert!(world.server.is_quiet(), "nor do others make it go on");
    assert_eq!(world.get(&ann(), &id).await["result"]["status"], "working");
    hint(&mut world, &json!({ "idempotentHint": true })).await;
    let again = world.server.expect("tools/call").await;
    assert_eq!(again.params(), before);
    assert_eq!(again.context.caller().principal, ann());
    assert_eq!(world.get(&ann(), &id).await["result"]["status"], "working");
    assert!(world.server.is_quiet(), "it is carried out once");
    again.answer(&json!({ "content": [{ "type": "text", "text": "gold" }] }));
    let done = world.until_status(&ann(), &id, "completed").await;
    assert_eq!(done["result"]["content"][0]["text"], "gold");
    // Its outcome is kept like that of any task.
    let world = world.killed().await;
    assert_eq!(world.get(&ann(), &id).await["result"]["result"], done["result"]);
}

/// It would otherwise do what its caller may not.
async fn a_call_that_goes_on_after_a_kill_has_the_scopes_it_was_sent_with(engine: Engine) {
    let scopes = Granted::Scopes(["a:read".into()].into());
    let mut world = World::with(engine, soon());
    let call = request("tools/call", json!({ "name": "dig" }));
    let caller = Caller { scopes: scopes.clone(), ..caller(&ann()) };
    let answer = send_as(world.exchanges.clone(), caller, call);
    assert_eq!(world.server.expect("tools/call").await.context.caller().scopes, scopes);
    let id = id(&answer.await.unwrap());
    let mut world = world.killed().await;
    world.get(&ann(), &id).await;
    let listed = world.server.expect("tools/list").await;
    assert_eq!(listed.context.caller().scopes, Granted::Ours, "no client sees what we ask");
    listed.answer(&json!({ "tools": [{ "name": "dig", "annotations": { "idempotentHint": true } }] }));
    assert_eq!(world.server.expect("tools/call").await.context.caller().scopes, scopes);
}

async fn any_other_call_was_interrupted_by_a_kill(engine: Engine) {
    let mut world = World::with(engine, soon());
    let (id, _call) = grown(&mut world).await;
    let mut world = world.killed().await;
    assert_eq!(world.get(&ann(), &id).await["result"]["status"], "working", "until the server has said it");
    hint(&mut world, &json!({})).await;
    let failed = world.until_status(&ann(), &id, "failed").await;
    assert_eq!(failed["error"]["data"]["reason"], "interrupted");
    assert!(world.server.is_quiet());
    assert_eq!(world.tasks.live(), 0);
}

async fn a_call_goes_on_after_a_process_has_left(engine: Engine) {
    let mut world = World::with(engine, soon());
    let (safe, call) = grown(&mut world).await;
    let (exchanges, until) = (world.exchanges.clone(), Instant::now() + Duration::from_secs(60));
    let leaving = tokio::spawn(async move { exchanges.leave(until).await });
    hint(&mut world, &json!({ "readOnlyHint": true })).await;
    assert_eq!(leaving.await.unwrap(), 0, "nothing is interrupted, nor waited for");
    call.dropped().await;
    let mut world = world.killed().await;
    assert_eq!(world.get(&ann(), &safe).await["result"]["status"], "working");
    hint(&mut world, &json!({ "readOnlyHint": true })).await;
    world.server.expect("tools/call").await.answer(&json!({ "content": [] }));
    world.until_status(&ann(), &safe, "completed").await;
}

#[tokio::test]
async fn a_call_that_has_to_be_finished_is_a_task_whose_end_is_waited_for() {
    let mut world = World::with(Engine::memory(), soon());
    let (id, call) = grown(&mut world).await;
    let (exchanges, until) = (world.exchanges.clone(), Instant::now() + Duration::from_secs(60));
    let leaving = tokio::spawn(async move { exchanges.leave(until).await });
    hint(&mut world, &json!({})).await;
    call.answer(&json!({ "content": [] }));
    assert_eq!(leaving.await.unwrap(), 0);
    let world = world.killed().await;
    assert_eq!(world.get(&ann(), &id).await["result"]["status"], "completed");
}

#[tokio::test]
async fn a_task_does_not_go_on_with_another_server_in_silence() {
    let (store, clock) = (Arc::new(Memory::new()), Arc::new(HandClock::start()));
    let process = |command: &str| {
        let (fake, server) = FakeResponder::new();
        let fingerprints =
            [(Route::MAIN, Fingerprint::of(command, [command.as_bytes()]))].into_iter().collect();
        let tasks = Tasks::start(Arc::clone(&store) as _, Arc::clone(&clock) as _, soon());
        (exchanges(fake, &clock).with_store(Arc::clone(&store) as _, fingerprints).with_tasks(tasks), server)
    };
    let (old, mut server) = process("foo");
    let answer = send(old, ann(), request("tools/call", json!({ "name": "dig" })));
    let _call = server.expect("tools/call").await;
    let id = id(&answer.await.unwrap());
    let (new, server) = process("bar");
    let mut status = json!("working");
    while status == "working" {
        let seen = send(new.clone(), ann(), request("tasks/get", json!({ "taskId": id }))).await.unwrap();
        status = seen["result"]["status"].clone();
        if status == "failed" {
            assert_eq!(seen["result"]["error"]["data"]["reason"], "interrupted", "{seen}");
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(status, "failed");
    assert!(server.is_quiet(), "the other server hears nothing of it");
}

#[tokio::test]
async fn a_quick_call_and_a_client_without_tasks_get_their_answers() {
    let mut world = World::with(Engine::memory(), soon());
    let quick = world.send(&ann(), request("tools/call", json!({ "name": "dig" })));
    world.server.expect("tools/call").await.answer(&json!({ "content": [] }));
    assert_eq!(quick.await.unwrap()["result"]["resultType"], "complete");
    let plain = request_of("tools/call", json!({ "name": "dig" }), json!({}));
    let waiting = world.send(&ann(), plain);
    let asked = world.server.expect("tools/call").await;
    let list = world.send(&ann(), request("resources/list", json!({})));
    let listed = world.server.expect("resources/list").await;
    tokio::time::sleep(SOON * 3).await;
    assert!(!waiting.is_finished() && !list.is_finished());
    asked.answer(&json!({ "content": [] }));
    listed.answer(&json!({}));
    assert_eq!(waiting.await.unwrap()["result"]["resultType"], "complete");
    assert_eq!(list.await.unwrap()["result"]["resultType"], "complete");
    assert_eq!(world.records().await, 0);
}

#[tokio::test]
async fn a_server_that_asks_by_its_result_is_answered_through_the_task() {
    let mut world = World::with(Engine::memory(), soon());
    let (id, call) = grown(&mut world).await;
    let form = json!({ "message": "deeper?", "requestedSchema": { "type": "object", "properties": {} } });
    let wanted = json!({ "deeper": { "method": "elicitation/create", "params": form } });
    call.answer(
        &json!({ "resultType": "input_required", "inputRequests": wanted, "requestState": "at 3 m" }),
    );
    let asking = world.until_status(&ann(), &id, "input_required").await;
    assert_eq!(asking["inputRequests"]["deeper"]["params"]["message"], "deeper?");
    let answer = json!({ "action": "accept", "content": {} });
    world.update(&ann(), &id, json!({ "deeper": answer })).await;
    let again = world.server.expect("tools/call").await;
    assert_eq!(again.params()["requestState"], "at 3 m");
    assert_eq!(again.params()["inputResponses"], json!({ "deeper": answer }));
    again.answer(&json!({ "content": [] }));
    world.until_status(&ann(), &id, "completed").await;
}

#[tokio::test]
async fn a_lost_server_does_not_end_a_task_that_is_safe() {
    let mut world = World::with(Engine::memory(), soon());
    let (id, call) = grown(&mut world).await;
    call.fail(RpcError::of(tenure_protocol::Reason::BackendUnavailable, "gone"));
    hint(&mut world, &json!({ "readOnlyHint": true })).await;
    world.server.expect("tools/call").await.answer(&json!({ "content": [] }));
    world.until_status(&ann(), &id, "completed").await;
}

#[tokio::test]
async fn every_server_is_advertised_with_tasks_unless_that_is_switched_off() {
    for (after, expected) in [(Some(SOON), true), (None, false)] {
        let clock = Arc::new(HandClock::start());
        let tasks = Tasks::start(
            Arc::new(Memory::new()),
            clock.clone(),
            TaskLimits { after, ..TaskLimits::default() },
        );
        let exchanges: Exchanges = exchanges(Arc::new(KeepsItsOwn), &clock).with_tasks(tasks);
        let told = send(exchanges, ann(), request("server/discover", json!({}))).await.unwrap();
        let extensions = &told["result"]["capabilities"]["extensions"];
        assert_eq!(extensions.get("io.modelcontextprotocol/tasks").is_some(), expected, "{told}");
    }
}

/// A server that has no tasks, and says that they are its own affair.
struct KeepsItsOwn;

impl tenure_session::backend::Responder for KeepsItsOwn {
    fn respond(
        &self,
        call: tenure_session::backend::Call,
    ) -> tenure_session::port::BoxFuture<tenure_protocol::Reply> {
        let answer = |call: tenure_session::backend::Call| -> tenure_session::port::BoxFuture<_> {
            assert_eq!(call.request.method, Method::Discover);
            Box::pin(std::future::ready(Ok(tenure_protocol::RawJson::of(&json!({ "capabilities": {} })))))
        };
        By(answer).respond(call)
    }

    fn keeps_tasks(&self, _: &tenure_session::Route) -> bool {
        true
    }
}

#[tokio::test]
async fn a_store_that_fails_leaves_the_call_what_it_was() {
    let mut world = World::with(Engine::memory(), soon());
    world.store.set_broken(true);
    let waiting = world.send(&ann(), request("tools/call", json!({ "name": "dig" })));
    let asked = world.server.expect("tools/call").await;
    tokio::time::sleep(SOON * 3).await;
    assert!(!waiting.is_finished());
    asked.answer(&json!({ "content": [] }));
    assert_eq!(waiting.await.unwrap()["result"]["resultType"], "complete");
}
