//! Calls that a server of sessions carries out as tasks of its revision, for modern clients.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_layers::bridge::{ExchangesOnSessions, PoolLimits};
use tenure_protocol::{Method, RawJson};
use tenure_session::Principal;
use tenure_session::exchange::Exchanges;
use tenure_session::port::store::Store;
use tenure_session::task::{TaskLimits, Tasks};
use tenure_store::memory::Memory;
use tenure_testkit::clock::HandClock;
use tenure_testkit::fake_backend::{BackendEvent, FakeBackend, FakeCall, NewLink, Script};
use tenure_testkit::faulty::Faulty;
use tokio::task::JoinHandle;

use crate::tasks::support::{SECOND, ann, bob, exchanges, id, request, request_of, send};

const RELATED: &str = "io.modelcontextprotocol/related-task";

/// A process in front of a server of sessions.
struct World {
    bridge: ExchangesOnSessions,
    backend: Arc<FakeBackend>,
    script: Script,
    exchanges: Exchanges,
    tasks: Tasks,
    store: Arc<Faulty>,
    clock: Arc<HandClock>,
}

impl World {
    fn new() -> Self {
        Self::with(TaskLimits::default())
    }

    fn with(limits: TaskLimits) -> Self {
        Self::at(Arc::new(Memory::new()), Arc::new(HandClock::start()), limits)
    }

    /// Another process on the same store, some time after this one.
    fn next(self) -> Self {
        let (store, clock) = (self.store.inner(), Arc::clone(&self.clock));
        drop(self);
        clock.turn(SECOND);
        Self::at(store, clock, TaskLimits::default())
    }

    fn at(store: Arc<dyn Store>, clock: Arc<HandClock>, limits: TaskLimits) -> Self {
        let store = Arc::new(Faulty::new(store));
        let (backend, script) = FakeBackend::new();
        backend
            .set_capabilities(json!({ "tools": {}, "tasks": { "requests": { "tools": { "call": {} } } } }));
        let bridge = ExchangesOnSessions::new(backend.clone(), PoolLimits::default());
        let tasks = Tasks::start(store.clone(), clock.clone(), limits);
        let exchanges = exchanges(Arc::new(bridge.clone()), &clock).with_tasks(tasks.clone());
        Self { bridge, backend, script, exchanges, tasks, store, clock }
    }

    fn ask(&self, method: &str, params: Value) -> JoinHandle<Value> {
        self.ask_as(&ann(), method, params)
    }

    fn ask_as(&self, who: &Principal, method: &str, params: Value) -> JoinHandle<Value> {
        send(self.exchanges.clone(), who.clone(), request(method, params))
    }

    fn call(&self, tool: &str) -> JoinHandle<Value> {
        self.ask("tools/call", json!({ "name": tool }))
    }

    /// The next request that the server gets.
    async fn expect(&mut self, method: &str) -> FakeCall {
        let call = self.script.call().await;
        assert_eq!(call.request.method.as_str(), method);
        call
    }

    /// The server says what its tools are.
    async fn list(&mut self) -> NewLink {
        let opened = self.script.opened().await;
        let tool =
            |name: &str, support: &str| json!({ "name": name, "execution": { "taskSupport": support } });
        let first =
            json!({ "tools": [{ "name": "plain" }, tool("required", "required")], "nextCursor": "2" });
        self.expect("tools/list").await.answer(&first);
        let second = self.expect("tools/list").await;
        assert_eq!(params(&second), json!({ "cursor": "2" }));
        second.answer(&json!({ "tools": [tool("optional", "optional")] }));
        opened
    }

    /// The server makes a task of a call, and is asked for the outcome.
    async fn begin(&mut self, task: &str) -> FakeCall {
        let call = self.expect("tools/call").await;
        assert_eq!(
            params(&call)["task"],
            json!({ "ttl": 24 * 60 * 60 * 1000 }),
            "as long as it is kept here"
        );
        call.answer(&created(task));
        let wanted = self.expect("tasks/result").await;
        assert_eq!(params(&wanted), json!({ "taskId": task }));
        wanted
    }

