//! Too much of anything: body, headers.

use serde_json::json;

use crate::support::client::{Ask, Connection};
use crate::support::node::{demo, demo_with};
use crate::support::session::{Session, initialize, request};

/// A request whose body has exactly this many bytes.
fn ping_of(bytes: usize) -> String {
    let fixed = request(1, "ping", &json!({ "x": "" })).to_string().len();
    request(1, "ping", &json!({ "x": "a".repeat(bytes - fixed) })).to_string()
}

#[tokio::test]
async fn a_body_that_declares_more_than_the_limit_is_413_before_it_is_sent() {
    let node = demo_with(&[("http.max_body", "1KiB")]).await;
    let session = Session::start(node.address()).await;
    assert_eq!(session.post_raw(ping_of(1024)).send(node.address()).await.status(), 200, "exactly the limit");
    let bytes = session.post_raw(ping_of(1025)).bytes();
    let mut connection = Connection::open(node.address()).await;
    connection.write(&bytes[..bytes.len() - 1025]).await;
    let response = connection.response().await;
    assert_eq!(response.fault(), (413, -32600, "body_too_large".to_owned()));
    assert_eq!(response.json()["error"]["data"]["limit"], 1024);
}

#[tokio::test]
async fn a_body_in_chunks_is_413_when_it_grows_beyond_the_limit() {
    let node = demo_with(&[("http.max_body", "1KiB")]).await;
    let session = Session::start(node.address()).await;
    let chunked = async |size: usize| {
        let body = ping_of(size);
        let head = String::from_utf8(session.post_raw("").bytes()).unwrap();
        let head = head.replace("Content-Length: 0", "Transfer-Encoding: chunked");
        let mut connection = Connection::open(node.address()).await;
        connection.write(head.as_bytes()).await;
        for piece in body.as_bytes().chunks(100) {
            connection.write(format!("{:x}\r\n", piece.len()).as_bytes()).await;
            connection.write(piece).await;
            connection.write(b"\r\n").await;
        }
        connection.write(b"0\r\n\r\n").await;
        connection.response().await
    };
    assert_eq!(chunked(1024).await.status(), 200, "exactly the limit");
    assert_eq!(chunked(1025).await.fault(), (413, -32600, "body_too_large".to_owned()));
    assert_eq!(chunked(300).await.status(), 200, "the server lives");
}

#[tokio::test]
async fn a_client_that_asks_first_is_told_to_go_on_or_refused_at_once() {
    let node = demo_with(&[("http.max_body", "1KiB")]).await;
    let session = Session::start(node.address()).await;
    let asking = async |size: usize| {
        let body = ping_of(size);
        let bytes = session.post_raw(&body).header("Expect", "100-continue").bytes();
        let mut connection = Connection::open(node.address()).await;
        connection.write(&bytes[..bytes.len() - size]).await;
        let head = connection.head().await;
        (connection, head.status, body)
    };
    let (mut connection, status, body) = asking(1024).await;
    assert_eq!(status, 100);
    connection.write(body.as_bytes()).await;
    assert_eq!(connection.response().await.status(), 200);
    assert_eq!(asking(1025).await.1, 413);
}

#[tokio::test]
async fn headers_beyond_the_limit_are_431_and_the_server_lives() {
    let node = demo_with(&[("http.max_header", "8KiB")]).await;
    for (name, size) in [("X-Large", 9 << 10), ("X-Huge", 1 << 20)] {
        let mut connection = Connection::open(node.address()).await;
        let bytes = Ask::new("GET", "/healthz").header(name, &"a".repeat(size)).bytes();
        // The server may stop reading before all is written.
        connection.write(&bytes[..bytes.len().min(16 << 10)]).await;
        assert_eq!(connection.head().await.status, 431, "{name}");
        assert_eq!(Ask::new("GET", "/healthz").send(node.address()).await.status(), 200);
    }
    let many = (0..1000).fold(Ask::new("GET", "/healthz"), |ask, n| ask.header(&format!("X-{n}"), "y"));
    let mut connection = Connection::open(node.address()).await;
    connection.write(&many.bytes()).await;
    assert_eq!(connection.head().await.status, 431);
    assert_eq!(initialize("2025-11-25").send(node.address()).await.status(), 200);
}

#[tokio::test]
async fn bytes_that_are_not_http_are_400_and_the_server_lives() {
    let node = demo().await;
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"hello world\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
    ] {
        let mut connection = Connection::open(node.address()).await;
        connection.write(garbage).await;
        let answer = String::from_utf8_lossy(&connection.until_closed().await).into_owned();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
    assert_eq!(Ask::new("GET", "/healthz").send(node.address()).await.status(), 200);
}

#[tokio::test]
async fn a_connection_serves_one_request_after_another() {
    let node = demo().await;
    let session = Session::start(node.address()).await;
    let mut connection = Connection::open(node.address()).await;
    for id in 1..=50 {
        connection.write(&session.request(id, "tools/list", &json!({})).bytes()).await;
        let response = connection.response().await;
        assert_eq!((response.status(), &response.json()["id"]), (200, &json!(id)));
    }
    // Also when they come all at once.
    let pipelined: Vec<u8> =
        (1..=20).flat_map(|id| session.request(id, "ping", &json!({})).bytes()).collect();
    connection.write(&pipelined).await;
    for id in 1..=20 {
        assert_eq!(connection.response().await.json()["id"], id);
    }
}
