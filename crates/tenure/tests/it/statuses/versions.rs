//! The version header, and requests of the revision that has no sessions.

use serde_json::{Value, json};
use tenure::Node;

use crate::support::client::{Ask, Response};
use crate::support::node::{demo, demo_with};
use crate::support::session::{Session, notification, request};

const MODERN: &str = "2026-07-28";

/// A server of sessions alone.
async fn legacy() -> Node {
    demo_with(&[("eras", "legacy")]).await
}

fn assert_unsupported(response: &Response, requested: &str) {
    assert_eq!(response.fault(), (400, -32600, "unsupported_version".to_owned()), "{requested}");
    let data = response.json()["error"]["data"].clone();
    assert_eq!(data["supported"], json!(["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]));
    assert_eq!((&data["requested"], &data["provided"]), (&json!(requested), &json!(requested)));
}

#[tokio::test]
async fn an_unsupported_version_header_is_400_even_in_a_live_session() {
    let node = demo().await;
    let session = Session::start(node.address()).await;
    for version in ["1999-01-01", "2025-11-26", "v999", "2025-11-25x", ""] {
        let asks = [
            session.request(1, "ping", &json!({})),
            session.request(1, "tools/list", &json!({})),
            session.post(&notification("notifications/initialized")),
            session.get(),
            session.delete(),
        ];
        for ask in asks {
            let response = ask.header("MCP-Protocol-Version", version).send(node.address()).await;
            assert_unsupported(&response, version);
        }
    }
    assert_eq!(
        session.request(1, "ping", &json!({})).send(node.address()).await.status(),
        200,
        "it lives on"
    );
}

#[tokio::test]
async fn a_version_header_may_be_absent_or_name_any_revision_we_serve() {
    let node = demo().await;
    for negotiated in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let session = Session::of_revision(node.address(), negotiated).await;
        let list = session.request(1, "tools/list", &json!({}));
        assert_eq!(list.clone().send(node.address()).await.status(), 200, "{negotiated}, no header");
        for header in [negotiated, "2025-06-18", " 2025-11-25 "] {
            let response = list.clone().header("MCP-Protocol-Version", header).send(node.address()).await;
            assert_eq!(response.status(), 200, "{negotiated}, {header}");
        }
    }
}

fn modern(method: &str, version: &str) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    request(11, method, &json!({ "_meta": meta }))
}

#[tokio::test]
async fn a_modern_request_is_400_with_an_error_that_makes_its_client_fall_back() {
    let node = legacy().await;
    let session = Session::start(node.address()).await;
    for method in ["server/discover", "tools/list", "initialize"] {
        for with_session in [false, true] {
            let body = modern(method, MODERN).to_string();
            let ask = if with_session { session.post_raw(&body) } else { Ask::post(&body) };
            let response = ask.header("MCP-Protocol-Version", MODERN).send(node.address()).await;
            // Any of the modern codes -32020 to -32022 would tell the client to stay modern.
            assert_unsupported(&response, MODERN);
            assert_eq!(response.json()["id"], 11);
            assert_eq!(response.header("mcp-session-id"), None);
        }
    }
}

#[tokio::test]
async fn a_modern_request_whose_header_says_otherwise_is_refused() {
    let node = legacy().await;
    let session = Session::start(node.address()).await;
    let body = modern("tools/list", MODERN);
    for header in [None, Some("2025-11-25"), Some("v999")] {
        let ask = session.post(&body);
        let ask = header.map_or(ask.clone(), |header| ask.header("MCP-Protocol-Version", header));
        assert_eq!(ask.send(node.address()).await.status(), 400, "{header:?}");
    }
    let legacy = modern("tools/list", "2025-11-25");
    let ask = session.post(&legacy).header("MCP-Protocol-Version", "2025-11-25");
    assert_eq!(
        ask.send(node.address()).await.status(),
        400,
        "a legacy version is not served without a session"
    );
}

#[tokio::test]
async fn a_modern_header_without_meta_never_reaches_a_session() {
    let node = legacy().await;
    let session = Session::start(node.address()).await;
    for method in ["tools/list", "ping", "initialize"] {
        for ask in
            [session.request(1, method, &json!({})), Ask::post(request(1, method, &json!({})).to_string())]
        {
            let response = ask.header("MCP-Protocol-Version", MODERN).send(node.address()).await;
            assert_unsupported(&response, MODERN);
        }
    }
    let heard =
        session.post(&notification("notifications/initialized")).header("MCP-Protocol-Version", MODERN);
    assert_eq!(heard.send(node.address()).await.status(), 400);
}

#[tokio::test]
async fn get_and_delete_of_the_modern_revision_are_405() {
    let node = legacy().await;
    let session = Session::start(node.address()).await;
    for ask in [Ask::get(), Ask::new("DELETE", "/mcp"), session.get(), session.delete()] {
        let response = ask.header("MCP-Protocol-Version", MODERN).send(node.address()).await;
        assert_eq!(response.status(), 405);
        assert!(response.header("allow").unwrap().contains("POST"));
    }
    assert_eq!(
        session.request(1, "ping", &json!({})).send(node.address()).await.status(),
        200,
        "nothing was deleted"
    );
}
