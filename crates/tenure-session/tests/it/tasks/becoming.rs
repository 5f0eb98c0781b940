//! How a call becomes a task, and for whom.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_protocol::{Eras, Method, RawJson, Reply, modern};
use tenure_session::backend::{Call, Responder};
use tenure_session::call::{Became, TaskWish};
use tenure_session::exchange::ExchangeAnswer;
use tenure_session::port::BoxFuture;
use tenure_session::task::TaskLimits;
use tenure_session::{Principal, Route};
use tenure_testkit::clock::HandClock;

use crate::tasks::support::{
    By, Engine, MINUTE, SECOND, World, ann, bob, caller, exchanges, id, on_every_engine, request, request_of,
    send,
};

on_every_engine!(
    a_task_is_in_the_store_before_its_client_hears_of_it,
    what_a_client_sees_of_a_task,
    the_outcome_is_the_handlers_own,
    a_task_is_its_owners_alone,
    a_client_that_does_not_know_tasks_waits,
    only_calls_of_tools_become_tasks,
    a_client_that_hangs_up_before_it_heard_of_a_task_has_no_task,
    messages_of_a_task_are_dropped,
);

async fn a_task_is_in_the_store_before_its_client_hears_of_it(engine: Engine) {
    let mut world = World::new(engine);
    world.store.hold_answers_of_puts();
    let answer = world.send(&ann(), request("tools/call", json!({ "name": "dig" })));
    let asked = world.server.expect("tools/call").await;
    let context = asked.context.clone();
    let became = tokio::spawn(async move { context.become_task(TaskWish::default()).await });
    while world.store.puts() == 0 {
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!answer.is_finished() && !became.is_finished(), "told before it is known to be kept");
    world.store.answer_puts();
    let created = answer.await.unwrap();
    assert_eq!(became.await.unwrap(), Ok(Became::Task));
    assert_eq!(world.records().await, 1);
    assert_eq!(world.get(&ann(), &id(&created)).await["result"]["status"], "working");
}

async fn what_a_client_sees_of_a_task(engine: Engine) {
    let mut world = World::new(engine);
    let wish = TaskWish { ttl: Some(5 * MINUTE), poll: Some(2 * SECOND) };
    // The wishes of clients of an older revision are ignored.
    let call = request("tools/call", json!({ "name": "dig", "task": { "ttl": 7 } }));
    let answer = world.send(&ann(), call);
    let asked = world.server.expect("tools/call").await;
    assert_eq!(asked.context.become_task(wish).await, Ok(Became::Task));
    assert_eq!(asked.context.become_task(wish).await, Ok(Became::Task), "once is enough");
    let mut created = answer.await.unwrap()["result"].take();
    let id = created["taskId"].as_str().unwrap().to_owned();
    created["taskId"] = "x".into();
    assert_eq!(
        created,
        json!({
            "resultType": "task", "taskId": "x", "status": "working", "ttlMs": 300_000, "pollIntervalMs": 2000,
            "createdAt": "2023-11-14T22:13:20Z", "lastUpdatedAt": "2023-11-14T22:13:20Z",
        })
    );
    world.clock.turn(SECOND);
    asked.answer(&json!({ "content": [] }));
    let mut ended = world.until_status(&ann(), &id, "completed").await;
    ended["taskId"] = "x".into();
    assert_eq!(
        ended,
        json!({
            "resultType": "complete", "taskId": "x", "status": "completed", "ttlMs": 300_000,
            "pollIntervalMs": 2000, "createdAt": "2023-11-14T22:13:20Z",
            "lastUpdatedAt": "2023-11-14T22:13:21Z", "result": { "content": [] },
        })
    );
}

async fn the_outcome_is_the_handlers_own(engine: Engine) {
    let mut world = World::new(engine);
    let (failed, asked) = world.task(&ann()).await;
    let result =
        json!({ "content": [{ "type": "text", "text": "no" }], "isError": true, "_meta": { "x": 1 } });
    asked.answer(&result);
    // The tool has failed; the task has completed.
    assert_eq!(world.until_status(&ann(), &failed, "completed").await["result"], result);
    let (broken, asked) = world.task(&ann()).await;
    asked.fail(tenure_protocol::RpcError::new(-32603, "broken"));
    let broken = world.until_status(&ann(), &broken, "failed").await;
    assert_eq!(broken["error"], json!({ "code": -32603, "message": "broken" }));
    assert_eq!(broken.get("result"), None);
    // A wish for input is no outcome: the call is sent again.
    let (asking, asked) = world.task(&ann()).await;
    asked.answer(&json!({ "resultType": "input_required", "requestState": "s" }));
    let again = world.server.expect("tools/call").await;
    assert_eq!(again.params()["requestState"], "s");
    again.answer(&json!({ "resultType": "task", "taskId": "mine" }));
    assert_eq!(world.until_status(&ann(), &asking, "failed").await["error"]["code"], -32603, "nor is a task");
}

