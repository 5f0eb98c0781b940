//! Handshake, calls, progress, questions, cancellation: what a client does all day.

use serde_json::{Value, json};

use super::process::Process;
use super::talk::{fault, text};
use crate::support::session::{initialize_params, notification, request};

#[tokio::test]
async fn a_client_shakes_hands_in_every_revision_and_calls_a_tool() {
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut process = Process::start(&[]);
        process.shake_hands_as(revision).await;
        process.echo(1).await;
        process.request(2, "tools/list", &json!({})).await;
        let answer = process.message().await;
        assert!(!answer["result"]["tools"].as_array().unwrap().is_empty(), "{answer}");
        process.request(3, "no/such/method", &json!({})).await;
        assert_eq!(fault(&process.message().await), (Some(&json!(3)), "method_not_found"));
        assert_eq!(process.close().await, [Value::Null; 0]);
    }
}

#[tokio::test]
async fn everything_may_be_sent_at_once() {
    let mut process = Process::start(&[]);
    let lines = [
        request(1, "initialize", &initialize_params("2025-11-25")),
        notification("notifications/initialized"),
        request(2, "tools/call", &json!({ "name": "public_echo", "arguments": { "text": "piped" } })),
        request(3, "ping", &json!({})),
    ];
    process.write(lines.map(|line| line.to_string()).join("\n")).await;
    let answers = process.close().await;
    assert_eq!(answers[0]["id"], 1, "the session comes first");
    let find = |id: u64| answers.iter().find(|answer| answer["id"] == id).expect("an answer");
    assert_eq!((text(find(2)), &find(3)["result"]), ("piped", &json!({})));
    assert_eq!(answers.len(), 3, "{answers:?}");
}

#[tokio::test]
async fn only_what_the_phase_allows_is_answered() {
    let mut process = Process::start(&[]);
    process.request(1, "tools/list", &json!({})).await;
    assert_eq!(fault(&process.message().await), (Some(&json!(1)), "not_initialized"));
    process.send(&notification("notifications/initialized")).await;
    process.request(2, "ping", &json!({})).await;
    assert_eq!(process.message().await["result"], json!({}));
    process.request(3, "initialize", &json!({})).await;
    assert_eq!(fault(&process.message().await), (Some(&json!(3)), "invalid_params"));
    process.request(4, "initialize", &initialize_params("2025-11-25")).await;
    assert_eq!(process.message().await["result"]["protocolVersion"], "2025-11-25");
    process.request(5, "tools/list", &json!({})).await;
    assert_eq!(fault(&process.message().await), (Some(&json!(5)), "not_initialized"));
    process.request(6, "ping", &json!({})).await;
    assert_eq!(process.message().await["result"], json!({}));
    process.send(&notification("notifications/initialized")).await;
    process.request(7, "initialize", &initialize_params("2025-11-25")).await;
    assert_eq!(fault(&process.message().await), (Some(&json!(7)), "already_initialized"));
    process.echo(8).await;
    assert_eq!(process.close().await, [Value::Null; 0]);
}

#[tokio::test]
async fn a_client_of_the_modern_era_is_told_to_fall_back_where_it_is_not_served() {
    let mut process = Process::start(&["--set", "eras=legacy"]);
    let meta = json!({ "_meta": { "io.modelcontextprotocol/protocolVersion": "2026-07-28" } });
    process.request(1, "server/discover", &meta).await;
    let refused = process.message().await;
    assert_eq!(fault(&refused), (Some(&json!(1)), "unsupported_version"));
    assert_eq!(refused["error"]["data"]["supported"][0], "2025-11-25");
    process.shake_hands().await;
    process.echo(2).await;
    process.close().await;
}

