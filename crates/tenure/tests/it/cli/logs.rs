//! Logs: one JSON object a line, and never the name of a session.

use std::net::SocketAddr;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;

use super::process::{Server, tenure};
use crate::http2_and_tls::client::{Http2, read_until};
use crate::support::client::{Ask, Connection, connect};
use crate::support::session::{Session, initialize, request};
use crate::support::wait::within;

/// Real traffic of every kind, good and bad, and the secret ids that came up in it.
async fn traffic(server: &Server) -> Vec<String> {
    let address = server.address();
    let session = Session::start(address).await;
    let mut stream = session.listen().await;
    let prime = stream.event().await.unwrap().id.unwrap();
    let subscribe = session.request(1, "resources/subscribe", &json!({ "uri": "demo://notebook" }));
    assert_eq!(subscribe.send(address).await.status(), 200);
    let note = json!({ "workspace_id": session.workspace().await, "text": "note" });
    session.tool(2, "notebook_append", &note).await;
    stream.message().await.unwrap();
    session.resume(&prime).await.message().await.unwrap();
    session.resume("garbage").await.event().await.unwrap();
    session.request(3, "no/such/method", &json!({})).send(address).await;
    session.request(4, "initialize", &json!({ "protocolVersion": "2025-11-25" })).send(address).await;
    session.post_raw("{").send(address).await;
    session.get().header("MCP-Protocol-Version", "v999").send(address).await;
    session.get().header("Origin", "https://evil.example.com").send(address).await;
    session.get().another("Mcp-Session-Id", &session.id).send(address).await;
    session.post_raw(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).send(address).await;
    assert_eq!(session.delete().send(address).await.status(), 204);
    session.get().send(address).await;
    let unknown = "0123456789abcdef0123456789abcdef".to_owned();
    session.get().header("Mcp-Session-Id", &unknown).send(address).await;
    Ask::new("PUT", "/mcp").header("Mcp-Session-Id", &session.id).send(address).await;

    let mut http2 = Http2::over(connect(address).await, &format!("http://{address}")).await;
    http2.start().await;
    http2.post(&request(1, "tools/list", &json!({}))).await;
    let mut listening = http2.get(&[]).await.into_body();
    read_until(&mut listening, "data: \n\n").await;
    vec![session.id, http2.session.clone().unwrap(), unknown]
}

#[tokio::test]
async fn no_session_id_is_in_the_logs_even_at_the_lowest_level() {
    for format in ["json", "pretty"] {
        let server = Server::start(&["--log", format, "--log-level", "trace"]).await;
        let secrets = traffic(&server).await;
        server.signal("TERM").await;
        let (_, _, logs) = server.ended().await;
        assert!(logs.contains("session created"), "{format}: {logs}");
        for secret in secrets {
            let line = logs.lines().find(|line| line.contains(&secret));
            assert_eq!(line, None, "{format}: a session's id was logged");
        }
    }
}

#[tokio::test]
async fn a_host_that_is_refused_is_told_of_once_with_the_flag_that_allows_it() {
    let server = Server::start(&["--log", "json"]).await;
    for _ in 0..3 {
        for (header, value) in [("Host", "mcp.example.com:8484"), ("Origin", "https://app.example.com")] {
            let refused = Ask::new("POST", "/mcp").header(header, value).send(server.address()).await;
            assert_eq!(refused.status(), 403);
        }
    }
    server.signal("TERM").await;
    let (_, _, logs) = server.ended().await;
    let lines = logs.lines().map(|line| serde_json::from_str::<Value>(line).expect(line));
    let told: Vec<_> = lines
        .filter(|line| line["level"] == "WARN")
        .map(|line| format!("{}: {}", line["message"].as_str().unwrap(), line["hint"].as_str().unwrap()))
        .collect();
    assert_eq!(
        told,
        [
            "refused requests to a host that is not allowed: if it is yours, allow it with `--allow-host mcp.example.com`",
            "refused requests from an origin that is not allowed: if it is yours, allow it with `--allow-origin https://app.example.com`",
        ]
    );
}

#[tokio::test]
async fn json_logs_are_one_object_a_line() {
    let server = Server::start(&["--log", "json", "--log-level", "debug"]).await;
    traffic(&server).await;
    let url = server.url.clone();
    server.signal("TERM").await;
    let (_, _, logs) = server.ended().await;
    let lines: Vec<Value> = logs.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    for line in &lines {
        for member in ["timestamp", "level", "message", "target"] {
            assert!(line[member].is_string(), "{member} is missing: {line}");
        }
    }
    let find = |message: &str| {
        lines.iter().find(|line| line["message"] == message).unwrap_or_else(|| panic!("{message}"))
    };
    assert_eq!((&find("listening")["url"], &find("listening")["store"]), (&json!(url), &json!("memory:")));
    assert!(
        find("session created")["session"].as_str().unwrap().starts_with("s-"),
        "a label that is no secret"
    );
    assert_eq!(find("stopping")["signal"], "SIGTERM");
    assert_eq!(find("stopped")["level"], "INFO");
}

