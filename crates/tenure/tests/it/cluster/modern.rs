//! Requests without a session that come back to another node than the one that has their call or task.

use serde_json::{Value, json};
use tenure_protocol::{Method, RawJson};
use tenure_session::call::TaskWish;
use tenure_testkit::fake_responder::{Exchanged, FakeRequest};
use tokio::task::JoinHandle;

use super::world::{Lone, Shared};
use crate::modern::support::{call, message, post, say};
use crate::support::client::Ask;
use crate::support::events::Events;
use crate::support::wait::within;

async fn pair() -> (Shared, Lone<Exchanged>, Lone<Exchanged>) {
    let shared = Shared::new(&[]);
    let (one, other) = (shared.modern().await, shared.modern().await);
    (shared, one, other)
}

/// The question of a call, and what it is answered.
fn asks(call: &FakeRequest) -> JoinHandle<Value> {
    let context = call.context.clone();
    tokio::spawn(async move {
        let answer = context.ask(&Method::ElicitationCreate, Some(&RawJson::EMPTY_OBJECT)).await;
        answer.expect("an answer").read().expect("JSON")
    })
}

/// A call that waits at a node for its client, and what the client brings there next.
async fn parked(one: &mut Lone<Exchanged>) -> (FakeRequest, JoinHandle<Value>, Value) {
    let mut first = post(&call()).begin(one.address).await;
    let asked = one.script.next().await;
    let question = asks(&asked);
    let answer = first.response().await.json();
    let result = &answer["result"];
    assert_eq!(result["resultType"], "input_required", "{answer}");
    let key = result["inputRequests"].as_object().expect("questions").keys().next().expect("a question");
    let mut again = call();
    again["params"]["requestState"] = result["requestState"].clone();
    again["params"]["inputResponses"] = json!({ key: { "action": "accept", "content": { "a": 1 } } });
    (asked, question, again)
}

fn back(last: &str) -> Ask {
    Ask::get().header("Last-Event-ID", last)
}

// B32
#[tokio::test]
async fn a_parked_call_goes_on_at_its_node_whichever_node_its_client_comes_back_to() {
    let (_shared, mut one, other) = pair().await;
    let (asked, question, again) = parked(&mut one).await;
    let mut second = post(&again).begin(other.address).await;
    assert_eq!(within("the answer", question).await.unwrap()["content"]["a"], 1);
    asked.answer(&json!({ "content": [], "done": true }));
    let answer = second.response().await.json();
    assert_eq!(answer["result"]["done"], true, "{answer}");
    assert!(other.script.is_quiet());
}

// B32
#[tokio::test]
async fn a_parked_call_whose_node_was_lost_is_not_begun_again_unless_that_is_safe() {
    let (shared, mut one, mut other) = pair().await;
    let (_asked, _question, again) = parked(&mut one).await;
    let name = one.name();
    one.lose().await;
    shared.remove(name).await;
    let mut second = post(&again).begin(other.address).await;
    let listed = other.script.expect("tools/list").await;
    listed.answer(&json!({ "tools": [{ "name": "t", "inputSchema": { "type": "object" } }] }));
    let answer = second.response().await.json();
    assert_eq!(answer["error"]["data"]["reason"], "interrupted", "{answer}");

    let (mut third, mut other) = (other, shared.modern().await);
    let (_asked, _question, again) = parked(&mut third).await;
    let name = third.name();
    third.lose().await;
    shared.remove(name).await;
    let mut second = post(&again).begin(other.address).await;
    let listed = other.script.expect("tools/list").await;
    let tool = json!({
        "name": "t", "inputSchema": { "type": "object" }, "annotations": { "readOnlyHint": true },
    });
    listed.answer(&json!({ "tools": [tool] }));
    other.script.expect("tools/call").await.answer(&json!({ "content": [], "anew": true }));
    let answer = second.response().await.json();
    assert_eq!(answer["result"]["anew"], true, "{answer}");
}

#[tokio::test]
async fn a_stream_that_broke_goes_on_from_its_node_whichever_node_its_client_comes_back_to() {
    let (_shared, mut one, other) = pair().await;
    let connection = post(&call()).begin(one.address).await;
    let asked = one.script.next().await;
    say(&asked, "hello").await;
    let mut events = connection.events().await;
    assert_eq!(events.heard().await, "hello");
    // Its old connection still stands, as far as the first node knows.
    let mut rest = back(&events.last_id()).open(other.address).await;
    say(&asked, "there").await;
    assert_eq!(rest.heard().await, "there");
    asked.answer(&json!({ "content": [], "done": true }));
    let (_, answer) = rest.message().await.expect("an answer");
    assert_eq!(answer["result"]["done"], true, "{answer}");
    assert!(other.script.is_quiet());
    // The answer is in the store, for every node.
    let mut late = back(&events.last_id()).open(other.address).await;
    assert_eq!(late.message().await.expect("the answer").1["result"]["done"], true);
}

