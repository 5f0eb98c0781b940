//! The responder port's clauses as tests; every responder runs all of them.
//!
//! The responder under test serves a server that declares `{"tools":{"listChanged":true}}` and has these tools:
//! `echo` (answers with its `text`), `progress` (reports 1, 2, 3, then answers), `ask` (asks `roots/list` and answers
//! with the number of roots), `linger` (reports 1, then never answers), `after_linger` (answers when a `linger` has
//! been withdrawn), `change` (notifies every listen that the list of tools changed) and `sampler` (needs a client
//! that declares `sampling`).

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_protocol::{Method, RawJson, Reply, RpcError};
use tenure_session::Route;
use tenure_session::backend::Responder;
use tenure_session::call::Fanout;
use tenure_session::exchange::ExchangeLimits;

use crate::exchanges;
use crate::fake_client::FakeClient;

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// Runs every clause, each on a new responder.
pub async fn all(open: impl Fn() -> Arc<dyn Responder>) {
    let begun = || {
        let responder = open();
        responder.begin(Fanout::new(Route::MAIN));
        responder
    };
    every_request_is_answered(begun()).await;
    calls_know_nothing_of_each_other(begun()).await;
    a_dropped_call_is_cancelled(begun()).await;
    messages_come_in_order_and_before_the_answer(begun()).await;
    a_listen_acknowledges_first(begun()).await;
    what_results_lack_is_added(open()).await;
    a_missing_capability_is_named(begun()).await;
}

fn client() -> Arc<FakeClient> {
    FakeClient::new(json!({ "roots": {} }))
}

fn tool(id: u64, name: &str, arguments: &Value) -> Value {
    json!({ "name": name, "arguments": arguments, "_meta": { "progressToken": format!("token-{id}") } })
}

async fn respond(
    responder: &Arc<dyn Responder>,
    client: &Arc<FakeClient>,
    id: u64,
    method: &str,
    params: Value,
) -> Result<Value, RpcError> {
    let reply = responder.respond(client.call(id, method, params));
    let reply: Reply = tokio::time::timeout(Duration::from_secs(10), reply).await.expect("answered in time");
    reply.map(|result| result.read().expect("JSON"))
}

async fn call(
    responder: &Arc<dyn Responder>,
    client: &Arc<FakeClient>,
    id: u64,
    name: &str,
    arguments: &Value,
) -> String {
    let result = respond(responder, client, id, "tools/call", tool(id, name, arguments)).await;
    let result = result.unwrap_or_else(|error| panic!("{name} answers, but for {error}"));
    result["content"][0]["text"].as_str().expect("a text").to_owned()
}

async fn every_request_is_answered(responder: Arc<dyn Responder>) {
    let client = client();
    assert_eq!(call(&responder, &client, 1, "echo", &json!({ "text": "hello" })).await, "hello");
    let discovered = respond(&responder, &client, 2, "server/discover", json!({})).await.expect("discovered");
    assert_eq!(discovered["capabilities"]["tools"]["listChanged"], true, "{discovered}");
    let unknown = respond(&responder, &client, 3, "no/such/method", json!({})).await.expect_err("an error");
    assert_eq!(unknown.code(), -32601, "{unknown}");
    let unknown = respond(&responder, &client, 4, "tools/call", tool(4, "no_such_tool", &json!({}))).await;
    assert_eq!(unknown.expect_err("an error").code(), -32602);
    let broken =
        respond(&responder, &client, 5, "subscriptions/listen", json!({})).await.expect_err("an error");
    assert_eq!(broken.code(), -32602, "{broken}");
}

async fn calls_know_nothing_of_each_other(responder: Arc<dyn Responder>) {
    // The same id and the same token, at the same time.
    let (one, two) = (client(), client());
    for (client, roots) in [(&one, 2), (&two, 5)] {
        client.answer(move |method, _| {
            assert_eq!(*method, Method::RootsList);
            let list: Vec<Value> = (0..roots).map(|n| json!({ "uri": format!("file:///{n}") })).collect();
            Ok(RawJson::of(&json!({ "roots": list })))
        });
    }
    let nothing = json!({});
    let (first, second, reported) = tokio::join!(
        call(&responder, &one, 1, "ask", &nothing),
        call(&responder, &two, 1, "ask", &nothing),
        call(&responder, &two, 1, "progress", &nothing),
    );
    assert_eq!((first.as_str(), second.as_str()), ("2 roots", "5 roots"));
    assert!(!reported.is_empty());
    assert_eq!((one.heard().len(), two.heard().len()), (0, 3));
}

