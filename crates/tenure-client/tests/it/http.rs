//! Tests of a server at a URL: raw HTTP, one request per connection.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use parking_lot::Mutex;
use rmcp::model::CallToolRequestParams;
use serde_json::{Value, json};
use tenure_client::{
    ClientErrorKind, ConnectedClient, Dialect, HttpOptions, Jar, SessionOptions, connect_http,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

const SEP: &str = "io.modelcontextprotocol/session";

/// A request as the server received it.
#[derive(Clone, Debug)]
struct Seen {
    head: String,
    body: Value,
}

impl Seen {
    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    fn is(&self, method: &str) -> bool {
        self.body["method"] == method
    }
}

struct Server {
    listener: TcpListener,
    url: String,
    seen: Mutex<Vec<Seen>>,
}

impl Server {
    async fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        Arc::new(Self { listener, url, seen: Mutex::default() })
    }

    /// Answers requests until the client's future is done, and returns its output.
    async fn during<T>(&self, answer: impl Fn(&Seen) -> String, client: impl Future<Output = T>) -> T {
        tokio::pin!(client);
        loop {
            tokio::select! {
                done = &mut client => return done,
                connection = self.listener.accept() => self.answer(connection.unwrap().0, &answer).await,
            }
        }
    }

    async fn answer(&self, mut connection: TcpStream, answer: &impl Fn(&Seen) -> String) {
        let seen = read(&mut connection).await;
        let text = answer(&seen);
        self.seen.lock().push(seen);
        connection.write_all(text.as_bytes()).await.unwrap();
    }

    fn of(&self, method: &str) -> Vec<Seen> {
        self.seen.lock().iter().filter(|seen| seen.is(method)).cloned().collect()
    }
}

async fn read(connection: &mut TcpStream) -> Seen {
    let mut bytes = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let count = connection.read(&mut piece).await.unwrap();
        bytes.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let mut seen = Seen { head: head.to_owned(), body: Value::Null };
            let length: usize = seen.header("content-length").map_or(0, |length| length.parse().unwrap());
            if body.len() >= length {
                seen.body = serde_json::from_str(body).unwrap_or_default();
                return seen;
            }
        }
        assert_ne!(count, 0, "the request is cut off");
    }
}

fn response(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}")
}

fn json_response(seen: &Seen, result: &Value) -> String {
    let body = json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": result}).to_string();
    response("200 OK", "content-type: application/json\r\nmcp-session-id: transport-1\r\n", &body)
}

fn initialize_result() -> Value {
    json!({"protocolVersion": "2025-11-25", "capabilities": {"sessions": {}},
        "serverInfo": {"name": "behind-http", "version": "1"}})
}

/// A server of the later draft.
fn plain(seen: &Seen) -> String {
    if seen.head.starts_with("GET") {
        return response("405 Method Not Allowed", "", "");
    }
    if seen.head.starts_with("DELETE") {
        return response("204 No Content", "", "");
    }
    match seen.body["method"].as_str() {
        Some("initialize") => json_response(seen, &initialize_result()),
        Some("sessions/create") => json_response(seen, &json!({"session": {"sessionId": "sess-1"}})),
        Some("tools/call") => json_response(
            seen,
            &json!({"content": [], "structuredContent": seen.body["params"]["_meta"][SEP]}),
        ),
        _ => response("202 Accepted", "", ""),
    }
}

async fn look(client: &ConnectedClient) -> Value {
    client.call_tool(CallToolRequestParams::new("look")).await.unwrap().structured_content.unwrap_or_default()
}

#[tokio::test]
async fn a_session_outlives_the_connection() {
    let server = Server::start().await;
    let jar = Jar::in_memory();
    let mut http = HttpOptions::default();
    http.bearer = Some("token-1".to_owned());
    http.headers.insert("x-colour".parse().unwrap(), "red".parse().unwrap());
    for _ in 0..2 {
        let seen = server
            .during(plain, async {
                let client =
                    connect_http(&server.url, http.clone(), SessionOptions::new(jar.clone())).await.unwrap();
                assert_eq!(client.sessions().dialect(), Some(Dialect::Draft));
                let seen = look(&client).await;
                client.close().await.unwrap();
                seen
            })
            .await;
        assert_eq!(seen, json!({"sessionId": "sess-1"}));
    }
    assert_eq!(server.of("initialize").len(), 2, "once per connection");
    assert_eq!(server.of("sessions/create").len(), 1, "once at all");
    for seen in server.seen.lock().iter() {
        assert_eq!(seen.header("authorization"), Some("Bearer token-1"), "{}", seen.head);
        assert_eq!(seen.header("x-colour"), Some("red"));
    }
}