#[tokio::test]
async fn progress_comes_in_order_and_before_the_answer() {
    let mut process = Process::open(&[]).await;
    process.call(7, "long_task", &json!({ "seconds": 5, "interval_ms": 1 })).await;
    for step in 0..=5 {
        let message = process.message().await;
        assert_eq!(message["method"], "notifications/progress", "{message}");
        assert_eq!(message["params"]["progress"].as_f64(), Some(f64::from(step)));
        assert_eq!(message["params"]["progressToken"], 7);
    }
    assert_eq!(process.message().await["id"], 7);
    assert_eq!(process.close().await, [Value::Null; 0]);
}

#[tokio::test]
async fn the_server_asks_and_the_client_answers() {
    let mut process = Process::open(&[]).await;
    process.call(1, "ask_name", &json!({})).await;
    let question = process.message().await;
    assert_eq!(question["method"], "elicitation/create");
    // Other things go on meanwhile.
    process.echo(2).await;
    let result = json!({ "action": "accept", "content": { "name": "Ada" } });
    process.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": result })).await;
    assert_eq!(text(&process.message().await), "Hello, Ada!");
    assert_eq!(process.close().await, [Value::Null; 0]);
}

#[tokio::test]
async fn a_request_that_is_withdrawn_gets_no_answer() {
    let mut process = Process::open(&["--set", "shutdown.grace=1h"]).await;
    process.call(1, "long_task", &json!({ "seconds": 3600 })).await;
    assert_eq!(process.message().await["method"], "notifications/progress");
    process.cancel(1).await;
    process.echo(2).await;
    // Nothing is in flight, so the end does not wait for anything.
    assert_eq!(process.close().await, [Value::Null; 0]);
}

#[tokio::test]
async fn a_request_can_be_withdrawn_in_the_same_breath() {
    let mut process = Process::open(&["--set", "shutdown.grace=1h"]).await;
    let params = json!({ "name": "long_task", "arguments": { "seconds": 3600 } });
    let cancelled =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } });
    for _ in 0..20 {
        process.write(format!("{}\n{cancelled}\n", request(1, "tools/call", &params))).await;
    }
    process.echo(2).await;
    assert_eq!(process.close().await, [Value::Null; 0]);
}

#[tokio::test]
async fn calls_run_at_once() {
    let mut process = Process::open(&["--set", "shutdown.grace=0s"]).await;
    process.call(1, "long_task", &json!({ "seconds": 3600 })).await;
    assert_eq!(process.message().await["method"], "notifications/progress");
    let echo = |id: u64| {
        let arguments = json!({ "text": id.to_string() });
        request(id, "tools/call", &json!({ "name": "public_echo", "arguments": arguments })).to_string()
    };
    process.write((100..200).map(echo).collect::<Vec<_>>().join("\n") + "\n").await;
    let mut answers = Vec::new();
    while answers.len() < 100 {
        let answer = process.message().await;
        assert_eq!(text(&answer), answer["id"].to_string());
        answers.push(answer["id"].as_u64().unwrap());
    }
    answers.sort_unstable();
    assert!(answers.into_iter().eq(100..200), "each once");
    let rest = process.close().await;
    assert_eq!(fault(rest.last().unwrap()), (Some(&json!(1)), "interrupted"));
}

#[tokio::test]
async fn a_log_level_is_kept_to() {
    let mut process = Process::open(&[]).await;
    process.request(1, "logging/setLevel", &json!({ "level": "error" })).await;
    assert_eq!(process.message().await["result"], json!({}));
    let params = json!({ "name": "count_slowly", "arguments": { "to": 2, "interval_ms": 1, "tag": "a" } });
    process.request(2, "tools/call", &params).await;
    assert_eq!(process.message().await["id"], 2, "no log message before the answer");
    process.request(3, "logging/setLevel", &json!({ "level": "info" })).await;
    assert_eq!(process.message().await["result"], json!({}));
    process.request(4, "tools/call", &params).await;
    for n in 1..=2 {
        let message = process.message().await;
        assert_eq!(
            (&message["method"], &message["params"]["data"]["n"]),
            (&json!("notifications/message"), &json!(n))
        );
    }
    assert_eq!(process.message().await["id"], 4);
    process.close().await;
}
