//! What a task wants to know.

use serde_json::{Value, json};
use tenure_protocol::{Method, RawJson, RpcError};
use tenure_session::call::{Became, CallContext, TaskWish};
use tenure_testkit::fake_responder::FakeRequest;
use tokio::task::JoinHandle;

use crate::tasks::support::{Engine, SECOND, World, ann, id, on_every_engine, request};

on_every_engine!(
    questions_wait_for_the_client_to_come,
    answers_may_come_one_by_one,
    a_key_is_used_once,
    what_is_no_answer_leaves_the_question_open,
    a_call_may_ask_first_and_become_a_task_then,
    a_call_that_asked_first_is_a_task_like_any_other,
    a_question_that_no_attempt_was_given_goes_to_the_task,
    a_question_that_the_client_cannot_answer_is_refused,
);

type Answered = JoinHandle<Result<RawJson, RpcError>>;

fn ask(context: &CallContext, key: Option<&str>, message: &str) -> Answered {
    let mut params = json!({ "mode": "form", "message": message, "requestedSchema": {} });
    if let Some(key) = key {
        params["_meta"]["dev.tenure/inputKey"] = key.into();
    }
    let context = context.clone();
    tokio::spawn(async move { context.ask(&Method::ElicitationCreate, Some(&RawJson::of(&params))).await })
}

async fn answer_of(answered: Answered) -> Value {
    answered.await.unwrap().unwrap().read().unwrap()
}

fn accept(name: &str) -> Value {
    json!({ "action": "accept", "content": { "name": name } })
}

fn keys(task: &Value) -> Vec<&str> {
    task["inputRequests"].as_object().map(|all| all.keys().map(String::as_str).collect()).unwrap_or_default()
}

async fn questions_wait_for_the_client_to_come(engine: Engine) {
    let mut world = World::new(engine);
    let (id, asked) = world.task(&ann()).await;
    let answered = ask(&asked.context, None, "who?");
    let task = world.until_status(&ann(), &id, "input_required").await;
    let question = json!({ "method": "elicitation/create", "params": { "mode": "form", "message": "who?", "requestedSchema": {} } });
    assert_eq!(task["inputRequests"], json!({ "q1": question }));
    assert_eq!(
        world.update(&ann(), &id, json!({ "q1": accept("x") })).await["result"],
        json!({ "resultType": "complete" })
    );
    assert_eq!(answer_of(answered).await, accept("x"));
    assert_eq!(world.get(&ann(), &id).await["result"]["status"], "working");
    asked.answer(&json!({ "content": [] }));
    let ended = world.until_status(&ann(), &id, "completed").await;
    assert_eq!(ended.get("inputRequests"), None);
    // It wants to know nothing any more, which is no error.
    assert_eq!(
        world.update(&ann(), &id, json!({ "q1": accept("y") })).await["result"]["resultType"],
        "complete"
    );
}

async fn answers_may_come_one_by_one(engine: Engine) {
    let mut world = World::new(engine);
    let (id, asked) = world.task(&ann()).await;
    let first = ask(&asked.context, Some("first"), "1?");
    let second = ask(&asked.context, Some("second"), "2?");
    world.until(&ann(), &id, |task| keys(task) == ["first", "second"]).await;
    world.update(&ann(), &id, json!({ "second": accept("2"), "never asked": accept("9") })).await;
    assert_eq!(answer_of(second).await, accept("2"));
    let task = world.get(&ann(), &id).await["result"].take();
    assert_eq!((keys(&task), &task["status"]), (vec!["first"], &json!("input_required")));
    // An answered question is not answered again.
    world.update(&ann(), &id, json!({ "second": accept("3") })).await;
    world.update(&ann(), &id, json!({ "first": accept("1") })).await;
    assert_eq!(answer_of(first).await, accept("1"));
    world.until_status(&ann(), &id, "working").await;
}

async fn a_key_is_used_once(engine: Engine) {
    let mut world = World::new(engine);
    let (id, asked) = world.task(&ann()).await;
    for key in ["name", "name-2", "name-3"] {
        let answered = ask(&asked.context, Some("name"), "who?");
        world.until(&ann(), &id, |task| keys(task) == [key]).await;
        world.update(&ann(), &id, json!({ key: accept(key) })).await;
        assert_eq!(answer_of(answered).await, accept(key));
    }
}

async fn what_is_no_answer_leaves_the_question_open(engine: Engine) {
    let mut world = World::new(engine);
    let (id, asked) = world.task(&ann()).await;
    let answered = ask(&asked.context, None, "who?");
    world.until_status(&ann(), &id, "input_required").await;
    for responses in [json!(null), json!(7), json!([])] {
        let refused = world.update(&ann(), &id, responses).await;
        assert_eq!(refused["error"]["data"]["reason"], "invalid_params");
    }
    for responses in [json!({}), json!({ "q1": 12345 }), json!({ "q1": null }), json!({ "q2": accept("x") })]
    {
        assert_eq!(world.update(&ann(), &id, responses).await["result"]["resultType"], "complete");
        assert_eq!(world.get(&ann(), &id).await["result"]["status"], "input_required");
    }
    // A server that gave up waits for no answer.
    answered.abort();
    world.until_status(&ann(), &id, "working").await;
}

/// A call that asked its client something, and then became a task.
async fn asked_first(world: &mut World) -> (String, FakeRequest) {
    let params = json!({ "name": "dig" });
    let first = world.send(&ann(), request("tools/call", params.clone()));
    let asked = world.server.expect("tools/call").await;
    let answered = ask(&asked.context, None, "who?");
    let interim = first.await.unwrap()["result"].take();
    let mut again = params;
    again["requestState"] = interim["requestState"].clone();
    again["inputResponses"] = json!({ "q1": accept("ann") });
    let second = world.send(&ann(), request("tools/call", again));
    assert_eq!(answer_of(answered).await, accept("ann"));
    assert_eq!(asked.context.become_task(TaskWish::default()).await, Ok(Became::Task));
    (id(&second.await.unwrap()), asked)
}

