//! Who may talk to us, and how much at once: the same for requests without a session.

use serde_json::json;

use super::support::{Steered, call, message, post};
use crate::http2_and_tls::client::{Http2, json as json_of};
use crate::support::client::{self, Connection};

#[tokio::test]
async fn a_page_of_another_site_does_not_reach_the_server() {
    let steered = Steered::start().await;
    for (name, value, reason) in [
        ("Origin", "https://evil.example.com", "origin_not_allowed"),
        ("Origin", "null", "origin_not_allowed"),
        ("Origin", "http://localhost.evil.example.com", "origin_not_allowed"),
        ("Host", "evil.example.com", "host_not_allowed"),
        ("Host", "localhost.evil.example.com:80", "host_not_allowed"),
    ] {
        let response = post(&call()).header(name, value).send(steered.address()).await;
        assert_eq!(response.fault(), (403, -32600, reason.to_owned()), "{name}: {value}");
    }
    let mut client = Http2::over(client::connect(steered.address()).await, "http://evil.example.com").await;
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "t")];
    let response = client.send("POST", "*/*", &headers, call().to_string()).await;
    assert_eq!(response.status(), 403);
    assert_eq!(json_of(response).await["error"]["data"]["reason"], "host_not_allowed");
    assert!(steered.server.is_quiet());
}

#[tokio::test]
async fn a_body_that_is_too_large_is_413_and_one_that_does_not_come_408() {
    let steered = Steered::with(&[("http.max_body", "1KiB"), ("http.body_timeout", "100ms")]).await;
    let large = message("tools/call", json!({ "name": "t", "arguments": { "x": "y".repeat(2000) } }));
    let response = post(&large).send(steered.address()).await;
    assert_eq!(response.fault(), (413, -32600, "body_too_large".to_owned()));
    let bytes = post(&call()).bytes();
    let mut connection = Connection::open(steered.address()).await;
    connection.write(&bytes[..bytes.len() - 5]).await;
    assert_eq!(connection.response().await.fault(), (408, -32600, "body_timeout".to_owned()));
    assert!(steered.server.is_quiet());
    steered.idle().await;
}
