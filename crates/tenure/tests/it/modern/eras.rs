//! Both eras on one endpoint, or one of them alone; and messages that are no requests.

use serde_json::{Value, json};

use super::support::{MODERN, Steered, call, message, post};
use crate::support::client::Ask;
use crate::support::node::demo_with;
use crate::support::session::{Session, initialize, notification, request};

const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

fn versions(modern: bool, legacy: bool) -> Value {
    let modern = modern.then_some(MODERN).into_iter();
    json!(modern.chain(LEGACY.into_iter().filter(|_| legacy)).collect::<Vec<_>>())
}

#[tokio::test]
async fn an_endpoint_serves_both_eras_or_the_one_that_it_is_told_to() {
    for (eras, modern, legacy) in [("both", true, true), ("modern", true, false), ("legacy", false, true)] {
        let node = demo_with(&[("eras", eras)]).await;
        let discover = post(&message("server/discover", json!({}))).send(node.address()).await;
        if modern {
            assert_eq!(discover.status(), 200);
            assert_eq!(discover.json()["result"]["supportedVersions"], versions(modern, legacy));
        } else {
            // None of the modern codes, so that a client of both falls back to initialize.
            assert_eq!(discover.fault(), (400, -32600, "unsupported_version".to_owned()));
        }
        let initialize = initialize("2025-11-25").send(node.address()).await;
        if legacy {
            assert_eq!(initialize.status(), 200, "{eras}");
        } else {
            assert_eq!(initialize.fault(), (400, -32022, "version_not_served".to_owned()));
            let data = initialize.json()["error"]["data"].clone();
            assert_eq!((&data["requested"], &data["supported"]), (&json!("2025-11-25"), &json!([MODERN])));
        }
        let list = Ask::post(request(7, "tools/list", &json!({})).to_string()).send(node.address()).await;
        let reason = if legacy { "session_required" } else { "version_not_served" };
        assert_eq!((list.status(), list.fault().2.as_str()), (400, reason), "{eras}");
        // Only sessions have a rule about what a client has to accept.
        let list =
            Ask::post(request(7, "tools/list", &json!({})).to_string()).header("Accept", "application/json");
        let reason = if legacy { "not_acceptable" } else { "version_not_served" };
        assert_eq!(list.send(node.address()).await.fault().2, reason, "{eras}");
    }
}

#[tokio::test]
async fn a_session_and_exchanges_live_side_by_side() {
    let node = demo_with(&[]).await;
    let session = Session::start(node.address()).await;
    let echo = json!({ "name": "public_echo", "arguments": { "text": "hello" } });
    let modern = post(&message("tools/call", echo.clone())).header("Mcp-Session-Id", &session.id);
    let response = modern.send(node.address()).await;
    assert_eq!(response.json()["result"]["content"][0]["text"], "hello");
    assert_eq!(response.header("mcp-session-id"), None);
    let legacy = session.request(2, "tools/call", &echo).send(node.address()).await;
    assert_eq!(legacy.json()["result"].get("resultType"), None);
    assert_eq!(legacy.header("mcp-session-id"), Some(session.id.as_str()));
    // A modern header takes a request out of the session, whatever its body lacks.
    let stray = session.request(3, "tools/list", &json!({})).header("MCP-Protocol-Version", MODERN);
    assert_eq!(stray.send(node.address()).await.fault(), (400, -32602, "invalid_meta".to_owned()));
}

#[tokio::test]
async fn get_and_delete_are_405_where_there_is_nothing_but_requests() {
    let node = demo_with(&[]).await;
    let session = Session::start(node.address()).await;
    for ask in [session.get(), session.delete(), Ask::new("PUT", "/mcp"), Ask::new("OPTIONS", "/mcp")] {
        let response = ask.header("MCP-Protocol-Version", MODERN).send(node.address()).await;
        assert_eq!((response.status(), response.header("allow")), (405, Some("POST")));
        assert_eq!(response.fault().2, "method_not_allowed");
    }
    assert_eq!(session.request(1, "ping", &json!({})).send(node.address()).await.status(), 200, "it lives");
    let node = demo_with(&[("eras", "modern")]).await;
    for method in ["GET", "DELETE", "PUT", "PATCH", "OPTIONS"] {
        let response = Ask::new(method, "/mcp").send(node.address()).await;
        assert_eq!((response.status(), response.header("allow")), (405, Some("POST")), "{method}");
    }
}

#[tokio::test]
async fn notifications_are_accepted_and_mean_nothing() {
    let mut steered = Steered::start().await;
    let mut waiting = post(&call()).begin(steered.address()).await;
    let asked = steered.server.next().await;
    for message in [
        notification("notifications/initialized"),
        notification("notifications/of/mine"),
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } }),
    ] {
        for ask in [
            Ask::post(message.to_string()).header("MCP-Protocol-Version", MODERN),
            Ask::post(message.to_string()).header("MCP-Protocol-Version", MODERN).without("Accept"),
        ] {
            let response = ask.send(steered.address()).await;
            assert_eq!((response.status(), response.text().as_str()), (202, ""));
        }
    }
    assert!(!asked.context.is_cancelled(), "ids of one client mean nothing to another");
    asked.answer(&json!({}));
    assert_eq!(waiting.response().await.status(), 200);
}

#[tokio::test]
async fn arrays_and_responses_have_no_place() {
    let steered = Steered::start().await;
    let batches = [
        json!([call()]),
        json!([request(1, "tools/list", &json!({})), call()]),
        json!([notification("notifications/initialized"), call()]),
    ];
    for batch in batches {
        for header in [Some(MODERN), None] {
            let ask = Ask::post(batch.to_string());
            let ask = header.map_or(ask.clone(), |header| ask.header("MCP-Protocol-Version", header));
            let response = ask.send(steered.address()).await;
            assert_eq!(response.fault(), (400, -32600, "invalid_request".to_owned()), "{batch}");
            assert_eq!(response.json().get("id"), None);
        }
    }
    let plain = json!([request(1, "tools/list", &json!({}))]).to_string();
    let response = Ask::post(plain).header("MCP-Protocol-Version", MODERN).send(steered.address()).await;
    assert_eq!(response.fault(), (400, -32600, "invalid_request".to_owned()));
    let answer = json!({ "jsonrpc": "2.0", "id": 1, "result": {} }).to_string();
    let response = Ask::post(answer).header("MCP-Protocol-Version", MODERN).send(steered.address()).await;
    assert_eq!(response.status(), 400);
    assert!(steered.server.is_quiet());
}