async fn a_call_that_asked_first_is_a_task_like_any_other(engine: Engine) {
    let mut world = World::new(engine);
    let (unwanted, asked) = asked_first(&mut world).await;
    assert_eq!(world.cancel(&ann(), &unwanted).await["result"]["resultType"], "complete");
    assert_eq!(world.get(&ann(), &unwanted).await["result"]["status"], "cancelled");
    asked.dropped().await;
    let (left, _asked) = asked_first(&mut world).await;
    let world = world.stopped().await;
    assert_eq!(world.get(&ann(), &left).await["result"]["error"]["code"], -31010);
}

async fn a_call_may_ask_first_and_become_a_task_then(engine: Engine) {
    let mut world = World::new(engine);
    let params = json!({ "name": "dig", "arguments": { "deep": true } });
    let first = world.send(&ann(), request("tools/call", params.clone()));
    let asked = world.server.expect("tools/call").await;
    let answered = ask(&asked.context, Some("user_name"), "who?");
    let interim = first.await.unwrap()["result"].take();
    assert_eq!((&interim["resultType"], keys(&interim)), (&json!("input_required"), vec!["user_name"]));
    let mut again = params.clone();
    again["requestState"] = interim["requestState"].clone();
    again["inputResponses"] = json!({ "user_name": accept("ann") });
    let second = world.send(&ann(), request("tools/call", again.clone()));
    assert_eq!(answer_of(answered).await, accept("ann"));
    assert_eq!(asked.context.become_task(TaskWish::default()).await, Ok(Became::Task));
    let created = second.await.unwrap();
    let id = id(&created);
    for gone in ["requestState", "inputRequests", "result"] {
        assert_eq!(created["result"].get(gone), None);
    }
    // The state has served its turn.
    let third = world.ask(&ann(), "tools/call", again).await;
    assert_eq!(third["error"]["data"]["reason"], "invalid_request_state");
    let more = ask(&asked.context, Some("user_name"), "sure?");
    world.until(&ann(), &id, |task| keys(task) == ["user_name"]).await;
    // The answer of the attempt that became a task is not taken for another question's.
    world.update(&ann(), &id, json!({ "user_name": accept("yes") })).await;
    assert_eq!(answer_of(more).await, accept("yes"));
    asked.answer(&json!({ "content": ["ann"] }));
    assert_eq!(world.until_status(&ann(), &id, "completed").await["result"]["content"], json!(["ann"]));
}

async fn a_question_that_no_attempt_was_given_goes_to_the_task(engine: Engine) {
    let mut world = World::new(engine);
    let answer = world.send(&ann(), request("tools/call", json!({ "name": "dig" })));
    let asked = world.server.expect("tools/call").await;
    let context = asked.context.clone();
    let params = RawJson::of(&json!({ "message": "who?", "requestedSchema": {} }));
    // Both at once: the question is still being gathered when the task begins.
    let both = tokio::spawn(async move {
        tokio::join!(
            context.ask(&Method::ElicitationCreate, Some(&params)),
            context.become_task(TaskWish::default())
        )
    });
    let created = answer.await.unwrap();
    if created["result"]["resultType"] == "task" {
        let id = id(&created);
        world.until(&ann(), &id, |task| keys(task) == ["q1"]).await;
        world.update(&ann(), &id, json!({ "q1": accept("x") })).await;
        let (answered, became) = both.await.unwrap();
        assert_eq!((answered.unwrap().read::<Value>().unwrap(), became), (accept("x"), Ok(Became::Task)));
    } else {
        // The store took longer than the question: then the next attempt becomes the task.
        assert_eq!(created["result"]["resultType"], "input_required");
    }
}

async fn a_question_that_the_client_cannot_answer_is_refused(engine: Engine) {
    let mut world = World::new(engine);
    let (id, asked) = world.task(&ann()).await;
    let error = asked.context.ask(&Method::RootsList, None).await.unwrap_err();
    assert_eq!(error.code(), -32021);
    assert_eq!(world.get(&ann(), &id).await["result"]["status"], "working");
}

#[tokio::test(start_paused = true)]
async fn a_task_of_an_attempt_that_came_at_the_last_moment_ends_too() {
    let mut world = World::new(Engine::memory());
    let call = |more: Value| {
        let mut params = json!({ "name": "dig" });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        request("tools/call", params)
    };
    let first = world.send(&ann(), call(json!({})));
    let asked = world.server.expect("tools/call").await;
    let context = asked.context.clone();
    let question =
        tokio::spawn(
            async move { context.ask(&Method::ElicitationCreate, Some(&RawJson::EMPTY_OBJECT)).await },
        );
    let state = first.await.unwrap()["result"]["requestState"].take();
    // No client came, and the server has a moment for its last words. The clock of states stands still, as if it had been
    // turned back: the state is still good.
    assert_eq!(question.await.unwrap().unwrap().bytes(), r#"{"action":"cancel"}"#);
    let second = world.send(&ann(), call(json!({ "requestState": state })));
    assert_eq!(asked.context.become_task(TaskWish::default()).await, Ok(Became::Task));
    let id = id(&second.await.unwrap());
    tokio::time::sleep(10 * SECOND).await;
    let task = world.get(&ann(), &id).await["result"].take();
    assert_eq!((&task["status"], &task["error"]["data"]["reason"]), (&json!("failed"), &json!("timed_out")));
    assert_eq!(world.tasks.live(), 0);
    assert_eq!(world.exchanges.shut_down(SECOND).await, 0);
}
