//! What a browser asks before a page may talk to us, and which of our answers the page may read.

use serde_json::json;

use crate::support::client::{Ask, Response};
use crate::support::modern;
use crate::support::node::{Steered, demo, demo_with};
use crate::support::session::{Session, initialize};

const PAGE: &str = "https://app.example.com";
const SETTINGS: &[(&str, &str)] = &[
    ("http.allowed_origins", PAGE),
    ("doors.sse", "true"),
    ("doors.rpc", "true"),
    ("doors.post_sse", "true"),
    ("doors.mcp_sse", "true"),
    ("doors.websocket", "true"),
];

/// What a browser sends before a page's request.
fn preflight(path: &str, origin: &str, method: &str, headers: &str) -> Ask {
    Ask::new("OPTIONS", path)
        .header("Origin", origin)
        .header("Access-Control-Request-Method", method)
        .header("Access-Control-Request-Headers", headers)
}

/// Whether the browser gives an answer to the page, and which of our headers with it.
fn is_readable(response: &Response, origin: &str) -> bool {
    let exposed = response.header("access-control-expose-headers").unwrap_or_default();
    response.header("access-control-allow-origin") == Some(origin)
        && response.header("vary") == Some("Origin")
        && ["Mcp-Session-Id", "MCP-Protocol-Version", "WWW-Authenticate", "Retry-After"]
            .iter()
            .all(|name| exposed.split(", ").any(|exposed| exposed == *name))
        && response.header("access-control-allow-credentials").is_none()
}

/// Nothing that is for browsers alone.
fn is_plain(response: &Response) -> bool {
    ["access-control-allow-origin", "access-control-expose-headers", "access-control-allow-methods", "vary"]
        .iter()
        .all(|name| response.header(name).is_none())
}

#[tokio::test]
async fn a_preflight_is_answered_wherever_a_page_may_ask() {
    let node = demo_with(SETTINGS).await;
    for (path, methods) in [
        ("/mcp", "GET, POST, DELETE"),
        ("/sse", "GET, POST"),
        ("/messages?sessionId=1", "POST"),
        ("/rpc", "POST"),
        ("/mcp/sse", "GET"),
        ("/ws", "GET"),
        ("/healthz", "GET, HEAD"),
        ("/.well-known/oauth-protected-resource", "GET, HEAD"),
    ] {
        for origin in [PAGE, "http://localhost:5173", "http://127.0.0.1", "http://[::1]:6274"] {
            let asked = "content-type,mcp-protocol-version,mcp-session-id";
            let response = preflight(path, origin, "POST", asked).send(node.address()).await;
            assert_eq!((response.status(), response.body.len()), (204, 0), "{path}: {response:?}");
            assert_eq!(response.header("access-control-allow-origin"), Some(origin), "{path}");
            assert_eq!(response.header("access-control-allow-methods"), Some(methods), "{path}");
            assert_eq!(response.header("access-control-max-age"), Some("7200"), "{path}");
            assert!(response.header("vary").is_some_and(|vary| vary.starts_with("Origin, ")), "{path}");
            assert_eq!(response.header("access-control-allow-private-network"), None, "{path}");
        }
    }
    assert_eq!(node.sessions().tallies().created, 0);
}

#[tokio::test]
async fn a_page_may_set_the_headers_of_both_eras_and_its_own_but_none_of_a_proxy() {
    let node = demo_with(SETTINGS).await;
    let asked = "accept, authorization, content-type, last-event-id, mcp-method, mcp-name, mcp-param-region, \
                 mcp-protocol-version, mcp-session-id, traceparent, tracestate, x-api-key";
    let both = format!("{asked}, x-forwarded-for, forwarded, x-http-method-override, x-real-ip");
    let response = preflight("/mcp", PAGE, "POST", &both).send(node.address()).await;
    let allowed = response.header("access-control-allow-headers").unwrap_or_default();
    let is_allowed = |name: &str| allowed.split(", ").any(|allowed| allowed == name);
    for name in asked.split(", ").map(str::trim) {
        assert!(is_allowed(name), "{name}: {allowed}");
    }
    for name in ["x-forwarded-for", "forwarded", "x-http-method-override", "x-real-ip"] {
        assert!(!is_allowed(name), "{name}: {allowed}");
    }
}

#[tokio::test]
async fn a_page_of_the_internet_may_ask_for_a_private_network() {
    let node = demo_with(SETTINGS).await;
    let ask = preflight("/mcp", PAGE, "POST", "content-type")
        .header("Access-Control-Request-Private-Network", "true");
    let response = ask.send(node.address()).await;
    assert_eq!(response.header("access-control-allow-private-network"), Some("true"));
}

#[tokio::test]
async fn a_preflight_for_another_origin_or_host_is_refused() {
    let node = demo_with(SETTINGS).await;
    for path in ["/mcp", "/sse", "/messages", "/rpc", "/mcp/sse", "/ws"] {
        let foreign = preflight(path, "https://evil.example.com", "POST", "content-type");
        let response = foreign.send(node.address()).await;
        assert_eq!(response.fault(), (403, -32600, "origin_not_allowed".to_owned()), "{path}");
        assert_eq!(response.header("access-control-allow-origin"), None, "{path}");
        let rebound = preflight(path, PAGE, "POST", "content-type").header("Host", "evil.example.com");
        assert_eq!(rebound.send(node.address()).await.status(), 403, "{path}");
    }
    for path in ["/healthz", "/nowhere"] {
        let foreign = preflight(path, "https://evil.example.com", "GET", "").send(node.address()).await;
        assert!(is_plain(&foreign), "{path}: {foreign:?}");
    }
}

