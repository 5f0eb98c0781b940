//! Methods, paths and the headers that say what is sent and what is wanted.

use serde_json::json;

use crate::support::client::{Ask, Connection};
use crate::support::node::demo;
use crate::support::session::{Session, initialize, request};

#[tokio::test]
async fn a_content_type_that_is_not_json_is_415() {
    let node = demo().await;
    for wrong in ["text/plain", "application/jsonx", "text/json", "application/x-www-form-urlencoded", ""] {
        let response = initialize("2025-11-25").header("Content-Type", wrong).send(node.address()).await;
        assert_eq!(response.fault(), (415, -32600, "unsupported_media_type".to_owned()), "{wrong}");
    }
    let missing = initialize("2025-11-25").without("Content-Type").send(node.address()).await;
    assert_eq!(missing.status(), 415);
    for right in ["application/json", "Application/JSON", "application/json; charset=utf-8"] {
        let response = initialize("2025-11-25").header("Content-Type", right).send(node.address()).await;
        assert_eq!(response.status(), 200, "{right}");
    }
}

#[tokio::test]
async fn a_post_that_does_not_accept_both_kinds_of_answer_is_406() {
    let node = demo().await;
    for wrong in
        ["application/json", "text/event-stream", "text/html", "", "application/json;q=1, text/plain"]
    {
        let response = initialize("2025-11-25").header("Accept", wrong).send(node.address()).await;
        assert_eq!(response.fault(), (406, -32600, "not_acceptable".to_owned()), "{wrong}");
    }
    assert_eq!(initialize("2025-11-25").without("Accept").send(node.address()).await.status(), 406);
    for right in
        ["*/*", "application/*, text/*", "text/event-stream, application/json", "text/html, */*;q=0.1"]
    {
        let response = initialize("2025-11-25").header("Accept", right).send(node.address()).await;
        assert_eq!(response.status(), 200, "{right}");
    }
    let two =
        initialize("2025-11-25").header("Accept", "application/json").another("Accept", "text/event-stream");
    assert_eq!(two.send(node.address()).await.status(), 200, "in two lines");
}

#[tokio::test]
async fn a_get_that_does_not_accept_a_stream_is_406() {
    let node = demo().await;
    let session = Session::start(node.address()).await;
    for wrong in ["application/json", "text/html", ""] {
        let response = session.get().header("Accept", wrong).send(node.address()).await;
        assert_eq!(response.fault(), (406, -32600, "not_acceptable".to_owned()), "{wrong}");
    }
    for right in ["text/event-stream", "*/*", "text/*", "application/json, text/event-stream"] {
        session.get().header("Accept", right).open(node.address()).await;
    }
}

#[tokio::test]
async fn other_methods_are_405_and_say_which_are_allowed() {
    let node = demo().await;
    let session = Session::start(node.address()).await;
    for method in ["PUT", "PATCH", "OPTIONS", "TRACE", "BREW"] {
        let ask = Ask::new(method, "/mcp").header("Mcp-Session-Id", &session.id);
        let response = ask.send(node.address()).await;
        assert_eq!(
            (response.status(), response.header("allow")),
            (405, Some("GET, POST, DELETE")),
            "{method}"
        );
        assert_eq!(response.fault().2, "method_not_allowed");
    }
    // HEAD is answered without the body that its Content-Length tells of.
    let mut connection = Ask::new("HEAD", "/mcp").header("Connection", "close").begin(node.address()).await;
    let head = connection.head().await;
    assert_eq!((head.status, head.header("allow")), (405, Some("GET, POST, DELETE")));
    assert_eq!(connection.until_closed().await, b"");
}

