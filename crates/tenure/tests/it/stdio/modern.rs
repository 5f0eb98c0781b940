//! Requests without a session on standard input: revision 2026-07-28.

use serde_json::{Value, json};

use super::process::Process;
use super::talk::{fault, text};

/// Params with what every request says of its client.
fn params(mut params: Value) -> Value {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({ "elicitation": {} });
    params
}

fn call(tool: &str, arguments: &Value) -> Value {
    params(json!({ "name": tool, "arguments": arguments }))
}

#[tokio::test]
async fn no_handshake_is_needed_and_both_eras_share_the_pipe() {
    let mut process = Process::start(&[]);
    process.request(1, "server/discover", &params(json!({}))).await;
    let found = process.message().await;
    assert_eq!(found["result"]["supportedVersions"][0], "2026-07-28", "{found}");
    assert_eq!(found["result"]["resultType"], "complete");
    process.request(2, "tools/call", &call("public_echo", &json!({ "text": "alone" }))).await;
    assert_eq!(text(&process.message().await), "alone");
    process.shake_hands().await;
    process.echo(3).await;
    process.request(4, "tools/call", &call("public_echo", &json!({ "text": "again" }))).await;
    assert_eq!(text(&process.message().await), "again");
    assert_eq!(process.close().await, [Value::Null; 0]);
}

#[tokio::test]
async fn what_is_not_served_is_refused_in_the_words_of_its_era() {
    let mut process = Process::start(&["--set", "eras=modern"]);
    process.request(1, "initialize", &json!({ "protocolVersion": "2025-11-25" })).await;
    let refused = process.message().await;
    assert_eq!(fault(&refused), (Some(&json!(1)), "version_not_served"));
    assert_eq!(refused["error"]["data"]["requested"], "2025-11-25");
    assert_eq!(refused["error"]["data"]["supported"], json!(["2026-07-28"]));
    for (id, method) in [(2, "ping"), (3, "initialize"), (4, "no/such/method")] {
        process.request(id, method, &params(json!({}))).await;
        assert_eq!(fault(&process.message().await), (Some(&json!(id)), "method_not_found"), "{method}");
    }
    let meta = json!({ "_meta": { "io.modelcontextprotocol/protocolVersion": "2026-07-28" } });
    process.request(5, "tools/list", &meta).await;
    assert_eq!(fault(&process.message().await), (Some(&json!(5)), "invalid_meta"));
    assert_eq!(process.close().await, [Value::Null; 0]);
}

#[tokio::test]
async fn progress_comes_before_the_answer_and_a_withdrawn_request_is_silent() {
    let mut process = Process::start(&[]);
    let mut counted = call("long_task", &json!({ "seconds": 2, "interval_ms": 1 }));
    counted["_meta"]["progressToken"] = "p".into();
    process.request(1, "tools/call", &counted).await;
    for step in 0..=2 {
        let message = process.message().await;
        assert_eq!(message["params"]["progressToken"], "p", "{message}");
        assert_eq!(message["params"]["progress"].as_f64(), Some(f64::from(step)));
    }
    assert_eq!(process.message().await["id"], 1);

    counted["arguments"] = json!({ "seconds": 1000, "interval_ms": 50 });
    process.request(2, "tools/call", &counted).await;
    assert_eq!(process.message().await["method"], "notifications/progress");
    process.request(2, "tools/list", &params(json!({}))).await;
    // Messages from before the withdrawal may still be on their way.
    let refused = loop {
        let message = process.message().await;
        if message.get("id").is_some() {
            break message;
        }
    };
    assert_eq!(fault(&refused), (Some(&json!(2)), "duplicate_request_id"));
    process.cancel(2).await;
    process.request(3, "tools/call", &call("public_echo", &json!({ "text": "next" }))).await;
    let answer = loop {
        let message = process.message().await;
        if message.get("id").is_some() {
            break message;
        }
    };
    assert_eq!((&answer["id"], text(&answer)), (&json!(3), "next"));
    let rest = process.close().await;
    assert!(rest.iter().all(|message| message["method"] == "notifications/progress"), "{rest:?}");
}

#[tokio::test]
async fn a_question_is_answered_by_the_next_attempt() {
    let mut process = Process::start(&[]);
    process.request(1, "tools/call", &call("ask_name", &json!({}))).await;
    let wanted = process.message().await["result"].clone();
    assert_eq!(wanted["resultType"], "input_required", "{wanted}");
    let (key, question) = wanted["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(question["method"], "elicitation/create");
    let mut again = call("ask_name", &json!({}));
    again["requestState"] = wanted["requestState"].clone();
    again["inputResponses"] = json!({ key: { "action": "accept", "content": { "name": "Ada" } } });
    process.request(2, "tools/call", &again).await;
    assert_eq!(text(&process.message().await), "Hello, Ada!");
    process.request(3, "tools/call", &again).await;
    assert_eq!(fault(&process.message().await), (Some(&json!(3)), "invalid_request_state"), "used once");
    assert_eq!(process.close().await, [Value::Null; 0]);
}

#[tokio::test]
async fn listens_run_side_by_side_and_end_with_a_result_when_the_input_does() {
    let mut process = Process::start(&[]);
    for id in [1, 2] {
        let wanted = json!({ "notifications": { "resourceSubscriptions": ["demo://visitors"] } });
        process.request(id, "subscriptions/listen", &params(wanted)).await;
        let acknowledged = process.message().await;
        assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged", "{acknowledged}");
        assert_eq!(acknowledged["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], id);
    }
    process.cancel(1).await;
    process.request(3, "tools/call", &call("public_echo", &json!({ "text": "meanwhile" }))).await;
    assert_eq!(text(&process.message().await), "meanwhile");
    let rest = process.close().await;
    assert_eq!(rest.len(), 2, "{rest:?}");
    assert_eq!((&rest[0]["id"], &rest[0]["result"]["resultType"]), (&json!(2), &json!("complete")));
    assert_eq!(rest[1]["method"], "notifications/cancelled");
    assert_eq!(rest[1]["params"]["requestId"], 2);
}
