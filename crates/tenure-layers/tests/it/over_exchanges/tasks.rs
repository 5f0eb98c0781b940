//! Tasks of a modern server, followed for clients in sessions.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_protocol::{Method, Notification, RawJson, Reason, RpcError};
use tenure_session::{Answer, Session};
use tenure_testkit::fake_responder::FakeRequest;
use tenure_testkit::runtime::{self, json_of, reader_of};

use crate::over_exchanges::support::{World, next, quiet, reply, send};

/// The discovery result of a server that has tasks.
fn with_tasks() -> Value {
    let mut discovery = quiet();
    discovery["capabilities"]["extensions"] = json!({ "io.modelcontextprotocol/tasks": {} });
    discovery
}

async fn session(world: &mut World) -> Arc<Session> {
    session_of(world, &json!({ "elicitation": {} })).await
}

async fn session_of(world: &mut World, capabilities: &Value) -> Arc<Session> {
    world.introduced("2025-11-25", capabilities, &with_tasks()).await.0
}

/// A task as the server sees it.
fn task(status: &str) -> Value {
    json!({
        "resultType": "complete", "taskId": "t", "status": status, "createdAt": "2026-01-01T00:00:00Z",
        "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttlMs": 60_000, "pollIntervalMs": 1,
    })
}

fn holding(status: &str, name: &str, holds: Value) -> Value {
    let mut task = task(status);
    task[name] = holds;
    task
}

/// The server makes a task of a call.
async fn created(world: &mut World) {
    let asked = world.server.expect("tools/call").await;
    let declared = asked.meta("clientCapabilities")["extensions"].clone();
    assert_eq!(declared, json!({ "io.modelcontextprotocol/tasks": {} }));
    let mut created = task("working");
    created["resultType"] = "task".into();
    asked.answer(&created);
}

/// The next `tasks/get` that the server receives.
async fn polled(world: &mut World) -> FakeRequest {
    let asked = world.server.expect("tasks/get").await;
    let mut params = asked.params();
    params.as_object_mut().unwrap().remove("_meta");
    assert_eq!(params, json!({ "taskId": "t" }));
    asked
}

/// The answer to a call, which becomes a stream if it takes a while.
async fn answer_of(answer: Answer) -> Value {
    match answer {
        Answer::Stream(mut reader) => runtime::events(&mut reader).await.pop().unwrap(),
        answer => json_of(answer),
    }
}

fn confirm() -> Value {
    let form = json!({ "mode": "form", "message": "Sure?", "requestedSchema": { "type": "object", "properties": {} } });
    json!({ "k": { "method": "elicitation/create", "params": form } })
}

#[tokio::test]
async fn the_outcome_of_a_task_is_the_answer_to_the_call() {
    let mut world = World::new();
    let session = session(&mut world).await;
    let called = json!({ "name": "t", "_meta": { "progressToken": "p" } });
    let waiting = send(&session, 1, "tools/call", &called);
    created(&mut world).await;
    polled(&mut world).await.answer(&task("working"));
    polled(&mut world).await.answer(&holding("working", "statusMessage", json!("half of it")));
    polled(&mut world).await.answer(&holding("working", "statusMessage", json!("half of it")));
    polled(&mut world).await.answer(&holding("working", "statusMessage", json!("nearly")));
    let result = json!({ "content": [{ "type": "text", "text": "x" }], "structuredContent": [1] });
    polled(&mut world).await.answer(&holding("completed", "result", result));
    let said = runtime::events(&mut reader_of(waiting.await.unwrap())).await;
    let told: Vec<_> = said.iter().map(|it| (&it["params"]["message"], &it["params"]["progress"])).collect();
    assert_eq!(told[..2], [(&json!("half of it"), &json!(1)), (&json!("nearly"), &json!(2))]);
    assert_eq!(said[0]["params"]["progressToken"], "p");
    assert_eq!(said[2]["result"]["content"][0]["text"], "x", "{said:?}");
    assert_eq!(said[2]["result"]["structuredContent"], Value::Null, "in the shape of sessions");
    assert_eq!(said.len(), 3);
    assert!(world.server.is_quiet(), "nothing is cancelled that has ended");
}

#[tokio::test]
async fn what_a_task_waits_for_is_asked_of_the_client_once() {
    let mut world = World::new();
    let session = session(&mut world).await;
    let waiting = send(&session, 1, "tools/call", &json!({ "name": "t" }));
    created(&mut world).await;
    polled(&mut world).await.answer(&holding("input_required", "inputRequests", confirm()));
    let mut reader = reader_of(waiting.await.unwrap());
    let question = next(&mut reader).await;
    assert_eq!(
        (&question["method"], &question["params"]["message"]),
        (&json!("elicitation/create"), &json!("Sure?"))
    );
    // The task is polled while the client has not answered yet.
    polled(&mut world).await.answer(&holding("input_required", "inputRequests", confirm()));
    reply(&session, &question, &json!({ "action": "accept", "content": {} }));
    let mut asked = world.server.next().await;
    while asked.request.method == Method::TasksGet {
        asked.answer(&holding("input_required", "inputRequests", confirm()));
        asked = world.server.next().await;
    }
    assert_eq!(asked.request.method, Method::TasksUpdate);
    let answers = json!({ "k": { "action": "accept", "content": {} } });
    assert_eq!((&asked.params()["taskId"], &asked.params()["inputResponses"]), (&json!("t"), &answers));
    // The task may show its question for a moment after the answer, and an answer that got lost is sent again.
    asked.fail(RpcError::of(Reason::BackendUnavailable, "a moment"));
    let again = world.server.expect("tasks/update").await;
    assert_eq!(again.params()["inputResponses"], answers);
    again.answer(&json!({ "resultType": "complete" }));
    polled(&mut world).await.answer(&holding("input_required", "inputRequests", confirm()));
    polled(&mut world).await.answer(&holding("completed", "result", json!({ "content": [] })));
    assert_eq!(next(&mut reader).await["result"], json!({ "content": [] }));
}