#[tokio::test]
async fn nothing_is_an_error_or_a_warning_when_nothing_is_wrong() {
    let server = Server::start(&["--log", "json", "--log-level", "warn"]).await;
    // A revision that knows no MCP-Protocol-Version: with later ones its absence is noted.
    let session = Session::of_revision(server.address(), "2025-03-26").await;
    let stream = session.listen().await;
    session.tool(1, "public_echo", &json!({ "text": "hello" })).await;
    // A client that hangs up in the middle is everyday life.
    drop(stream);
    drop(session.request(2, "tools/list", &json!({})).begin(server.address()).await);
    assert_eq!(session.delete().send(server.address()).await.status(), 204);
    assert_eq!(initialize("2025-11-25").send(server.address()).await.status(), 200);
    server.signal("TERM").await;
    let (status, _, logs) = server.ended().await;
    assert_eq!((status.code(), logs.as_str()), (Some(0), ""));
}

/// Starts a server whose log is not read.
fn unread(level: &str) -> (tokio::process::Child, tokio::process::ChildStderr) {
    let mut command =
        tenure(&["serve", "--listen", "127.0.0.1:0", "--store", "memory:", "--log-level", level]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let log = child.stderr.take().expect("piped");
    (child, log)
}

/// The address of a server.
async fn address(child: &mut tokio::process::Child) -> SocketAddr {
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let url = within("the address", lines.next_line()).await.unwrap().unwrap();
    url.trim_start_matches("http://").trim_end_matches("/mcp").parse().unwrap()
}

/// Sends so many requests that are refused, which makes a line of the log of each.
async fn be_refused(address: SocketAddr, times: usize) {
    const AT_ONCE: usize = 100;
    let bytes = Ask::new("GET", "/mcp").header("Host", "elsewhere.example.com").bytes().repeat(AT_ONCE);
    let mut connection = Connection::open(address).await;
    for _ in 0..times / AT_ONCE {
        connection.write(&bytes).await;
        for _ in 0..AT_ONCE {
            assert_eq!(connection.response().await.status(), 403);
        }
    }
}

#[tokio::test]
async fn an_unread_log_holds_up_no_client_and_says_later_what_it_lacks() {
    let (mut child, mut log) = unread("debug");
    let address = address(&mut child).await;
    // More than a pipe takes, and than waits to be written.
    be_refused(address, 8000).await;
    assert_eq!(Ask::new("GET", "/healthz").send(address).await.status(), 200);
    Session::start(address).await;
    let mut read = String::new();
    let mut piece = vec![0; 1 << 16];
    while !read.contains("lines of the log were dropped, because its reader was too slow") {
        let count = within("more of the log", log.read(&mut piece)).await.unwrap();
        assert!(count > 0, "the log ends without a word of what it lacks");
        read.push_str(&String::from_utf8_lossy(&piece[..count]));
    }
    let sent = Command::new("kill").arg(child.id().unwrap().to_string()).status().await.unwrap();
    assert!(sent.success());
    let rest = async {
        while log.read(&mut piece).await.unwrap() > 0 {}
        child.wait().await.unwrap()
    };
    assert_eq!(within("it ends", rest).await.code(), Some(0));
}

#[tokio::test]
async fn an_unread_log_does_not_hold_up_the_end() {
    let (mut child, log) = unread("debug");
    let address = address(&mut child).await;
    be_refused(address, 1000).await;
    let sent = Command::new("kill").arg(child.id().unwrap().to_string()).status().await.unwrap();
    assert!(sent.success());
    assert_eq!(within("it ends", child.wait()).await.unwrap().code(), Some(0));
    drop(log);
}

#[tokio::test]
// But for the one line about each request, which can be turned off, and is left out if there are too many.
async fn what_clients_do_wrong_fills_no_log() {
    let server = Server::start(&["--log", "json"]).await;
    let session = Session::start(server.address()).await;
    for _ in 0..150 {
        // Breaks off in the middle of a body.
        let bytes = session.request(1, "ping", &json!({})).bytes();
        let mut connection = Connection::open(server.address()).await;
        connection.write(&bytes[..bytes.len() - 5]).await;
        drop(connection);
        session.post_raw("{").send(server.address()).await;
        session.post_raw(r#"{"jsonrpc":"2.0","id":"none","result":{}}"#).send(server.address()).await;
        session.resume("garbage").await;
        session
            .get()
            .header("Mcp-Session-Id", "0123456789abcdef0123456789abcdef")
            .send(server.address())
            .await;
        Ask::new("PUT", "/mcp").send(server.address()).await;
    }
    server.signal("TERM").await;
    let (_, _, logs) = server.ended().await;
    let others = logs.lines().filter(|line| !line.contains("\"target\":\"access\"")).count();
    assert!(others < 20, "{logs}");
}