    /// A first call that has become a task: its id, the server's side, and the session that it is carried out in.
    async fn task(&mut self) -> (String, FakeCall, NewLink) {
        let answer = self.call("required");
        let link = self.list().await;
        let wanted = self.begin("theirs").await;
        (id(&answer.await.unwrap()), wanted, link)
    }

    /// Waits until a task is as described.
    async fn until(&self, id: &str, status: &str) -> Value {
        let seen = async {
            loop {
                let mut got = self.ask("tasks/get", json!({ "taskId": id })).await.unwrap();
                if got["result"]["status"] == status {
                    return got["result"].take();
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(10 * SECOND, seen).await.expect("the task gets there in time")
    }

    /// Waits until there are that many sessions with the server.
    async fn sessions(&self, count: usize) {
        let there = async {
            while self.bridge.sessions() != count {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(10 * SECOND, there).await.expect("as many sessions in time");
    }
}

fn created(task: &str) -> Value {
    json!({ "task": {
        "taskId": task, "status": "working", "createdAt": "2026-01-01T00:00:00Z",
        "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttl": 60_000, "pollInterval": 150,
    } })
}

fn params(call: &FakeCall) -> Value {
    call.request.params.as_ref().map_or(Value::Null, |params| params.read().unwrap())
}

fn text(words: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": words }] })
}

#[tokio::test]
async fn a_call_that_a_server_makes_a_task_of_is_a_task_that_is_kept_here() {
    let mut world = World::new();
    let discovered = world.ask("server/discover", json!({})).await.unwrap();
    let extensions = json!({ "io.modelcontextprotocol/tasks": {} });
    assert_eq!(discovered["result"]["capabilities"]["extensions"], extensions);
    assert_eq!(discovered["result"]["capabilities"]["tasks"], Value::Null, "what only sessions have");

    let answer = world.call("required");
    world.list().await;
    let wanted = world.begin("theirs").await;
    let created = answer.await.unwrap()["result"].take();
    assert_eq!(created["resultType"], "task");
    assert_ne!(created["taskId"], "theirs");
    assert_eq!((&created["ttlMs"], &created["pollIntervalMs"]), (&json!(60_000), &json!(150)));
    let id = created["taskId"].as_str().unwrap();
    world.until(id, "working").await;

    // A tool's own failure is an outcome.
    let mut failed = text("no luck");
    failed["isError"] = true.into();
    let mut said = failed.clone();
    said["_meta"] = json!({ RELATED: { "taskId": "theirs" } });
    wanted.answer(&said);
    assert_eq!(world.until(id, "completed").await["result"], failed);

    // The session is used again, and the tools are known.
    let answer = world.call("required");
    let wanted = world.begin("again").await;
    assert_eq!((wanted.link, world.bridge.sessions()), (1, 1));
    let second = crate::tasks::support::id(&answer.await.unwrap());
    wanted.fail(-32000, "broken");
    // That may have been because there is no outcome yet.
    let mut got = created_as("again");
    got["status"] = "failed".into();
    world.expect("tasks/get").await.answer(&got);
    world.expect("tasks/result").await.fail(-32000, "broken indeed");
    let failed = world.until(&second, "failed").await;
    assert_eq!(failed["error"], json!({ "code": -32000, "message": "broken indeed" }));
    let other = world.ask_as(&bob(), "tasks/get", json!({ "taskId": id })).await.unwrap();
    assert_eq!(other["error"]["code"], -32602, "of another principal");
}

/// A task as the server's `tasks/get` says it.
fn created_as(task: &str) -> Value {
    created(task)["task"].take()
}

#[tokio::test]
async fn a_client_that_does_not_know_tasks_waits() {
    let mut world = World::new();
    let plain = |tool: &str| {
        let request = request_of("tools/call", json!({ "name": tool }), json!({}));
        send(world.exchanges.clone(), ann(), request)
    };
    let (required, optional) = (plain("required"), plain("optional"));
    // Each has a session of its own.
    let (mut results, mut listed) = (Vec::new(), 0);
    while results.len() < 2 {
        let call = world.script.call().await;
        match call.request.method.as_str() {
            "tools/list" => {
                listed += 1;
                let tool = |name: &str| json!({ "name": name, "execution": { "taskSupport": name } });
                call.answer(&json!({ "tools": [tool("required"), tool("optional")] }));
            }
            "tools/call" if params(&call)["name"] == "optional" => {
                assert_eq!(params(&call)["task"], Value::Null);
                results.push((call, "optional"));
            }
            "tools/call" => call.answer(&created("theirs")),
            "tasks/result" => results.push((call, "required")),
            other => panic!("{other}"),
        }
    }
    assert!(listed <= 2);
    for (call, tool) in results {
        call.answer(&text(tool));
    }
    assert_eq!(required.await.unwrap()["result"]["content"], text("required")["content"]);
    assert_eq!(optional.await.unwrap()["result"]["content"], text("optional")["content"]);
    assert_eq!((world.tasks.count(), world.bridge.sessions()), (0, 2));
}

#[tokio::test]
async fn a_question_of_a_task_waits_for_the_client() {
    let mut world = World::new();
    let (id, wanted, _) = world.task().await;
    let question = json!({
        "message": "m", "requestedSchema": { "type": "object" },
        "_meta": { RELATED: { "taskId": "theirs" }, "dev.tenure/inputKey": "confirm" },
    });
    let context = Arc::clone(&wanted.context);
    let asking =
        tokio::spawn(
            async move { context.ask(&Method::ElicitationCreate, Some(&RawJson::of(&question))).await },
        );
    let seen = world.until(&id, "input_required").await;
    let form = json!({ "message": "m", "requestedSchema": { "type": "object" } });
    assert_eq!(
        seen["inputRequests"],
        json!({ "confirm": { "method": "elicitation/create", "params": form } })
    );
    let answers = json!({ "confirm": { "action": "accept", "content": { "ok": true } } });
    let updated =
        world.ask("tasks/update", json!({ "taskId": id, "inputResponses": answers })).await.unwrap();
    assert_eq!(updated["result"]["resultType"], "complete", "{updated}");
    let answer: Value = asking.await.unwrap().unwrap().read().unwrap();
    assert_eq!(answer["content"], json!({ "ok": true }));
    assert_eq!(answer["_meta"][RELATED]["taskId"], "theirs", "an answer says which task it is for");
    world.until(&id, "working").await;
    wanted.answer(&text("done"));
    world.until(&id, "completed").await;
}

#[tokio::test]
async fn a_cancelled_task_is_cancelled_at_the_server_and_its_session_is_closed() {
    let mut world = World::new();
    let (id, mut wanted, _) = world.task().await;
    let cancelled = world.ask("tasks/cancel", json!({ "taskId": id })).await.unwrap();
    assert_eq!(cancelled["result"]["resultType"], "complete", "{cancelled}");
    world.until(&id, "cancelled").await;
    wanted.abandoned().await;
    let cancel = world.expect("tasks/cancel").await;
    assert_eq!(params(&cancel), json!({ "taskId": "theirs" }));
    cancel.answer(&created_as("theirs"));
    world.script.closed().await;
    world.sessions(0).await;
}

#[tokio::test]
async fn a_client_that_waits_and_hangs_up_cancels_the_task_at_the_server() {
    let mut world = World::new();
    let request = request_of("tools/call", json!({ "name": "required" }), json!({}));
    let waiting = send(world.exchanges.clone(), ann(), request);
    world.list().await;
    let mut wanted = world.begin("theirs").await;
    waiting.abort();
    wanted.abandoned().await;
    let cancel = world.expect("tasks/cancel").await;
    assert_eq!(params(&cancel), json!({ "taskId": "theirs" }));
    // It has ended by itself meanwhile.
    cancel.fail(-32602, "Cannot cancel task in terminal status: completed");
    world.script.closed().await;
    world.sessions(0).await;
}

#[tokio::test]
async fn a_server_that_is_lost_takes_its_task_along() {
    let mut world = World::new();
    let (id, wanted, link) = world.task().await;
    link.outlet.link_lost();
    wanted.end(Err(tenure_protocol::RpcError::refused("gone")));
    let failed = world.until(&id, "failed").await;
    assert_eq!(failed["error"]["code"], -31010);
    assert!(failed["error"]["message"].as_str().unwrap().contains("was lost"), "{failed}");
    world.sessions(0).await;
    // Above all it is not done a second time.
    let done = loop {
        match world.script.next().await {
            BackendEvent::Closed => break true,
            BackendEvent::Call(call) => panic!("{call:?}"),
            BackendEvent::Opened(_) | BackendEvent::Heard(_) => {}
        }
    };
    assert!(done);
}

#[tokio::test]
async fn a_server_that_does_not_wait_is_asked_where_its_task_is() {
    let mut world = World::new();
    let (id, wanted, _) = world.task().await;
    wanted.fail(-32602, "Task not completed yet");
    for status in ["working", "input_required"] {
        let mut got = created_as("theirs");
        got["status"] = status.into();
        let asked = world.expect("tasks/get").await;
        assert_eq!(params(&asked), json!({ "taskId": "theirs" }));
        asked.answer(&got);
    }
    // Its questions come while it is asked for the outcome.
    world.expect("tasks/result").await.fail(-32602, "Task not completed yet");
    // A server that cannot be reached for a moment is asked again.
    let unavailable = tenure_protocol::RpcError::of(tenure_protocol::Reason::BackendUnavailable, "a moment");
    world.expect("tasks/get").await.end(Err(unavailable));
    let mut got = created_as("theirs");
    got["status"] = "completed".into();
    world.expect("tasks/get").await.answer(&got);
    world.expect("tasks/result").await.answer(&text("at last"));
    assert_eq!(world.until(&id, "completed").await["result"]["content"], text("at last")["content"]);
}

#[tokio::test]
async fn a_task_that_the_server_cancels_or_forgets_has_failed() {
    for (got, code) in [(Some("cancelled"), -31010), (None, -32602)] {
        let mut world = World::new();
        let (id, wanted, _) = world.task().await;
        wanted.fail(-32603, "no result");
        let asked = world.expect("tasks/get").await;
        match got {
            Some(status) => {
                let mut got = created_as("theirs");
                got["status"] = status.into();
                asked.answer(&got);
            }
            None => asked.fail(-32602, "Task not found"),
        }
        assert_eq!(world.until(&id, "failed").await["error"]["code"], code);
    }
}

#[tokio::test]
async fn several_tasks_at_once_have_a_session_each() {
    let mut world = World::new();
    let (first, one, _) = world.task().await;
    let mut others = Vec::new();
    for number in 2..=4 {
        let answer = world.call("optional");
        let wanted = world.begin(&format!("theirs-{number}")).await;
        assert_eq!(wanted.link, number, "a session of its own");
        others.push((id(&answer.await.unwrap()), wanted, number));
    }
    for (id, wanted, number) in others.into_iter().rev() {
        wanted.answer(&text(&format!("{number}")));
        let done = world.until(&id, "completed").await;
        assert_eq!(done["result"]["content"][0]["text"], format!("{number}"));
    }
    world.until(&first, "working").await;
    one.answer(&text("1"));
    world.until(&first, "completed").await;
    assert_eq!((world.bridge.sessions(), world.tasks.live()), (4, 0));
    world.exchanges.shut_down(Duration::ZERO).await;
    world.bridge.close().await;
    assert_eq!(world.bridge.sessions(), 0);
}

#[tokio::test]
async fn a_task_that_was_under_way_when_the_gateway_was_killed_is_interrupted() {
    let mut world = World::new();
    let (id, wanted, _) = world.task().await;
    let World { exchanges, store, tasks, .. } = &world;
    store.set_broken(true);
    exchanges.shut_down(Duration::ZERO).await;
    tasks.stop().await;
    drop(wanted);
    let next = world.next();
    // Nothing is known of the server yet, and it does not have to be asked.
    let failed = next.until(&id, "failed").await;
    assert_eq!(
        (&failed["error"]["code"], &failed["error"]["data"]["reason"]),
        (&json!(-31010), &json!("interrupted"))
    );
    assert_eq!(next.bridge.sessions(), 0);
    // The id is neither a task of bob nor a name that bob was given for a task of the server: the server is not asked.
    let unknown = next.ask_as(&bob(), "tasks/get", json!({ "taskId": id })).await.unwrap();
    assert_eq!(unknown["error"]["code"], -32602);
    assert_eq!(next.bridge.sessions(), 0);
}

#[tokio::test]
async fn a_shutdown_cancels_tasks_at_the_server() {
    let mut world = World::new();
    let (id, mut wanted, _) = world.task().await;
    world.exchanges.shut_down(Duration::ZERO).await;
    wanted.abandoned().await;
    world.expect("tasks/cancel").await.answer(&created_as("theirs"));
    world.bridge.close().await;
    assert_eq!(world.bridge.sessions(), 0);
    let next = world.next();
    assert_eq!(next.until(&id, "failed").await["error"]["data"]["reason"], "interrupted");
}

#[tokio::test]
async fn a_call_that_cannot_become_a_task_is_cancelled_at_the_server() {
    let mut world = World::with(TaskLimits { max_per_principal: 0, ..TaskLimits::default() });
    let answer = world.call("required");
    world.list().await;
    world.expect("tools/call").await.answer(&created("theirs"));
    assert_eq!(answer.await.unwrap()["error"]["data"]["reason"], "too_many_tasks");
    world.expect("tasks/cancel").await.answer(&created_as("theirs"));
    world.script.closed().await;
}

#[tokio::test]
async fn without_tasks_here_every_client_waits() {
    let mut world = World::with(TaskLimits { max: 0, ..TaskLimits::default() });
    let answer = world.call("optional");
    world.list().await;
    world.begin("theirs").await.answer(&text("done"));
    assert_eq!(answer.await.unwrap()["result"]["content"], text("done")["content"]);
}

#[tokio::test]
async fn tools_that_changed_are_looked_up_anew() {
    let mut world = World::new();
    let answer = world.call("plain");
    let link = world.list().await;
    let call = world.expect("tools/call").await;
    assert_eq!(params(&call)["task"], Value::Null);
    call.answer(&text("1"));
    answer.await.unwrap();
    link.outlet.notify(&Method::ToolsListChanged, None).await.unwrap();
    let changed = json!({ "tools": [{ "name": "plain", "execution": { "taskSupport": "required" } }] });
    let answer = world.call("plain");
    world.expect("tools/list").await.answer(&changed);
    world.begin("theirs").await.answer(&text("2"));
    id(&answer.await.unwrap());

    // A server that says nothing of the change says so to the call, and has not carried it out.
    let answer = world.call("plain");
    world.expect("tools/call").await.fail(-32601, "not as a task");
    world.expect("tools/list").await.answer(&json!({ "tools": [{ "name": "plain" }] }));
    let call = world.expect("tools/call").await;
    assert_eq!(params(&call)["task"], Value::Null);
    call.answer(&text("3"));
    assert_eq!(answer.await.unwrap()["result"]["content"], text("3")["content"]);
}

#[tokio::test]
async fn a_server_without_tasks_is_asked_for_none() {
    let mut world = World::new();
    world.backend.set_capabilities(json!({ "tools": {} }));
    let discovered = world.ask("server/discover", json!({})).await.unwrap();
    let kept_here = json!({ "io.modelcontextprotocol/tasks": {} });
    assert_eq!(discovered["result"]["capabilities"]["extensions"], kept_here);
    let answer = world.call("required");
    let call = world.expect("tools/call").await;
    assert_eq!(params(&call), json!({ "name": "required" }), "without having listed anything");
    call.answer(&text("1"));
    answer.await.unwrap();
    for method in ["tasks/get", "tasks/cancel"] {
        let got = world.ask(method, json!({ "taskId": "0".repeat(32) })).await.unwrap();
        assert_eq!(got["error"]["data"]["reason"], "task_not_found", "{method}");
    }
}
