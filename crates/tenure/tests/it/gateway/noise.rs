//! What servers print that is no message, and what they say on their standard error.

use serde_json::{Value, json};

use crate::gateway::running::Gateway;

fn is(line: &Value, message: &str) -> bool {
    line["message"] == message
}

#[tokio::test]
async fn what_is_no_message_is_logged_and_passed_over() {
    let gateway = Gateway::start(&["child.max_line=64KiB"]).await;
    let session = gateway.session().await;
    assert_eq!(session.tool(1, "garbage", &json!({})).await.json()["id"], 1);
    let line = gateway.logged("the garbage", |line| line["start"] == "Listening on stdio...").await;
    assert_eq!(line["level"], "WARN");
    assert!(line["session"].as_str().is_some_and(|label| !label.is_empty()), "{line}");
    assert_eq!(session.tool(2, "long_line", &json!({ "bytes": 1 << 20 })).await.json()["id"], 2);
    let line = gateway
        .logged("the long line", |line| is(line, "the server wrote a line that is too long; dropped"))
        .await;
    assert_eq!(line["start"].as_str().map(str::len), Some(256), "only how it begins: {line}");
    assert_eq!(session.tool(3, "public_echo", &json!({ "text": "on" })).await.status(), 200);
}

/// The id stands before the result or after it, depending on who wrote the server.
#[tokio::test]
async fn a_call_whose_answer_is_too_long_ends_with_an_error() {
    let gateway = Gateway::start(&["child.max_line=64KiB"]).await;
    let session = gateway.session().await;
    for (number, id) in [(1, "first"), (2, "last")] {
        let said = session.tool(number, "long_answer", &json!({ "bytes": 1 << 20, "id": id })).await;
        assert_eq!(said.json()["error"]["data"]["reason"], "event_too_large", "{id}: {said:?}");
    }
    let said = session.tool(3, "long_answer", &json!({ "bytes": 1 << 10 })).await;
    assert_eq!(said.json()["result"]["text"].as_str().map(str::len), Some(1 << 10));
}

#[tokio::test]
async fn messages_that_make_no_sense_do_no_harm() {
    let gateway = Gateway::start(&[]).await;
    let session = gateway.session().await;
    let lines = [
        r#"{"jsonrpc":"2.0","id":999,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"0","result":{}}"#,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}"#,
        r#"{"jsonrpc":"1.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":5,"progress":1}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":42}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{}}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#,
        "[]",
        "",
        "   ",
    ];
    for (id, line) in (1..).zip(lines) {
        let said = session.tool(id, "print", &json!({ "line": line })).await;
        assert!(said.text().contains(r#""result":{"content":[]}"#), "{line}: {said:?}");
    }
}

/// Revision 2025-03-26 has batches, in both directions.
#[tokio::test]
async fn a_batch_of_a_server_is_taken_apart() {
    let gateway = Gateway::start(&[]).await;
    let session = gateway.session().await;
    let mut listening = session.listen().await;
    let update = |uri: &str| json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": { "uri": uri } });
    let line = json!([update("file:///1"), update("file:///2")]).to_string();
    session.tool(1, "print", &json!({ "line": line })).await;
    for uri in ["file:///1", "file:///2"] {
        assert_eq!(listening.message().await.unwrap().1["params"]["uri"], uri);
    }
}

#[tokio::test]
async fn standard_error_is_in_the_log_under_the_sessions_label_and_never_its_id() {
    let mut gateway = Gateway::start(&["log.level=trace"]).await;
    let sessions = [gateway.session().await, gateway.session().await];
    let mut labels = Vec::new();
    for (session, words) in sessions.iter().zip(["words of one", "words of two"]) {
        session.tool(1, "say", &json!({ "text": words })).await;
        let line = gateway.logged(words, |line| line["message"] == words).await;
        assert_eq!((&line["target"], &line["level"]), (&json!("tenure::child"), &json!("INFO")));
        labels.push(line["session"].as_str().expect("a label").to_owned());
    }
    assert_ne!(labels[0], labels[1]);
    // A very long line, and one that is no text, cost no more than a line each.
    sessions[0].tool(2, "say", &json!({ "text": "y".repeat(100_000) })).await;
    let line = gateway
        .logged("the long one", |line| line["message"].as_str().is_some_and(|m| m.starts_with("yyy")))
        .await;
    assert!(line["message"].as_str().unwrap().len() < 5000);
    gateway.stop().await;
    let log = gateway.whole_log().await.join("\n");
    for session in &sessions {
        assert!(!log.contains(&session.id), "an id is in the log");
    }
}

/// An unread log must not stop a child, and a child that says much must not stop the gateway.
#[tokio::test]
async fn a_child_may_say_much_on_its_standard_error() {
    let gateway = Gateway::start(&["log.level=warn"]).await;
    let session = gateway.session().await;
    let text = vec!["z".repeat(200); 5000].join("\n");
    for id in 1..=5 {
        assert_eq!(session.tool(id, "say", &json!({ "text": text })).await.status(), 200);
    }
    assert_eq!(gateway.log_so_far().iter().filter(|line| line.contains("zzz")).count(), 0);
}
