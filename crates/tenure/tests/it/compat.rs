//! `compat = "sources"`: the wire examples of the two designs that Tenure began with, replayed as they were printed.
//!
//! S3 is the design of an HTTP transport, S2 that of the resumption of streams. Their examples leave out `Host` and
//! `Content-Length`, and write `abc123` and `session_…` for the name of a session; nothing else is changed here.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tenure_protocol::{Method, RawJson};

use crate::support::client::{Ask, Connection, Response};
use crate::support::events::Events;
use crate::support::node::{Steered, announce, demo, demo_with};
use crate::support::session::Session;

const SOURCES: &[(&str, &str)] = &[("compat", "sources")];

/// S3, v1.6.5: a request at `/rpc`, and the same at `/sse`.
const RPC: &str = r#"POST /rpc HTTP/1.1
Content-Type: application/json

{
  "jsonrpc": "2.0",
  "method": "tools/list",
  "id": 1
}
"#;
const POST_SSE: &str = r#"POST /sse HTTP/1.1
Content-Type: application/json

{
  "jsonrpc": "2.0",
  "method": "tools/list",
  "id": 1
}
"#;

/// S3, v1.7.0: a request at `/mcp`, and a stream that is resumed.
const MCP: &str = r#"POST /mcp HTTP/1.1
Content-Type: application/json
MCP-Protocol-Version: 2025-11-25
MCP-Session-Id: abc123

{
  "jsonrpc": "2.0",
  "method": "tools/list",
  "id": 1
}
"#;
const RESUMED: &str = "GET /mcp HTTP/1.1
Accept: text/event-stream
MCP-Protocol-Version: 2025-11-25
MCP-Session-Id: abc123
Last-Event-ID: 42

";
const EVENTS: &str = r#"id: 43
event: message
data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{}}

id: 44
event: message
data: {"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":{}}

"#;

/// S2, the last event of a stream.
const CLOSE: &str = r#"event: close
data: {"status":"closed"}
retry: 5000

"#;

/// The bytes of an example, with what its printing left out.
fn bytes(example: &str, session: &str) -> Vec<u8> {
    let (head, body) = example.split_once("\n\n").expect("a head");
    let head = head.replace("abc123", session).replace('\n', "\r\n");
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    format!("{head}\r\nHost: localhost\r\n{length}\r\n{body}").into_bytes()
}

async fn sent(example: &str, session: &str, to: SocketAddr) -> Connection {
    let mut connection = Connection::open(to).await;
    connection.write(&bytes(example, session)).await;
    connection
}

async fn replayed(example: &str, session: &str, to: SocketAddr) -> Response {
    sent(example, session, to).await.response().await
}

fn is_list_of_tools(answer: &Value) -> bool {
    answer["id"] == 1 && answer["result"]["tools"].as_array().is_some_and(|tools| !tools.is_empty())
}

// A18.06: `/rpc` is asked by clients that know no sessions.
#[tokio::test]
async fn a18_06_a_request_at_rpc_is_answered_without_a_session() {
    let node = demo_with(SOURCES).await;
    let response = replayed(RPC, "", node.address()).await;
    assert_eq!((response.status(), response.header("content-type")), (200, Some("application/json")));
    assert!(is_list_of_tools(&response.json()), "{response:?}");
    // It leaves no session behind.
    let tallies = node.sessions().tallies();
    assert_eq!((tallies.created, tallies.sessions), (1, 0));
}

// A18.06: POST `/sse` answers with one event and the word that this was all.
#[tokio::test]
async fn a18_06_a_request_at_sse_is_answered_with_one_event_and_done() {
    let node = demo_with(SOURCES).await;
    let response = replayed(POST_SSE, "", node.address()).await;
    assert_eq!((response.status(), response.header("content-type")), (200, Some("text/event-stream")));
    let text = response.text();
    let data =
        text.strip_prefix("data: ").and_then(|text| text.strip_suffix("\n\nevent: done\ndata: {}\n\n"));
    let answer = data.and_then(|data| serde_json::from_str(data).ok());
    assert!(is_list_of_tools(&answer.unwrap_or_else(|| panic!("{text:?}"))));
    assert_eq!(node.sessions().tallies().sessions, 0);
}

