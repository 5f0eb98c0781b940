//! Calls without a session whose connection breaks with the gateway: their clients come back with an event id.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::json;

use crate::gateway::crashing::rest;
use crate::gateway::running::Gateway;
use crate::support::client::Ask;
use crate::support::events::{Events, SseItem};

const MODERN: &str = "2026-07-28";

/// A call that has begun and goes on when the gate is there.
async fn begin(to: SocketAddr, id: u64, tool: &str, gate: &Path) -> Events {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "progressToken": id,
    });
    let params = json!({ "name": tool, "arguments": { "steps": 3, "gate": gate }, "_meta": meta });
    let message = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
    let ask = Ask::post(message.to_string()).header("MCP-Protocol-Version", MODERN);
    let mut stream = ask.header("Mcp-Method", "tools/call").header("Mcp-Name", tool).open(to).await;
    assert_eq!(stream.message().await.unwrap().1["params"]["progress"], 1);
    stream
}

fn coming_back(id: &str) -> Ask {
    Ask::get()
        .header("Accept", "text/event-stream")
        .header("MCP-Protocol-Version", MODERN)
        .header("Last-Event-ID", id)
}

async fn come_back(to: SocketAddr, id: &str) -> Events {
    let mut stream = coming_back(id).open(to).await;
    loop {
        if let Some(SseItem::Event(event)) = stream.next().await {
            assert_eq!(event.id.as_deref(), Some(id), "it can come back once more");
            assert_eq!(event.data.as_deref(), Some(""), "and no message");
            return stream;
        }
    }
}

#[tokio::test]
async fn calls_go_on_or_say_interrupted_after_a_kill() {
    let mut gateway = Gateway::start(&[]).await;
    let gate = gateway.folder.path().join("gate");
    let is_safe = begin(gateway.address, 1, "slow_safe", &gate).await;
    let is_not = begin(gateway.address, 2, "slow", &gate).await;
    let ids = [is_safe.last_id(), is_not.last_id()];
    gateway.kill().await;
    drop((is_safe, is_not));
    gateway.start_again().await;
    std::fs::write(&gate, "").unwrap();
    assert_eq!(rest(&mut come_back(gateway.address, &ids[1]).await).await, ["error 2 interrupted"]);
    assert_eq!(rest(&mut come_back(gateway.address, &ids[0]).await).await, ["1", "2", "3", "result 1"]);
    // The answer is there once more, should this connection have been lost too.
    assert_eq!(rest(&mut come_back(gateway.address, &ids[0]).await).await, ["result 1"]);
}

#[tokio::test]
async fn a_stop_without_a_next_process_leaves_safe_calls_to_come_back_for() {
    let mut gateway = Gateway::start(&["shutdown.retry=7s", "streams.retry_jitter=0%"]).await;
    let gate = gateway.folder.path().join("gate");
    let mut stream = begin(gateway.address, 1, "slow_safe", &gate).await;
    let id = stream.last_id();
    gateway.terminate().await;
    assert_eq!(stream.items().await, ["retry 7000"], "no answer, and a word when to come back");
    assert!(stream.is_complete());
    assert!(gateway.ended().await.success());
    gateway.start_again().await;
    std::fs::write(&gate, "").unwrap();
    assert_eq!(rest(&mut come_back(gateway.address, &id).await).await, ["1", "2", "3", "result 1"]);
}

#[tokio::test]
async fn a_client_that_comes_back_with_anything_else_is_told_what_it_gets() {
    let gateway = Gateway::start(&[]).await;
    let gate = gateway.folder.path().join("gate");
    let mut stream = begin(gateway.address, 1, "slow_safe", &gate).await;
    let id = stream.last_id();
    // An id that no record is left of: the request is named in it, so that its client need not wait for nothing.
    let lost = id.replacen(&id[5..37], &"0".repeat(32), 1);
    assert_eq!(rest(&mut come_back(gateway.address, &lost).await).await, ["error 1 interrupted"]);
    let ask = |id: &str| coming_back(id).send(gateway.address);
    let json_only = coming_back(&id).header("Accept", "application/json").send(gateway.address).await;
    let refused = [ask("7").await, ask("call-7").await, ask(&id[..id.len() - 1]).await, json_only];
    for response in refused {
        assert_eq!((response.status(), response.header("allow")), (405, Some("POST")), "{}", response.text());
    }
    // None of that took the call away from its client.
    std::fs::write(&gate, "").unwrap();
    assert_eq!(rest(&mut stream).await, ["2", "3", "result 1"]);
}