#[tokio::test]
async fn a_page_reads_every_answer_also_the_errors() {
    let node = demo_with(SETTINGS).await;
    let address = node.address();
    let session = Session::start(address).await;
    let stranger = Session { id: "0".repeat(32), ..session.clone() };
    let asks = [
        (200, initialize("2025-11-25")),
        (200, session.request(1, "tools/list", &json!({}))),
        (202, session.post(&json!({ "jsonrpc": "2.0", "method": "notifications/any" }))),
        (200, session.request(2, "no/such/method", &json!({}))),
        (404, stranger.request(1, "ping", &json!({}))),
        (400, session.post_raw("{")),
        (400, Ask::get()),
        (406, session.get().header("Accept", "text/html")),
        (415, session.post_raw("{}").header("Content-Type", "text/plain")),
        (405, Ask::new("PUT", "/mcp")),
        (405, Ask::new("OPTIONS", "/mcp")),
        (403, initialize("2025-11-25").header("Host", "evil.example.com")),
        (200, session.request(3, "ping", &json!({})).at("/rpc")),
        (200, session.request(4, "ping", &json!({})).at("/sse")),
        (400, Ask::post_to("/messages", "{}")),
        (405, Ask::new("PUT", "/rpc")),
        (426, Ask::new("GET", "/ws")),
        (200, Ask::new("GET", "/healthz")),
        (200, Ask::new("GET", "/readyz")),
        (404, Ask::new("GET", "/.well-known/oauth-protected-resource/mcp")),
        (200, modern::ask(1, "tools/list", &json!({}))),
        (400, modern::ask(1, "tools/list", &json!({})).without("Mcp-Method")),
        (204, session.delete()),
    ];
    for (status, ask) in asks {
        let plain = format!("{ask:?}");
        let response = ask.header("Origin", PAGE).send(address).await;
        assert_eq!(response.status(), status, "{plain}");
        assert!(is_readable(&response, PAGE), "{plain}: {response:?}");
    }
}

#[tokio::test]
async fn a_page_reads_streams() {
    let mut steered = Steered::with(SETTINGS).await;
    let (session, _link) = steered.session().await;
    let mut streams = vec![
        session.get().header("Origin", PAGE).open(steered.address()).await,
        session.get().at("/mcp/sse").header("Origin", PAGE).open(steered.address()).await,
        Ask::get().at("/sse").header("Origin", PAGE).open(steered.address()).await,
    ];
    let call = session.request(1, "tools/call", &json!({ "name": "any" })).header("Origin", PAGE);
    let connection = call.begin(steered.address()).await;
    let call = steered.script.call().await;
    crate::support::node::say(&call, "hello").await;
    streams.push(connection.events().await);
    for stream in streams {
        assert_eq!(stream.header("access-control-allow-origin"), Some(PAGE));
        assert_eq!(stream.header("vary"), Some("Origin"));
        assert!(stream.header("mcp-session-id").is_some());
    }
}

#[tokio::test]
async fn a_request_that_is_no_pages_gets_nothing_of_it() {
    let node = demo_with(SETTINGS).await;
    let session = Session::start(node.address()).await;
    for ask in [
        session.request(1, "ping", &json!({})),
        session.request(2, "ping", &json!({})).at("/rpc"),
        Ask::new("OPTIONS", "/mcp"),
        Ask::new("OPTIONS", "/mcp").header("Access-Control-Request-Method", "POST"),
        Ask::new("GET", "/healthz"),
        Ask::new("GET", "/nowhere"),
    ] {
        let response = ask.send(node.address()).await;
        assert!(is_plain(&response), "{response:?}");
    }
    // Nor does one that is refused.
    let evil = initialize("2025-11-25").header("Origin", "https://evil.example.com");
    let response = evil.send(node.address()).await;
    assert_eq!(response.status(), 403);
    assert_eq!(response.header("access-control-allow-origin"), None);
}

#[tokio::test]
async fn pages_of_this_machine_may_ask_without_being_listed() {
    let node = demo().await;
    let page = "http://localhost:6274";
    let response = preflight("/mcp", page, "POST", "content-type").send(node.address()).await;
    assert_eq!(response.status(), 204);
    let response = initialize("2025-11-25").header("Origin", page).send(node.address()).await;
    assert!(is_readable(&response, page), "{response:?}");
}

#[tokio::test]
async fn any_origin_is_named_where_any_is_allowed() {
    let node = demo_with(&[("http.allowed_origins", "*")]).await;
    for origin in ["https://any.example", "null"] {
        let response = initialize("2025-11-25").header("Origin", origin).send(node.address()).await;
        assert!(is_readable(&response, origin), "{response:?}");
    }
}