#[tokio::test]
async fn an_unknown_path_is_404_in_plain_text() {
    let node = demo().await;
    for path in ["/", "/mcp/", "/mcp/sse", "/rpc", "/favicon.ico", "/healthz/", "//mcp", "/%6Dcp"] {
        for method in ["GET", "POST"] {
            let response = Ask::new(method, path).send(node.address()).await;
            assert_eq!(response.status(), 404, "{method} {path}");
            assert_eq!(response.header("content-type"), Some("text/plain; charset=utf-8"));
            assert_eq!(response.text(), "not found; the MCP endpoint is /mcp\n");
        }
    }
    let query = Ask::post(request(1, "ping", &json!({})).to_string());
    let query = String::from_utf8(query.bytes()).unwrap().replace("/mcp", "/mcp?x=1");
    let mut connection = Connection::open(node.address()).await;
    connection.write(query.as_bytes()).await;
    assert_eq!(connection.response().await.fault().2, "session_required", "a query changes nothing");
}

#[tokio::test]
async fn health_and_readiness_are_plain_words() {
    let node = demo().await;
    for (path, word) in [("/healthz", "ok\n"), ("/readyz", "ready\n")] {
        let response = Ask::new("GET", path).send(node.address()).await;
        assert_eq!((response.status(), response.text().as_str()), (200, word));
        assert_eq!(response.header("content-type"), Some("text/plain; charset=utf-8"));
        let response = Ask::new("POST", path).send(node.address()).await;
        assert_eq!((response.status(), response.header("allow")), (405, Some("GET, HEAD")));
    }
    let mut connection =
        Ask::new("HEAD", "/healthz").header("Connection", "close").begin(node.address()).await;
    assert_eq!(connection.head().await.status, 200);
    assert_eq!(connection.until_closed().await, b"");
    // Probes come with whatever name the scheduler knows the machine by.
    let probe = Ask::new("GET", "/healthz").header("Host", "10.0.0.7:8484");
    assert_eq!(probe.send(node.address()).await.status(), 200);
    node.sessions().drain();
    let response = Ask::new("GET", "/readyz").send(node.address()).await;
    assert_eq!((response.status(), response.text().as_str()), (503, "draining\n"));
    assert_eq!(Ask::new("GET", "/healthz").send(node.address()).await.status(), 200);
    assert_eq!(initialize("2025-11-25").send(node.address()).await.fault().2, "draining");
}

#[tokio::test]
async fn a_session_id_that_is_not_one_of_ours_is_404() {
    let node = demo().await;
    let session = Session::start(node.address()).await;
    let other = Session::start(node.address()).await;
    let long = "a".repeat(4096);
    let upper = session.id.to_uppercase();
    for id in [
        "",
        "x",
        "00000000000000000000000000000000",
        &session.id[..31],
        &format!("{}0", session.id),
        &long,
        &upper,
        "ünbekannt",
    ] {
        if id == session.id {
            continue;
        }
        for ask in [session.request(1, "ping", &json!({})), session.get(), session.delete()] {
            let response = ask.header("Mcp-Session-Id", id).send(node.address()).await;
            assert_eq!(response.fault(), (404, -32001, "session_not_found".to_owned()), "{id}");
        }
    }
    for ask in [session.request(1, "ping", &json!({})), session.get(), session.delete()] {
        let response = ask.another("Mcp-Session-Id", &other.id).send(node.address()).await;
        assert_eq!(response.fault(), (404, -32001, "session_not_found".to_owned()), "two names at once");
    }
    for alive in [session, other] {
        assert_eq!(alive.request(1, "ping", &json!({})).send(node.address()).await.status(), 200);
    }
}

#[tokio::test]
async fn header_names_are_read_in_any_case() {
    let node = demo().await;
    let session = Session::start(node.address()).await;
    for name in ["mcp-session-id", "MCP-SESSION-ID", "Mcp-Session-ID"] {
        let ask = Ask::post(request(1, "ping", &json!({})).to_string()).header(name, &session.id);
        assert_eq!(ask.send(node.address()).await.status(), 200, "{name}");
    }
    let padded = Ask::post(request(1, "ping", &json!({})).to_string())
        .header("Mcp-Session-Id", &format!(" {} ", session.id));
    assert_eq!(padded.send(node.address()).await.status(), 200, "spaces around a value do not count");
}