#[tokio::test]
async fn a_question_is_withdrawn_when_the_task_ends_without_its_answer() {
    let mut world = World::new();
    let session = session(&mut world).await;
    let waiting = send(&session, 1, "tools/call", &json!({ "name": "t" }));
    created(&mut world).await;
    polled(&mut world).await.answer(&holding("input_required", "inputRequests", confirm()));
    let mut reader = reader_of(waiting.await.unwrap());
    let question = next(&mut reader).await;
    polled(&mut world).await.answer(&task("cancelled"));
    let (first, second) = (next(&mut reader).await, next(&mut reader).await);
    let (withdrawn, answer) = if first["method"].is_null() { (second, first) } else { (first, second) };
    assert_eq!(withdrawn["method"], "notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    assert!(answer["error"]["message"].as_str().unwrap().contains("cancelled the task"), "{answer}");
}

#[tokio::test]
async fn a_call_that_is_withdrawn_cancels_its_task() {
    let mut world = World::new();
    let session = session(&mut world).await;
    let _waiting = send(&session, 1, "tools/call", &json!({ "name": "t" }));
    created(&mut world).await;
    let asked = polled(&mut world).await;
    let params = RawJson::of(&json!({ "requestId": 1 }));
    session.notification(Notification { method: Method::Cancelled, params: Some(params) }).unwrap();
    asked.dropped().await;
    let cancel = world.server.expect("tasks/cancel").await;
    assert_eq!(cancel.params()["taskId"], "t");
    assert!(!cancel.is_dropped());
    cancel.answer(&json!({ "resultType": "complete" }));
}

#[tokio::test]
async fn a_fault_on_the_way_to_the_server_is_no_end() {
    let mut world = World::new();
    let session = session(&mut world).await;
    let waiting = send(&session, 1, "tools/call", &json!({ "name": "t" }));
    created(&mut world).await;
    for reason in [Reason::BackendUnavailable, Reason::TimedOut] {
        polled(&mut world).await.fail(RpcError::of(reason, "not now"));
    }
    polled(&mut world).await.answer(&holding("completed", "result", json!({ "content": [] })));
    assert_eq!(answer_of(waiting.await.unwrap()).await["result"], json!({ "content": [] }));
}

#[tokio::test]
async fn how_tasks_end_that_do_not_end_well() {
    let error = json!({ "code": 17, "message": "m" });
    let table = [
        (Ok(holding("failed", "error", error)), 17, "m", false),
        (Ok(task("cancelled")), -31010, "The server cancelled the task", false),
        (Err(RpcError::new(-32602, "There is no such task")), -32603, "There is no such task", false),
        (Err(RpcError::new(-32603, "broken")), -32603, "broken", true),
        (Ok(json!({ "resultType": "complete" })), -32603, "cannot be read", true),
        (Ok(holding("completed", "result", json!({ "resultType": "task" }))), -32603, "not an answer", false),
    ];
    for (got, code, words, is_cancelled) in table {
        let mut world = World::new();
        let session = session(&mut world).await;
        let waiting = send(&session, 1, "tools/call", &json!({ "name": "t" }));
        created(&mut world).await;
        let asked = polled(&mut world).await;
        match got {
            Ok(got) => asked.answer(&got),
            Err(error) => asked.fail(error),
        }
        let answer = answer_of(waiting.await.unwrap()).await;
        assert_eq!(answer["error"]["code"], code, "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(words), "{answer}");
        if is_cancelled {
            world.server.expect("tasks/cancel").await.answer(&json!({}));
        }
        assert!(world.server.is_quiet());
    }
}

#[tokio::test]
async fn a_client_that_cannot_be_asked_is_told_and_the_task_is_cancelled() {
    let mut world = World::new();
    let session = session_of(&mut world, &json!({})).await;
    let waiting = send(&session, 1, "tools/call", &json!({ "name": "t" }));
    created(&mut world).await;
    polled(&mut world).await.answer(&holding("input_required", "inputRequests", confirm()));
    let answer = answer_of(waiting.await.unwrap()).await;
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    let cancel = world.server.expect("tasks/cancel").await;
    assert_eq!(cancel.params()["taskId"], "t");
    cancel.answer(&json!({ "resultType": "complete" }));
}

#[tokio::test]
async fn several_calls_are_tasks_at_once() {
    let mut world = World::new();
    let session = session(&mut world).await;
    let waiting: Vec<_> = (0..4_u64)
        .map(|number| send(&session, number, "tools/call", &json!({ "name": format!("t{number}") })))
        .collect();
    let mut open = 4;
    while open > 0 {
        let asked = world.server.next().await;
        let params = asked.params();
        if asked.request.method == Method::ToolsCall {
            let mut created = task("working");
            (created["resultType"], created["taskId"]) = ("task".into(), params["name"].clone());
            asked.answer(&created);
            continue;
        }
        assert_eq!(asked.request.method, Method::TasksGet);
        let result = json!({ "content": [{ "type": "text", "text": params["taskId"] }] });
        let mut done = holding("completed", "result", result);
        done["taskId"] = params["taskId"].clone();
        asked.answer(&done);
        open -= 1;
    }
    for (number, waiting) in waiting.into_iter().enumerate() {
        let answer = answer_of(waiting.await.unwrap()).await;
        assert_eq!(answer["result"]["content"][0]["text"], format!("t{number}"));
    }
}
