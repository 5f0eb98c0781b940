//! Lines as they should not be, and what standard output may carry.

use serde_json::{Value, json};

use super::process::Process;
use super::talk::{fault, text};
use crate::support::session::request;

#[tokio::test]
async fn a_line_that_is_no_message_is_answered_and_the_next_one_is_read() {
    let mut process = Process::open(&[]).await;
    let table: [(&[u8], Option<Value>, i64); 12] = [
        (b"hello", None, -32700),
        (b"{", None, -32700),
        (b"{} {}", None, -32700),
        (b"\xff\xfe", None, -32700),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", None, -32700),
        (b"17", None, -32600),
        (b"[]", None, -32600),
        (b"{}", None, -32600),
        (br#"{"jsonrpc":"1.0","id":5,"method":"ping"}"#, Some(json!(5)), -32600),
        (br#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, None, -32600),
        (br#"{"jsonrpc":"2.0","id":"a","method":7}"#, Some(json!("a")), -32600),
        (br#"{"jsonrpc":"2.0","id":6,"method":"ping","params":[1]}"#, Some(json!(6)), -32600),
    ];
    for (number, (line, id, code)) in (1000..).zip(table) {
        process.write(line).await;
        process.write("\n").await;
        let answer = process.message().await;
        let line = String::from_utf8_lossy(line);
        assert_eq!((answer.get("id"), &answer["error"]["code"]), (id.as_ref(), &json!(code)), "{line}");
        process.echo(number).await;
    }
    assert_eq!(process.close().await, [Value::Null; 0]);
}

#[tokio::test]
async fn line_breaks_of_other_systems_and_blank_lines_do_no_harm() {
    let mut process = Process::open(&[]).await;
    process.write("\n\r\n   \n\t\r\n").await;
    process.write(format!("{}\r\n", request(1, "ping", &json!({})))).await;
    assert_eq!(process.message().await["id"], 1);
    // In pieces, and the last without its line break.
    let line = request(2, "ping", &json!({})).to_string();
    for piece in line.as_bytes().chunks(3) {
        process.write(piece).await;
    }
    let rest = process.close().await;
    assert_eq!((rest.len(), &rest[0]["id"]), (1, &json!(2)));
}

#[tokio::test]
async fn a_line_that_is_too_long_is_refused_by_its_id_and_passed_over() {
    let mut process = Process::open(&["--set", "http.max_body=1KiB"]).await;
    let filler = "x".repeat(300_000);
    let arguments = json!({ "text": filler });
    let params = json!({ "name": "public_echo", "arguments": arguments });
    // As the SDKs write it, with the id behind the params.
    process.write(format!(r#"{{"method":"tools/call","params":{params},"jsonrpc":"2.0","id":7}}"#)).await;
    process.write("\n").await;
    let refused = process.message().await;
    assert_eq!(fault(&refused), (Some(&json!(7)), "body_too_large"));
    assert_eq!(refused["error"]["data"]["limit"], 1024);
    process.write(format!("{filler}\n")).await;
    assert_eq!(fault(&process.message().await), (None, "body_too_large"));
    process.echo(8).await;
    assert_eq!(process.close().await, [Value::Null; 0]);
}

#[tokio::test]
async fn an_answer_that_is_too_long_does_not_leave_the_server_waiting() {
    let mut process = Process::open(&["--set", "http.max_body=1KiB"]).await;
    process.call(1, "ask_name", &json!({})).await;
    let question = process.message().await["id"].clone();
    let result = json!({ "action": "accept", "content": { "name": "x".repeat(5000) } });
    process.send(&json!({ "jsonrpc": "2.0", "id": question, "result": result })).await;
    assert_eq!(fault(&process.message().await), (Some(&json!(1)), "body_too_large"));
    process.close().await;
}

#[tokio::test]
async fn batches_are_for_the_one_revision_that_has_them() {
    let batch = json!([
        request(1, "ping", &json!({})),
        { "jsonrpc": "2.0", "method": "notifications/roots/list_changed" },
        request(2, "tools/call", &json!({ "name": "public_echo", "arguments": { "text": "two" } })),
    ]);
    let mut process = Process::start(&[]);
    process.send(&batch).await;
    assert_eq!(fault(&process.message().await), (None, "batch_not_allowed"));
    process.shake_hands_as("2025-03-26").await;
    process.send(&batch).await;
    let mut answers = [process.message().await, process.message().await];
    answers.sort_by_key(|answer| answer["id"].as_u64());
    assert_eq!((&answers[0]["result"], text(&answers[1])), (&json!({}), "two"));
    // One bad element and nothing of it is done.
    process.send(&json!([request(3, "ping", &json!({})), 17])).await;
    assert_eq!(fault(&process.message().await), (None, "invalid_request"));
    process.echo(4).await;
    assert_eq!(process.close().await, [Value::Null; 0]);

    let mut process = Process::open(&[]).await;
    process.send(&batch).await;
    assert_eq!(fault(&process.message().await), (None, "batch_not_allowed"));
    process.close().await;
}

#[tokio::test]
async fn a_modern_request_in_a_batch_is_refused_and_nothing_of_the_batch_is_done() {
    let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28" });
    let modern = request(2, "tools/call", &json!({ "name": "public_echo", "_meta": meta }));
    let mut process = Process::start(&[]);
    process.shake_hands_as("2025-03-26").await;
    process.send(&json!([request(1, "ping", &json!({})), modern])).await;
    assert_eq!(fault(&process.message().await), (None, "invalid_request"));
    process.echo(3).await;
    assert_eq!(process.close().await, [Value::Null; 0]);
}

/// `Talk` fails on any line that is no message, so the loudest process is the test.
#[tokio::test]
async fn standard_output_carries_nothing_but_messages() {
    for format in ["pretty", "json"] {
        let mut process = Process::open(&["--log", format, "--log-level", "trace"]).await;
        process.call(1, "public_echo", &json!({ "text": "line\nbreak\r\u{2028}" })).await;
        assert_eq!(text(&process.message().await), "line\nbreak\r\u{2028}");
        process.write("garbage\n").await;
        process.message().await;
        process.call(2, "long_task", &json!({ "seconds": 2, "interval_ms": 1 })).await;
        process.close_input();
        let ended = process.ended().await;
        assert_eq!(ended.rest.last().unwrap()["id"], 2);
        assert!(ended.logs.contains("session created"), "logs are on standard error: {}", ended.logs);
    }
}

#[tokio::test]
async fn nothing_is_logged_when_nothing_is_wrong() {
    let mut process = Process::open(&["--log-level", "warn"]).await;
    process.echo(1).await;
    process.call(2, "long_task", &json!({ "seconds": 1, "interval_ms": 1 })).await;
    process.close_input();
    let ended = process.ended().await;
    assert_eq!((ended.status.code(), ended.logs.as_str()), (Some(0), ""));
}