// A19.06: `initialize` needs no params. A18.05: every answer names the session. C06: nor `notifications/initialized`.
#[tokio::test]
async fn a19_06_an_initialize_without_params_opens_a_session() {
    let node = demo_with(SOURCES).await;
    let ask = Ask::post(r#"{"jsonrpc":"2.0","method":"initialize","id":1}"#)
        .without("Accept")
        .header("MCP-Protocol-Version", "2025-11-25");
    let response = ask.send(node.address()).await;
    assert_eq!((response.status(), response.header("content-type")), (200, Some("application/json")));
    assert_eq!(response.json()["result"]["protocolVersion"], "2025-11-25");
    let session = Session::of(node.address(), "/mcp", &response);
    let listed = replayed(MCP, &session.id, node.address()).await;
    assert_eq!((listed.status(), listed.header("mcp-session-id")), (200, Some(session.id.as_str())));
    assert!(is_list_of_tools(&listed.json()));
}

// A18.10, C06: any request without a session opens one, and its answer names it.
#[tokio::test]
async fn a18_10_a_request_without_a_session_opens_one_and_is_told_its_name() {
    let node = demo_with(SOURCES).await;
    let first = Ask::post(r#"{"jsonrpc":"2.0","method":"tools/list","id":1}"#).without("Accept");
    let response = first.send(node.address()).await;
    assert!(response.status() == 200 && is_list_of_tools(&response.json()), "{response:?}");
    let session = Session::of(node.address(), "/mcp", &response);
    assert!(is_list_of_tools(&replayed(MCP, &session.id, node.address()).await.json()));
    assert_eq!(node.sessions().tallies().created, 1);
}

// C09, A18.11: an error about a session that is not there says which one was meant.
#[tokio::test]
async fn c09_a_session_that_is_not_there_is_named_in_the_error() {
    let node = demo_with(SOURCES).await;
    let response = replayed(MCP, "nonexistent-session", node.address()).await;
    assert_eq!(response.fault(), (404, -32001, "session_not_found".to_owned()));
    let error = &response.json()["error"];
    assert_eq!(error["message"], "Session not found or expired");
    assert_eq!(error["data"]["sessionId"], "nonexistent-session");
}

/// Reads a stream until so many bytes of it, without comments and the first event that has no data.
async fn after_opening(mut events: Events, wanted: usize) -> (String, Events) {
    loop {
        let raw = events.raw();
        let blocks = raw.split_inclusive("\n\n").filter(|block| {
            block.ends_with("\n\n") && !block.starts_with(':') && !block.contains("data: \n")
        });
        let text: String = blocks.collect();
        if text.len() >= wanted || events.next().await.is_none() {
            return (text, events);
        }
    }
}

// C38, A19.08: events of the standalone stream are numbered, and a number is enough to resume after one.
#[tokio::test]
async fn c38_a_stream_is_resumed_after_a_number() {
    let mut steered = Steered::with(SOURCES).await;
    let (session, link) = steered.session().await;
    let listening = session.listen().await;
    for _ in 0..42 {
        announce(&link, "before").await;
    }
    for method in [Method::ToolsListChanged, Method::PromptsListChanged] {
        link.outlet.notify(&method, Some(&RawJson::of(&json!({})))).await.expect("the session lives");
    }
    let (all, listening) = after_opening(listening, EVENTS.len() * 10).await;
    assert!(all.starts_with("id: 1\n"), "{all}");
    drop(listening);
    let resumed = sent(RESUMED, &session.id, steered.address()).await.events().await;
    assert_eq!(resumed.header("mcp-session-id"), Some(session.id.as_str()));
    let (text, _) = after_opening(resumed, EVENTS.len()).await;
    assert_eq!(text, EVENTS);
}

// A17.01 to A17.05: GET `/mcp/sse` names no session. Events name it, and the last of them is enough to come back.
#[tokio::test]
async fn a17_03_a_client_of_mcp_sse_comes_back_by_the_last_event_alone() {
    let mut steered = Steered::with(SOURCES).await;
    let events = sent("GET /mcp/sse HTTP/1.1\n\n", "", steered.address()).await.events().await;
    let session = events.header("mcp-session-id").expect("a session").to_owned();
    let link = steered.script.opened().await;
    let (mut events, mut came) = (Some(events), 0);
    // Three cycles: connect, get some events, disconnect, and miss some.
    for cycle in 0..3 {
        for _ in 0..2 {
            announce(&link, &format!("{cycle}")).await;
        }
        let mut open = events.take().expect("a stream");
        for _ in 0..2 {
            let event = open.event().await.expect("an event");
            let event = if event.data.as_deref() == Some("") { open.event().await.unwrap() } else { event };
            came += 1;
            assert_eq!(event.id, Some(format!("{session}_{came}")));
            assert_eq!(event.event.as_deref(), Some("message"));
        }
        drop(open);
        for _ in 0..3 {
            announce(&link, "missed").await;
        }
        let back = format!("GET /mcp/sse HTTP/1.1\nLast-Event-ID: {session}_{came}\n\n");
        let mut back = sent(&back, "", steered.address()).await.events().await;
        for _ in 0..3 {
            came += 1;
            let event = back.event().await.expect("what was missed");
            // C26: with their ids, so that a cut in a replay can be resumed too.
            assert_eq!(event.id, Some(format!("{session}_{came}")));
        }
        events = Some(back);
    }
    assert_eq!(steered.node.sessions().tallies().created, 1);
}

// A17.09, C29: the server says that it closes a stream, and when to come back.
#[tokio::test]
async fn a17_09_a_stream_that_the_server_closes_ends_with_close() {
    // The tests' own settings would come first.
    let mut steered = Steered::with(&[("compat", "sources"), ("shutdown.grace", "0s")]).await;
    let (session, _link) = steered.session().await;
    let events = session.listen().await;
    let Steered { node, .. } = steered;
    let stopping = tokio::spawn(async move { node.stop().await });
    let (text, _) = after_opening(events, CLOSE.len()).await;
    assert_eq!(text, CLOSE);
    drop(stopping);
}

// Off, all of it is refused as MCP has it.
#[tokio::test]
async fn without_the_switch_nothing_is_forgiven() {
    let node = demo().await;
    for example in [RPC, POST_SSE] {
        assert_eq!(replayed(example, "", node.address()).await.status(), 404);
    }
    let initialize = r#"{"jsonrpc":"2.0","method":"initialize","id":1}"#;
    assert_eq!(Ask::post(initialize).send(node.address()).await.status(), 400);
    let list = Ask::post(r#"{"jsonrpc":"2.0","method":"tools/list","id":1}"#);
    assert_eq!(list.clone().without("Accept").send(node.address()).await.status(), 406);
    assert_eq!(list.send(node.address()).await.fault(), (400, -32602, "session_required".to_owned()));
    let unknown = Ask::post(r#"{"jsonrpc":"2.0","method":"tools/list","id":1}"#);
    let unknown = unknown.header("Mcp-Session-Id", "nonexistent").send(node.address()).await;
    assert_eq!(unknown.json()["error"]["data"].get("sessionId"), None);
    let doors =
        demo_with(&[("doors.rpc", "true"), ("doors.post_sse", "true"), ("doors.mcp_sse", "true")]).await;
    for example in [RPC, POST_SSE] {
        let response = replayed(example, "", doors.address()).await;
        assert_eq!(response.fault(), (400, -32602, "session_required".to_owned()));
    }
    let stream = Ask::get().at("/mcp/sse").send(doors.address()).await;
    assert_eq!(stream.fault(), (400, -32602, "session_required".to_owned()));
}