async fn a_task_is_its_owners_alone(engine: Engine) {
    let mut world = World::new(engine);
    let (id, asked) = world.task(&ann()).await;
    let not_there = |answer: Value| {
        assert_eq!(
            (&answer["error"]["code"], &answer["error"]["data"]["reason"]),
            (&(-32602).into(), &"task_not_found".into()),
            "{answer}"
        );
    };
    let elsewhere = world.exchanges.on(Route::named("other"));
    for status in ["working", "completed"] {
        for who in [bob(), Principal::ANONYMOUS] {
            not_there(world.get(&who, &id).await);
            not_there(world.update(&who, &id, json!({})).await);
            not_there(world.cancel(&who, &id).await);
        }
        let get = request("tasks/get", json!({ "taskId": id }));
        not_there(send(elsewhere.clone(), ann(), get).await.unwrap());
        for other in ["", "nonsense", "00000000000000000000000000000000"] {
            not_there(world.get(&ann(), other).await);
        }
        assert_eq!(world.get(&ann(), &id).await["result"]["status"], status);
        if status == "working" {
            break;
        }
    }
    asked.answer(&json!({ "content": [] }));
    world.until_status(&ann(), &id, "completed").await;
    not_there(world.get(&bob(), &id).await);
    not_there(send(elsewhere, ann(), request("tasks/get", json!({ "taskId": id }))).await.unwrap());
    let broken = world.ask(&ann(), "tasks/get", json!({ "taskId": 7 })).await;
    assert_eq!(broken["error"]["data"]["reason"], "invalid_params");
}

async fn a_client_that_does_not_know_tasks_waits(engine: Engine) {
    let mut world = World::new(engine);
    // The words of an older revision declare nothing.
    for capabilities in
        [json!({}), json!({ "tasks": { "list": {} } }), json!({ "extensions": { "a/b": {} } })]
    {
        let call = request_of("tools/call", json!({ "name": "dig" }), capabilities.clone());
        let answer = world.send(&ann(), call);
        let asked = world.server.expect("tools/call").await;
        assert_eq!(asked.context.become_task(TaskWish::default()).await, Ok(Became::No));
        let error = asked.context.requires_task().unwrap_err();
        assert_eq!(error.code(), -32021);
        let error: Value = error.raw().read().unwrap();
        let needed = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
        assert_eq!(error["data"]["requiredCapabilities"], needed);
        asked.answer(&json!({ "content": [] }));
        assert_eq!(answer.await.unwrap()["result"], json!({ "resultType": "complete", "content": [] }));
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            let about = request_of(method, json!({ "taskId": "x" }), capabilities.clone());
            assert_eq!(world.send(&ann(), about).await.unwrap()["error"]["code"], -32021);
        }
    }
    assert_eq!(world.records().await, 0);
    let asked = world.send(&ann(), request("tools/call", json!({ "name": "dig" })));
    let server = world.server.expect("tools/call").await;
    assert_eq!(server.context.requires_task(), Ok(()));
    server.answer(&json!({}));
    asked.await.unwrap();
}

async fn only_calls_of_tools_become_tasks(engine: Engine) {
    let mut world = World::new(engine);
    for method in ["prompts/get", "resources/read"] {
        let answer = world.send(&ann(), request(method, json!({ "name": "x", "uri": "a:b" })));
        let asked = world.server.expect(method).await;
        assert_eq!(asked.context.become_task(TaskWish::default()).await, Ok(Became::No));
        asked.answer(&json!({}));
        answer.await.unwrap();
    }
}

async fn a_client_that_hangs_up_before_it_heard_of_a_task_has_no_task(engine: Engine) {
    let mut world = World::new(engine);
    world.store.hold_answers_of_puts();
    let answer = world.send(&ann(), request("tools/call", json!({ "name": "dig" })));
    let asked = world.server.expect("tools/call").await;
    let context = asked.context.clone();
    let became = tokio::spawn(async move { context.become_task(TaskWish::default()).await });
    while world.records().await == 0 {
        tokio::task::yield_now().await;
    }
    answer.abort();
    assert!(answer.await.is_err());
    asked.dropped().await;
    assert!(became.await.unwrap().is_err(), "no client is there to come back for it");
    world.store.answer_puts();
    while world.records().await > 0 || world.tasks.count() > 0 || world.tasks.live() > 0 {
        tokio::task::yield_now().await;
    }
}

