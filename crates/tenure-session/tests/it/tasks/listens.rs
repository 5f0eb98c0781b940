//! Who hears of tasks without asking for them.

use serde_json::{Value, json};
use tenure_protocol::modern;
use tenure_protocol::{Eras, Method, RawJson};
use tenure_session::exchange::{ExchangeAnswer, Exchanges, Flow};
use tenure_testkit::fake_responder::FakeRequest;

use crate::tasks::support::{Engine, SECOND, World, ann, bob, caller, on_every_engine, request, request_of};

on_every_engine!(
    a_listen_hears_of_its_tasks,
    a_listen_hears_of_others_news_too,
    a_server_without_news_of_its_own_is_no_hindrance,
    a_listen_to_tasks_needs_the_extension,
    a_task_that_was_interrupted_is_told_as_such,
);

/// Begins a listen of ann's.
async fn begin(exchanges: Exchanges, notifications: Value) -> Flow {
    let request = request("subscriptions/listen", json!({ "notifications": notifications }));
    let checked = modern::check(request, None, Eras::Both).unwrap();
    match exchanges.request(checked, caller(&ann())).await {
        ExchangeAnswer::Stream(flow) => *flow,
        other => panic!("a stream, not {other:?}"),
    }
}

/// A listen of ann's that the server acknowledges, as far as it knows of it.
async fn listen(world: &mut World, notifications: Value) -> (Flow, FakeRequest) {
    let beginning = begin(world.exchanges.clone(), notifications);
    let acknowledging = async {
        let listen = world.server.expect("subscriptions/listen").await;
        assert_eq!(listen.params()["notifications"].get("taskIds"), None, "it does not know our tasks");
        listen.acknowledge(&[]).await;
        listen
    };
    tokio::join!(beginning, acknowledging)
}

async fn next(flow: &mut Flow) -> Value {
    let said = tokio::time::timeout(10 * SECOND, flow.next()).await.expect("something is said in time");
    serde_json::from_slice(&said.expect("the listen goes on")).unwrap()
}

/// What is told of a task next.
async fn told(flow: &mut Flow) -> Value {
    let mut said = next(flow).await;
    assert_eq!(said["method"], "notifications/tasks", "{said}");
    assert_eq!(said["params"]["_meta"], json!({ "io.modelcontextprotocol/subscriptionId": 1 }));
    assert_eq!(said["params"].get("resultType"), None);
    said["params"].take()
}

async fn a_listen_hears_of_its_tasks(engine: Engine) {
    let mut world = World::new(engine);
    let (mine, asked) = world.task(&ann()).await;
    let (theirs, _theirs) = world.task(&bob()).await;
    let ids = json!([mine, theirs, "nonsense", "00000000000000000000000000000000"]);
    let (mut flow, _listening) = listen(&mut world, json!({ "taskIds": ids })).await;
    let acknowledged = next(&mut flow).await;
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(acknowledged["params"]["notifications"], json!({ "taskIds": [mine] }));
    // How it is, and then whatever changes.
    let task = told(&mut flow).await;
    assert_eq!((&task["taskId"], &task["status"]), (&json!(mine), &json!("working")));
    let context = asked.context.clone();
    tokio::spawn(async move { context.ask(&Method::ElicitationCreate, Some(&RawJson::EMPTY_OBJECT)).await });
    let task = told(&mut flow).await;
    assert_eq!(
        (&task["status"], &task["inputRequests"]["q1"]["method"]),
        (&json!("input_required"), &json!("elicitation/create"))
    );
    world.update(&ann(), &mine, json!({ "q1": { "action": "decline" } })).await;
    assert_eq!(told(&mut flow).await["status"], "working");
    asked.answer(&json!({ "content": [] }));
    let task = told(&mut flow).await;
    assert_eq!((&task["status"], &task["result"]), (&json!("completed"), &json!({ "content": [] })));
}

async fn a_listen_hears_of_others_news_too(engine: Engine) {
    let mut world = World::new(engine);
    let (id, _asked) = world.task(&ann()).await;
    let wanted = json!({ "toolsListChanged": true, "taskIds": [id] });
    let (mut flow, listening) = listen(&mut world, wanted.clone()).await;
    assert_eq!(next(&mut flow).await["params"]["notifications"], wanted);
    told(&mut flow).await;
    listening.say(&Method::ToolsListChanged, &json!({ "_meta": listening.subscription() })).await;
    assert_eq!(next(&mut flow).await["method"], "notifications/tools/list_changed");
    listening.answer(&json!({}));
    assert_eq!(next(&mut flow).await["result"]["resultType"], "complete");
}

async fn a_server_without_news_of_its_own_is_no_hindrance(engine: Engine) {
    let mut world = World::new(engine);
    let (id, asked) = world.task(&ann()).await;
    let refusing = async {
        world
            .server
            .expect("subscriptions/listen")
            .await
            .fail(tenure_protocol::RpcError::new(-32601, "no news"));
    };
    let (mut flow, ()) = tokio::join!(begin(world.exchanges.clone(), json!({ "taskIds": [id] })), refusing);
    assert_eq!(next(&mut flow).await["params"]["notifications"], json!({ "taskIds": [id] }));
    assert_eq!(told(&mut flow).await["status"], "working");
    asked.answer(&json!({ "content": [] }));
    assert_eq!(told(&mut flow).await["status"], "completed");
    world.exchanges.drain();
    assert_eq!(next(&mut flow).await["result"]["resultType"], "complete");
}

async fn a_listen_to_tasks_needs_the_extension(engine: Engine) {
    let world = World::new(engine);
    let params = json!({ "notifications": { "taskIds": [] } });
    let refused = world.send(&ann(), request_of("subscriptions/listen", params, json!({}))).await.unwrap();
    assert_eq!(refused["error"]["code"], -32021);
}

async fn a_task_that_was_interrupted_is_told_as_such(engine: Engine) {
    let mut world = World::new(engine);
    let (id, _asked) = world.task(&ann()).await;
    let mut world = world.killed().await;
    let (mut flow, _listening) = listen(&mut world, json!({ "taskIds": [id] })).await;
    assert_eq!(next(&mut flow).await["params"]["notifications"], json!({ "taskIds": [id] }));
    assert_eq!(told(&mut flow).await["status"], "failed");
}