async fn a_dropped_call_is_cancelled(responder: Arc<dyn Responder>) {
    let client = client();
    let mut lingering = responder.respond(client.call(1, "tools/call", tool(1, "linger", &json!({}))));
    tokio::select! {
        reply = &mut lingering => panic!("it lingers, and does not answer {reply:?}"),
        (method, _) = client.hear() => assert_eq!(method, Method::Progress),
    }
    drop(lingering);
    assert!(!call(&responder, &client, 2, "after_linger", &json!({})).await.is_empty());
}

async fn messages_come_in_order_and_before_the_answer(responder: Arc<dyn Responder>) {
    let client = client();
    call(&responder, &client, 7, "progress", &json!({})).await;
    let heard = client.heard();
    assert_eq!(heard.len(), 3, "{heard:?}");
    for (n, (method, params)) in heard.iter().enumerate() {
        assert_eq!(*method, Method::Progress);
        assert_eq!(params["progressToken"], "token-7");
        assert_eq!(params["progress"].as_f64(), Some(n as f64 + 1.0));
    }
}

async fn a_listen_acknowledges_first(responder: Arc<dyn Responder>) {
    let (listener, other) = (client(), client());
    let params = json!({ "notifications": { "toolsListChanged": true, "promptsListChanged": true } });
    let mut listen = responder.respond(listener.call(11, "subscriptions/listen", params));
    tokio::select! {
        reply = &mut listen => panic!("it listens, and does not answer {reply:?}"),
        (method, params) = listener.hear() => {
            assert_eq!(method, Method::Acknowledged);
            assert_eq!(params["_meta"][SUBSCRIPTION], 11, "{params}");
            assert_eq!(params["notifications"], json!({ "toolsListChanged": true }));
        }
    }
    call(&responder, &other, 12, "change", &json!({})).await;
    tokio::select! {
        reply = &mut listen => panic!("it listens, and does not answer {reply:?}"),
        (method, params) = listener.hear() => {
            assert_eq!(method, Method::ToolsListChanged);
            assert_eq!(params["_meta"][SUBSCRIPTION], 11, "{params}");
        }
    }
    assert_eq!(other.heard(), [], "news is no part of an answer");
}

async fn what_results_lack_is_added(responder: Arc<dyn Responder>) {
    let (exchanges, client) = (exchanges::start(responder, ExchangeLimits::default()), client());
    let answer =
        exchanges::send(&exchanges, &client, 1, "tools/call", tool(1, "echo", &json!({ "text": "a" })));
    let answer = exchanges::json_of(answer.await);
    assert_eq!(answer["result"]["content"][0]["text"], "a", "{answer}");
    assert_eq!(answer["result"]["resultType"], "complete");
    assert!(answer["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"].is_string(), "{answer}");
    let answer =
        exchanges::json_of(exchanges::send(&exchanges, &client, 2, "server/discover", json!({})).await);
    assert_eq!(answer["result"]["supportedVersions"][0], "2026-07-28", "{answer}");
    assert!(answer["result"]["ttlMs"].is_u64() && answer["result"]["cacheScope"].is_string(), "{answer}");
}

async fn a_missing_capability_is_named(responder: Arc<dyn Responder>) {
    let refused = respond(&responder, &client(), 1, "tools/call", tool(1, "sampler", &json!({}))).await;
    let refused = refused.expect_err("an error");
    let error: Value = refused.raw().read().expect("JSON");
    assert_eq!(error["code"], -32021, "{error}");
    assert!(error["data"]["requiredCapabilities"]["sampling"].is_object(), "{error}");
    let able = FakeClient::new(json!({ "sampling": {} }));
    assert!(!call(&responder, &able, 2, "sampler", &json!({})).await.is_empty());
}
