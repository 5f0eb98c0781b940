//! What becomes a label: outcomes as the conventions say, and nothing that a client can make up.

use serde_json::json;
use tenure_session::SessionId;

use super::{samples, sum};
use crate::support::node::{Steered, config};
use crate::support::session::Session;
use crate::support::wait::until;

const OPERATIONS: &str = "mcp_server_operation_duration_seconds_count";
const AT_SERVER: &str = "mcp_client_operation_duration_seconds_count";

/// OB8: a result that says that the tool failed is an error of its own kind, at both ends.
#[tokio::test]
async fn ob8_a_result_that_says_that_the_tool_failed_is_a_tool_error() {
    let mut steered = Steered::start().await;
    let upstream = format!("http://{}/mcp", steered.address());
    let gateway = tenure::Node::start(&config(&[("upstream.url", &upstream)])).await.unwrap();
    let (session, _link) = tokio::join!(Session::start(gateway.address()), steered.script.opened());
    let answers = [json!({ "content": [], "isError": true }), json!({ "content": [] })];
    for (id, answer) in (1..).zip(&answers) {
        let ask = session.request(id, "tools/call", &json!({ "name": "any" }));
        let (_, ()) =
            tokio::join!(ask.send(gateway.address()), async { steered.script.call().await.answer(answer) });
    }
    until("both were counted", || sum(&gateway.metrics_text(), OPERATIONS, &["tools/call"]) == 2.0).await;
    let text = gateway.metrics_text();
    for name in [OPERATIONS, AT_SERVER] {
        assert_eq!(sum(&text, name, &["tools/call", "error_type=\"tool_error\""]), 1.0, "{text}");
        assert_eq!(sum(&text, name, &["tools/call", "error_type=\"\""]), 1.0, "{text}");
    }
    let text = steered.node.metrics_text();
    assert_eq!(
        sum(&text, AT_SERVER, &["tools/call"]),
        0.0,
        "no request goes to a server in this process: {text}"
    );
    gateway.stop().await;
    steered.node.stop().await;
}

/// OB5: names of tools that clients make up make no series.
#[tokio::test]
async fn ob5_names_that_clients_make_up_are_one_series() {
    let node = tenure::Node::start(&config(&[])).await.unwrap();
    let session = Session::start(node.address()).await;
    let made_up = async |from: u64, count: u64| {
        for id in from..from + count {
            session.tool(id, &format!("made-up-{id}"), &json!({})).await;
        }
    };
    made_up(1_000, 300).await;
    let listed = session.request(1, "tools/list", &json!({})).send(node.address()).await.json();
    let tools = listed["result"]["tools"].as_array().expect("tools");
    let (known, tools) = (tools[0]["name"].as_str().expect("a name").to_owned(), tools.len());
    made_up(2_000, 300).await;
    session.tool(2, &known, &json!({})).await;
    until("all were counted", || sum(&node.metrics_text(), OPERATIONS, &["tools/call"]) == 601.0).await;
    let text = node.metrics_text();
    let labels: std::collections::BTreeSet<_> = samples(&text, OPERATIONS)
        .into_keys()
        .filter_map(|labels| Some(labels.split("gen_ai_tool_name=\"").nth(1)?.split('"').next()?.to_owned()))
        .filter(|tool| !tool.is_empty())
        .collect();
    assert_eq!(labels, ["_other".to_owned(), known.clone()].into(), "of {tools} tools two were called");
    assert_eq!(sum(&text, OPERATIONS, &["gen_ai_tool_name=\"_other\""]), 600.0);
    assert!(!text.contains("made-up"), "{text}");
    node.stop().await;
}

/// A method that is not of the protocol, and the name of a session, make no series either.
#[tokio::test]
async fn methods_that_are_made_up_and_sessions_are_no_labels() {
    let node = tenure::Node::start(&config(&[])).await.unwrap();
    let session = Session::start(node.address()).await;
    for id in 1..50 {
        session.request(id, &format!("made/up{id}"), &json!({})).send(node.address()).await;
    }
    let other = ["mcp_method_name=\"_other\""];
    until("all were counted", || sum(&node.metrics_text(), OPERATIONS, &other) == 49.0).await;
    let text = node.metrics_text();
    let label = SessionId::parse(session.id.as_bytes()).expect("an id").key().label();
    assert!(!text.contains("made/up") && !text.contains(&label), "{text}");
    node.stop().await;
}
