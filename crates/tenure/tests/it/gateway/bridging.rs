//! Exchanges of modern clients, answered by child processes that know only sessions.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_backend::child::{ChildBackend, ChildCommand, ChildLimits};
use tenure_layers::bridge::{ExchangesOnSessions, PoolLimits};
use tenure_protocol::{Method, RawJson, Reply};
use tenure_session::Principal;
use tenure_session::backend::{Call, Responder};
use tenure_session::call::{CallContext, Caller};
use tenure_session::port::BoxFuture;
use tenure_testkit::fake_client::FakeClient;

use crate::gateway::running::echo;

fn bridge(limits: PoolLimits) -> ExchangesOnSessions {
    let mut command = ChildCommand::new(echo(), [""; 0]);
    command.limits = ChildLimits { warm: 0, grace: Duration::from_millis(500), ..ChildLimits::default() };
    ExchangesOnSessions::new(Arc::new(ChildBackend::new(command, None)), limits)
}

fn tool(client: &Arc<FakeClient>, name: &str, arguments: &Value) -> Call {
    let meta = json!({ "progressToken": "mine" });
    client.call(1, "tools/call", json!({ "name": name, "arguments": arguments, "_meta": meta }))
}

fn by(name: &str, client: &Arc<FakeClient>, call: Call) -> Call {
    let caller = Caller { principal: Principal::named(name), ..Caller::anonymous("test") };
    let context = CallContext::new(Arc::clone(client) as _, &call.request, caller);
    Call { context, ..call }
}

async fn answer(answer: BoxFuture<Reply>) -> Value {
    let reply = tokio::time::timeout(Duration::from_secs(20), answer).await.unwrap();
    reply.unwrap_or_else(|error| panic!("{error:?}")).read().unwrap()
}

/// What the process says of itself, and all it heard.
async fn heard(bridge: &ExchangesOnSessions, client: &Arc<FakeClient>) -> (u64, Vec<String>) {
    let said = answer(bridge.respond(tool(client, "heard", &json!({})))).await;
    let heard = said["heard"].as_array().unwrap().iter().map(|line| line.as_str().unwrap().to_owned());
    (said["pid"].as_u64().unwrap(), heard.collect())
}

async fn ended(pid: u64) {
    let process = PathBuf::from(format!("/proc/{pid}"));
    for _ in 0..1000 {
        if !process.exists() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{pid} is still there");
}

#[tokio::test]
async fn calls_progress_and_questions_pass() {
    let bridge = bridge(PoolLimits::default());
    let client = FakeClient::new(json!({ "elicitation": {} }));
    let discovered = answer(bridge.respond(client.call(1, "server/discover", json!({})))).await;
    assert_eq!(discovered["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "echo-stdio");
    let said = answer(bridge.respond(tool(&client, "slow", &json!({ "steps": 3 })))).await;
    assert_eq!(said["content"][0]["text"], "did 3 steps");
    let told: Vec<_> = client.heard().into_iter().map(|(_, params)| params).collect();
    let step = |step: u64| json!({ "progressToken": "mine", "progress": step, "total": 3 });
    assert_eq!(told, [step(1), step(2), step(3)]);
    client.answer(|_, _| Ok(RawJson::of(&json!({ "action": "accept", "content": { "name": "Ada" } }))));
    let question =
        json!({ "method": "elicitation/create", "params": { "message": "m", "requestedSchema": {} } });
    let said = answer(bridge.respond(tool(&client, "ask", &question))).await;
    assert_eq!(said["answer"]["content"]["name"], "Ada");
    let (_, heard) = heard(&bridge, &client).await;
    assert!(heard[0].contains(r#""name":"tenure""#) && heard[0].contains("elicitation"), "{heard:?}");
    assert_eq!(heard[1], "notifications/initialized");
    assert_eq!(heard.len(), 2, "one process for all of it: {heard:?}");
    bridge.close().await;
}

#[tokio::test]
async fn log_messages_belong_to_the_call_that_wants_them() {
    let bridge = bridge(PoolLimits::default());
    let client = FakeClient::new(json!({}));
    let meta = json!({ "io.modelcontextprotocol/logLevel": "info" });
    let params = json!({ "name": "log", "arguments": { "level": "info", "data": "d" }, "_meta": meta });
    answer(bridge.respond(client.call(1, "tools/call", params))).await;
    assert_eq!(client.heard(), [(Method::LogMessage, json!({ "level": "info", "data": "d" }))]);
    let (_, heard) = heard(&bridge, &client).await;
    assert_eq!(heard[2], r#"logging/setLevel {"level":"debug"}"#);
    bridge.close().await;
}

#[tokio::test]
async fn principals_have_processes_of_their_own_and_all_of_them_end() {
    let bridge = bridge(PoolLimits::default());
    let client = FakeClient::new(json!({}));
    let mut processes = Vec::new();
    for name in ["ann", "bob", "ann"] {
        let call = by(name, &client, tool(&client, "heard", &json!({})));
        processes.push(answer(bridge.respond(call)).await["pid"].as_u64().unwrap());
    }
    assert_eq!(processes[0], processes[2]);
    assert_ne!(processes[0], processes[1]);
    bridge.close().await;
    assert_eq!(bridge.sessions(), 0);
    ended(processes[0]).await;
    ended(processes[1]).await;
}

#[tokio::test]
async fn a_process_whose_call_was_given_up_ends_and_so_does_one_that_dies() {
    let bridge = bridge(PoolLimits::default());
    let client = FakeClient::new(json!({}));
    let (first, _) = heard(&bridge, &client).await;
    let held = bridge.respond(tool(&client, "hold", &json!({})));
    assert!(tokio::time::timeout(Duration::from_millis(100), held).await.is_err());
    ended(first).await;
    let (second, _) = heard(&bridge, &client).await;
    assert_ne!(first, second);
    let error = bridge.respond(tool(&client, "exit", &json!({ "code": 3 }))).await.unwrap_err();
    assert_eq!(error.code(), -31011, "{error:?}");
    let (third, _) = heard(&bridge, &client).await;
    assert_ne!(second, third);
    assert_eq!(bridge.sessions(), 1);
    // It is not closed on its own: it ends with its owner.
    drop(bridge);
    ended(third).await;
}

#[tokio::test]
async fn a_listen_hears_of_resources_that_a_call_changes() {
    let bridge = bridge(PoolLimits::default());
    let client = FakeClient::new(json!({}));
    let filter = json!({ "notifications": { "resourceSubscriptions": ["a:b"] } });
    let listening = tokio::spawn(bridge.respond(client.call(7, "subscriptions/listen", filter)));
    let (method, acknowledged) = client.hear().await;
    assert_eq!(method, Method::Acknowledged);
    assert_eq!(acknowledged["notifications"], json!({ "resourceSubscriptions": ["a:b"] }));
    // The call has another process than the listen, which is told to tell of the resource too.
    let caller = FakeClient::new(json!({}));
    answer(bridge.respond(tool(&caller, "update", &json!({ "uri": "a:b" })))).await;
    let (method, updated) = client.hear().await;
    assert_eq!(method, Method::ResourceUpdated);
    let subscription = json!({ "io.modelcontextprotocol/subscriptionId": 7 });
    assert_eq!(updated, json!({ "uri": "a:b", "_meta": subscription }));
    let (_, heard) = heard(&bridge, &caller).await;
    assert_eq!(heard[2], r#"resources/subscribe {"uri":"a:b"}"#);
    assert_eq!(caller.heard(), []);
    listening.abort();
    bridge.close().await;
}
