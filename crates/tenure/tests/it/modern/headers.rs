//! Headers that repeat what the body says, and headers that mean nothing any more.

use serde_json::json;

use super::support::{MODERN, Steered, call, message, post, say};
use crate::support::events::SseItem;

fn mismatch() -> (u16, i64, String) {
    (400, -32020, "header_mismatch".to_owned())
}

#[tokio::test]
async fn a_header_that_is_missing_or_stands_twice_or_says_otherwise_is_refused() {
    let steered = Steered::start().await;
    let good = [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/call"), ("Mcp-Name", "t")];
    for (name, value) in good {
        let asks = [
            ("missing", post(&call()).without(name)),
            ("twice", post(&call()).another(name, value)),
            ("twice and different", post(&call()).another(name, "x")),
            ("another value", post(&call()).header(name, "x")),
            ("empty", post(&call()).header(name, "")),
            ("both at once", post(&call()).header(name, &format!("{value}, {value}"))),
        ];
        for (what, ask) in asks {
            let response = ask.send(steered.address()).await;
            assert_eq!(response.fault(), mismatch(), "{name} {what}");
            assert_eq!(response.json()["id"], 1);
        }
    }
    for (name, value) in [("Mcp-Method", "Tools/Call"), ("Mcp-Name", "T")] {
        let response = post(&call()).header(name, value).send(steered.address()).await;
        assert_eq!(response.fault(), mismatch(), "values have their case");
    }
    assert!(steered.server.is_quiet());
}

#[tokio::test]
async fn names_of_headers_have_no_case_and_values_no_space_around_them() {
    let mut steered = Steered::start().await;
    let ask = post(&call())
        .without("MCP-Protocol-Version")
        .header("mcp-protocol-VERSION", &format!(" \t{MODERN}\t "))
        .without("Mcp-Method")
        .header("MCP-METHOD", "  tools/call")
        .without("Mcp-Name")
        .header("mCP-nAME", "t  ");
    let mut waiting = ask.begin(steered.address()).await;
    steered.server.next().await.answer(&json!({}));
    assert_eq!(waiting.response().await.status(), 200);
}

#[tokio::test]
async fn a_name_that_no_header_can_carry_is_encoded() {
    let mut steered = Steered::start().await;
    let named = |name: &str| message("tools/call", json!({ "name": name, "arguments": {} }));
    for (name, header) in [
        ("żółw", "=?base64?xbzDs8WCdw==?="),
        (" t ", "=?base64?IHQg?="),
        ("t", "=?base64?dA==?="),
        ("=?base64?dA==?=", "=?base64?PT9iYXNlNjQ/ZEE9PT89?="),
        ("=?base64?dA==", "=?base64?dA=="),
        ("=?BASE64?dA==?=", "=?BASE64?dA==?="),
        ("a b", "a b"),
    ] {
        let mut waiting = post(&named(name)).header("Mcp-Name", header).begin(steered.address()).await;
        steered.server.next().await.answer(&json!({}));
        assert_eq!(waiting.response().await.status(), 200, "{name}");
    }
    for (name, header) in [
        ("t", "=?base64?dA?="),
        ("t", "=?base64?dB==?="),
        ("t", "=?base64?!!?="),
        ("\u{fffd}", "=?base64?/w==?="),
        ("=?base64?dA==?=", "=?base64?dA==?="),
        ("żółw", "zolw"),
    ] {
        let response = post(&named(name)).header("Mcp-Name", header).send(steered.address()).await;
        assert_eq!(response.fault(), mismatch(), "{name} {header}");
    }
    // Values that are not text.
    let mut bytes = post(&named("t")).header("Mcp-Name", "@@").bytes();
    let at = bytes.windows(2).position(|two| two == b"@@").unwrap();
    bytes[at] = 0xff;
    let mut connection = crate::support::client::Connection::open(steered.address()).await;
    connection.write(&bytes).await;
    assert_eq!(connection.response().await.fault(), mismatch());
    assert!(steered.server.is_quiet());
}

#[tokio::test]
async fn a_session_beside_a_modern_request_is_neither_used_nor_named() {
    let mut steered = Steered::start().await;
    for id in ["0123456789abcdef0123456789abcdef", "garbage!", ""] {
        let ask = post(&call()).header("Mcp-Session-Id", id).header("Last-Event-ID", "7");
        let mut waiting = ask.clone().begin(steered.address()).await;
        steered.server.next().await.answer(&json!({}));
        let response = waiting.response().await;
        assert_eq!((response.status(), response.header("mcp-session-id")), (200, None), "{id}");
        let waiting = ask.begin(steered.address()).await;
        let asked = steered.server.next().await;
        say(&asked, "hello").await;
        asked.answer(&json!({}));
        let mut events = waiting.events().await;
        assert_eq!(events.header("mcp-session-id"), None);
        assert_eq!(events.header("cache-control"), Some("no-cache, no-transform"));
        assert_eq!(events.header("x-accel-buffering"), Some("no"));
        let mut ids = Vec::new();
        while let Some(item) = events.next().await {
            if let SseItem::Event(event) = item {
                ids.extend(event.id);
            }
        }
        assert!(
            matches!(&ids[..], [id] if id.starts_with("call-")),
            "that of the call, and of no session: {ids:?}"
        );
        assert!(events.is_complete());
    }
    assert_eq!(steered.node.sessions().tallies().created, 0);
}
