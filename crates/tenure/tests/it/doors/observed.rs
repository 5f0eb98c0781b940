//! What the access log says of the doors: each request of HTTP, and each request in a session that a door carries.

use serde_json::json;

use super::support::{OldClient, Socket, tool_call};
use crate::cli::access::{lines, log_of};
use crate::cli::process::Server;
use crate::support::client::Ask;
use crate::support::session::{initialize_params, notification, request};

#[tokio::test]
async fn requests_at_every_door_leave_their_lines() {
    let doors = ["sse", "rpc", "post_sse", "websocket"].map(|door| ["--door", door]).concat();
    let server = Server::start(&[&["--log", "json", "--set", "compat=sources"], &doors[..]].concat()).await;
    let address = server.address();
    let call = request(7, "tools/call", &json!({ "name": "public_echo", "arguments": { "text": "x" } }));
    for path in ["/rpc", "/sse"] {
        assert_eq!(Ask::post(call.to_string()).at(path).send(address).await.status(), 200, "{path}");
    }
    let mut old = OldClient::start(address).await;
    old.send(&tool_call(1, "public_echo", &json!({ "text": "x" }))).await;
    while old.events.message().await.is_some_and(|(_, message)| message["id"] != 1) {}
    drop(old);
    let mut socket = Socket::start(address).await;
    socket.send(&tool_call(2, "no_such_tool", &json!({}))).await;
    socket.next().await;
    drop(socket);
    let mut socket = Socket::open(address, &[("sec-websocket-protocol", "mcp")]).await;
    socket.send(&request(0, "initialize", &initialize_params("2025-03-26"))).await;
    socket.next().await;
    socket.send(&notification("notifications/initialized")).await;
    let echo = tool_call(2, "public_echo", &json!({ "text": "x" }));
    socket.send(&json!([echo, tool_call(3, "no_such_tool", &json!({}))])).await;
    socket.next().await;
    socket.next().await;
    drop(socket);
    let log = log_of(server).await;
    let mut seen = lines(&log, &["via", "http", "path", "status", "name", "outcome"]);
    // The connection and the requests that it carries end independently of each other.
    seen.sort();
    seen.dedup();
    assert_eq!(
        seen,
        [
            "http GET /sse 200 - -",
            "http GET /ws 101 - -",
            "http POST /messages 202 - -",
            "http POST /rpc 200 public_echo ok",
            "http POST /sse 200 public_echo ok",
            "sse - - - - ok",
            "sse - - - public_echo ok",
            "websocket - - - - ok",
            "websocket - - - no_such_tool error",
            "websocket - - - public_echo ok",
        ]
    );
}