#[tokio::test]
async fn a_relayed_stream_whose_node_is_lost_ends_with_what_the_store_knows() {
    let (shared, mut one, mut other) = pair().await;
    let connection = post(&call()).begin(one.address).await;
    let asked = one.script.next().await;
    say(&asked, "hello").await;
    let mut events = connection.events().await;
    assert_eq!(events.heard().await, "hello");
    let mut rest = back(&events.last_id()).open(other.address).await;
    say(&asked, "there").await;
    assert_eq!(rest.heard().await, "there");
    let name = one.name();
    one.lose().await;
    shared.remove(name).await;
    let listed = other.script.expect("tools/list").await;
    listed.answer(&json!({ "tools": [{ "name": "t", "inputSchema": { "type": "object" } }] }));
    let (_, answer) = rest.message().await.expect("an answer");
    assert_eq!(answer["error"]["data"]["reason"], "interrupted", "{answer}");
}

fn task(method: &str, params: Value) -> Value {
    let mut request = message(method, params);
    request["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]["extensions"] =
        json!({ "io.modelcontextprotocol/tasks": {} });
    request
}

/// A call that has become a task at this node, and its id.
async fn begun(one: &mut Lone<Exchanged>) -> (FakeRequest, String) {
    let mut first =
        post(&task("tools/call", json!({ "name": "t", "arguments": {} }))).begin(one.address).await;
    let asked = one.script.next().await;
    let context = asked.context.clone();
    tokio::spawn(async move { context.become_task(TaskWish::default()).await });
    let created = first.response().await.json();
    let id = created["result"]["taskId"].as_str().unwrap_or_else(|| panic!("no task: {created}"));
    (asked, id.to_owned())
}

// B33
#[tokio::test]
async fn a_task_is_asked_for_answered_and_cancelled_at_every_node() {
    let (_shared, mut one, other) = pair().await;
    let (asked, id) = begun(&mut one).await;
    let question = asks(&asked);
    let ask = async |method: &str, mut params: Value| {
        params["taskId"] = json!(id);
        post(&task(method, params)).send(other.address).await.json()
    };
    let asking = async {
        loop {
            let seen = ask("tasks/get", json!({})).await;
            if seen["result"]["status"] == "input_required" {
                return seen;
            }
        }
    };
    let seen = within("the question", asking).await;
    let key =
        seen["result"]["inputRequests"].as_object().expect("questions").keys().next().expect("one").clone();
    let responses = json!({ key: { "action": "accept", "content": { "a": 2 } } });
    let updated = ask("tasks/update", json!({ "inputResponses": responses })).await;
    assert!(updated.get("error").is_none(), "{updated}");
    assert_eq!(within("the answer", question).await.unwrap()["content"]["a"], 2);
    let cancelled = ask("tasks/cancel", json!({})).await;
    assert!(cancelled.get("error").is_none(), "{cancelled}");
    assert_eq!(ask("tasks/get", json!({})).await["result"]["status"], "cancelled");
    asked.dropped().await;
    assert!(other.script.is_quiet());
}

// B33
#[tokio::test]
async fn a_task_of_a_lost_node_has_failed_within_five_seconds_of_being_asked_for() {
    let (_shared, mut one, other) = pair().await;
    let (_asked, id) = begun(&mut one).await;
    one.lose().await;
    let began = tokio::time::Instant::now();
    let seen = post(&task("tasks/get", json!({ "taskId": id }))).send(other.address).await.json();
    assert_eq!(seen["result"]["status"], "failed", "{seen}");
    assert_eq!(seen["result"]["error"]["data"]["reason"], "interrupted", "{seen}");
    // Its node is held gone four seconds after its last renewal. The rest is what a busy machine may take.
    assert!(began.elapsed().as_secs() < 8, "{:?}", began.elapsed());
}

// B33
#[tokio::test]
async fn a_listen_hears_of_the_end_of_a_task_of_another_node() {
    let (_shared, mut one, mut other) = pair().await;
    // A node lists the others once a second. From now on the first one knows the second one.
    let (_asked, id) = begun(&mut other).await;
    let seen = post(&task("tasks/get", json!({ "taskId": id }))).send(one.address).await.json();
    assert_eq!(seen["result"]["status"], "working", "{seen}");
    let (asked, id) = begun(&mut one).await;
    let watch = task("subscriptions/listen", json!({ "notifications": { "taskIds": [id] } }));
    let listening = post(&watch).begin(other.address).await;
    let listen = other.script.expect("subscriptions/listen").await;
    listen.acknowledge(&[]).await;
    let mut listening = listening.events().await;
    let status = async |listening: &mut Events| loop {
        let (_, heard) = listening.message().await.expect("news");
        if heard["method"] == "notifications/tasks" {
            return heard["params"]["status"].clone();
        }
    };
    assert_eq!(status(&mut listening).await, "working");
    asked.answer(&json!({ "content": [] }));
    assert_eq!(status(&mut listening).await, "completed");
}