#[tokio::test]
async fn a_handshake_that_is_answered_with_events_is_seen_as_well() {
    let server = Server::start().await;
    let events = |seen: &Seen| {
        if !seen.is("initialize") {
            return plain(seen);
        }
        let answer = json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": initialize_result()});
        let body = format!(": hello\n\nid: 1\ndata: \n\nid: 2\ndata: {answer}\n\n");
        response("200 OK", "content-type: text/event-stream\r\nmcp-session-id: transport-1\r\n", &body)
    };
    let seen = server
        .during(events, async {
            let client =
                connect_http(&server.url, HttpOptions::default(), SessionOptions::new(Jar::in_memory()))
                    .await
                    .unwrap();
            look(&client).await
        })
        .await;
    assert_eq!(seen, json!({"sessionId": "sess-1"}));
    assert_eq!(server.of("tools/call")[0].header("mcp-session-id"), Some("transport-1"));
}

#[tokio::test]
async fn a_refused_handshake_is_told_in_rmcps_words() {
    let server = Server::start().await;
    let refuse = |_: &Seen| response("401 Unauthorized", "www-authenticate: Bearer realm=\"x\"\r\n", "");
    let error = server
        .during(
            refuse,
            connect_http(&server.url, HttpOptions::default(), SessionOptions::new(Jar::in_memory())),
        )
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ClientErrorKind::Closed);
    let cause = std::error::Error::source(&error).unwrap();
    let cause = cause.downcast_ref::<rmcp::service::ClientInitializeError>().unwrap();
    assert!(cause.is_authorization_required(), "{cause}");
}

#[tokio::test]
async fn an_address_without_a_listener_is_reported() {
    // The listener is dropped at once, so that the port is closed.
    let url = Server::start().await.url.clone();
    let error =
        connect_http(&url, HttpOptions::default(), SessionOptions::new(Jar::in_memory())).await.unwrap_err();
    let root = error.root().downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    assert_eq!(root, Some(std::io::ErrorKind::ConnectionRefused), "{}", error.root());
}

#[tokio::test]
async fn tokens_do_not_follow_a_redirect_to_another_server() {
    let elsewhere = Server::start().await;
    let server = Server::start().await;
    let location = format!("location: {}\r\n", elsewhere.url);
    let redirect = |_: &Seen| response("307 Temporary Redirect", &location, "");
    let visits = AtomicUsize::new(0);
    let count = |seen: &Seen| {
        visits.fetch_add(1, Ordering::Relaxed);
        plain(seen)
    };
    let connecting = connect_http(&server.url, HttpOptions::default(), SessionOptions::new(Jar::in_memory()));
    let error = elsewhere.during(count, server.during(redirect, connecting)).await.unwrap_err();
    assert_eq!(error.kind(), ClientErrorKind::Closed);
    assert_eq!(visits.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_redirect_within_the_server_is_followed() {
    let server = Server::start().await;
    let redirect = |seen: &Seen| {
        if seen.head.starts_with("POST /mcp ") || seen.head.starts_with("DELETE /mcp ") {
            response("308 Permanent Redirect", "location: /moved\r\n", "")
        } else {
            plain(seen)
        }
    };
    let seen = server
        .during(redirect, async {
            let client =
                connect_http(&server.url, HttpOptions::default(), SessionOptions::new(Jar::in_memory()))
                    .await
                    .unwrap();
            look(&client).await
        })
        .await;
    assert_eq!(seen, json!({"sessionId": "sess-1"}));
}

#[test]
fn debug_shows_neither_token_nor_headers() {
    let mut http = HttpOptions::default();
    http.bearer = Some("geheim".to_owned());
    http.headers.insert("x-key".parse().unwrap(), "geheim".parse().unwrap());
    assert!(!format!("{http:?}").contains("geheim"));
}

#[cfg(not(feature = "tls"))]
#[tokio::test]
async fn without_tls_an_https_url_says_what_is_missing() {
    let error = connect_http(
        "https://localhost:1/mcp",
        HttpOptions::default(),
        SessionOptions::new(Jar::in_memory()),
    )
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ClientErrorKind::Invalid);
    assert_eq!(error.to_string(), "`https:` needs the feature `tls`, which this build has not");
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn with_tls_an_https_url_is_tried() {
    let server = Server::start().await;
    let url = server.url.replace("http:", "https:");
    // The test has no certificate; it only checks that the server receives a TLS handshake.
    let connecting = connect_http(&url, HttpOptions::default(), SessionOptions::new(Jar::in_memory()));
    let hello = async {
        let (mut connection, _) = server.listener.accept().await.unwrap();
        let mut first = [0];
        connection.read_exact(&mut first).await.unwrap();
        first[0]
    };
    let (connected, first) = tokio::join!(connecting, hello);
    assert_eq!(first, 0x16, "a TLS record");
    assert_eq!(connected.unwrap_err().kind(), ClientErrorKind::Closed);
}