async fn messages_of_a_task_are_dropped(engine: Engine) {
    let mut world = World::new(engine);
    let meta = json!({ "progressToken": 1, "io.modelcontextprotocol/logLevel": "debug" });
    // A client that would take a stream, and what was said before is on it.
    let call = request("tools/call", json!({ "name": "dig", "_meta": meta }));
    let (exchanges, checked) = (world.exchanges.clone(), modern::check(call, None, Eras::Both).unwrap());
    let answer = tokio::spawn(async move { exchanges.request(checked, caller(&ann())).await });
    let asked = world.server.expect("tools/call").await;
    asked.context.progress(-1.0, None, None).await.unwrap();
    let ExchangeAnswer::Stream(mut flow) = answer.await.unwrap() else { panic!("a stream") };
    let said = |body: Option<bytes::Bytes>| serde_json::from_slice::<Value>(&body.unwrap()).unwrap();
    assert_eq!(said(flow.next().await)["params"]["progress"], -1.0);
    let (became, created) = tokio::join!(asked.context.become_task(TaskWish::default()), flow.next());
    assert_eq!(became, Ok(Became::Task));
    let id = id(&said(created));
    assert!(flow.next().await.is_none());
    // More than would ever wait for a reader.
    for step in 0..10_000 {
        asked.context.progress(f64::from(step), None, None).await.unwrap();
    }
    asked.say(&Method::LogMessage, &json!({ "level": "error", "data": "x" })).await;
    asked.answer(&json!({ "content": [] }));
    world.until_status(&ann(), &id, "completed").await;
}

#[tokio::test]
async fn a_handler_that_panics_as_a_task_fails_it() {
    let by = By(|call: Call| -> BoxFuture<Reply> {
        Box::pin(async move {
            call.context.become_task(TaskWish::default()).await?;
            panic!("on purpose");
        })
    });
    let world = World::new(Engine::memory());
    let exchanges = exchanges(Arc::new(by), &Arc::new(HandClock::start())).with_tasks(world.tasks.clone());
    let call = request("tools/call", json!({ "name": "dig" }));
    let id = id(&send(exchanges, ann(), call).await.unwrap());
    let failed = world.until_status(&ann(), &id, "failed").await;
    assert_eq!(failed["error"]["data"]["reason"], "internal");
}

#[tokio::test]
async fn a_handler_that_is_done_at_once_is_a_task_all_the_same() {
    let by = By(|call: Call| -> BoxFuture<Reply> {
        Box::pin(async move {
            call.context.become_task(TaskWish::default()).await?;
            Ok(RawJson::trusted(r#"{"content":[]}"#))
        })
    });
    let world = World::new(Engine::memory());
    let exchanges = exchanges(Arc::new(by), &Arc::new(HandClock::start())).with_tasks(world.tasks.clone());
    for _ in 0..100 {
        let call = request("tools/call", json!({ "name": "dig" }));
        let id = id(&send(exchanges.clone(), ann(), call).await.unwrap());
        world.until_status(&ann(), &id, "completed").await;
    }
}

/// A server that has tasks of its own, or none.
struct Keeper;

impl Responder for Keeper {
    fn respond(&self, call: Call) -> BoxFuture<Reply> {
        let said = match call.request.method {
            Method::Discover => json!({ "capabilities": { "tools": {} } }),
            Method::ToolsCall => json!({ "resultType": "task", "taskId": "mine", "status": "working" }),
            method => {
                let params: Value = call.request.params.as_ref().unwrap().read().unwrap();
                json!({ "said": method.as_str(), "taskId": params["taskId"] })
            }
        };
        Box::pin(async move {
            assert_eq!(call.context.become_task(TaskWish::default()).await, Ok(Became::No));
            Ok(RawJson::of(&said))
        })
    }

    fn keeps_tasks(&self, _: &Route) -> bool {
        true
    }
}

#[tokio::test]
async fn tasks_that_a_server_keeps_itself_are_its_own() {
    let world = World::with(Engine::memory(), TaskLimits { after: None, ..TaskLimits::default() });
    let keeper = exchanges(Arc::new(Keeper), &Arc::new(HandClock::start())).with_tasks(world.tasks.clone());
    let ask = |who: Principal, method: &str, id: &str| {
        send(keeper.clone(), who, request(method, json!({ "name": "dig", "taskId": id })))
    };
    let made = ask(Principal::ANONYMOUS, "tools/call", "").await.unwrap();
    assert_eq!(made["result"]["taskId"], "mine", "callers without a name cannot be told apart");
    let made = ask(ann(), "tools/call", "").await.unwrap();
    let name = made["result"]["taskId"].as_str().unwrap().to_owned();
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let said = ask(Principal::ANONYMOUS, method, "mine").await.unwrap();
        assert_eq!((&said["result"]["said"], &said["result"]["taskId"]), (&json!(method), &json!("mine")));
        let said = ask(ann(), method, &name).await.unwrap();
        assert_eq!((&said["result"]["said"], &said["result"]["taskId"]), (&json!(method), &json!(name)));
        // Neither the server's own id nor the name that another was given.
        for (who, id) in
            [(ann(), "mine"), (Principal::named("bob"), "mine"), (Principal::named("bob"), name.as_str())]
        {
            let refused = ask(who, method, id).await.unwrap();
            assert_eq!(refused["error"]["data"]["reason"], "task_not_found", "{refused}");
        }
    }
    let discovered = ask(ann(), "server/discover", "").await.unwrap();
    assert_eq!(discovered["result"]["capabilities"], json!({ "tools": {} }));
    assert_eq!(world.records().await, 0);
}
