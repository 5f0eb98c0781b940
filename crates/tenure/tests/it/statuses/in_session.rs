//! What a client inside a session is told: its name, what it does not watch, what it missed, and the cookie of its data
//! session.

use serde_json::{Value, json};

use crate::cli::process::Server;
use crate::support::node::{Steered, announce, demo, demo_with};
use crate::support::session::{Session, initialize};

// A18.05: answers name the session, also those that refuse something.
#[tokio::test]
async fn a18_05_a_refusal_inside_a_session_names_it() {
    let node = demo().await;
    let begun = Session::begin(node.address(), "2025-11-25").await;
    let early = begun.request(1, "tools/list", &json!({})).send(node.address()).await;
    assert_eq!(early.fault(), (200, -32600, "not_initialized".to_owned()));
    assert_eq!(early.header("mcp-session-id"), Some(begun.id.as_str()));
    let session = begun.initialized().await;
    let again = session.request(2, "initialize", &json!({ "protocolVersion": "2025-11-25" }));
    let again = again.send(node.address()).await;
    assert_eq!(again.fault(), (400, -32600, "already_initialized".to_owned()));
    assert_eq!(again.header("mcp-session-id"), Some(session.id.as_str()));
    // One that is over has no name any more.
    assert_eq!(session.delete().send(node.address()).await.status(), 204);
    let over = session.request(3, "ping", &json!({})).send(node.address()).await;
    assert_eq!((over.status(), over.header("mcp-session-id")), (404, None));
}

#[tokio::test]
async fn a11_07_a_resource_that_is_not_watched_cannot_be_unsubscribed_from() {
    let node = demo().await;
    let (ours, theirs) = (Session::start(node.address()).await, Session::start(node.address()).await);
    let uri = json!({ "uri": "demo://visitors" });
    let subscribe = theirs.request(1, "resources/subscribe", &uri).send(node.address()).await;
    assert_eq!(subscribe.json()["result"], json!({}));
    let unsubscribe = ours.request(1, "resources/unsubscribe", &uri).send(node.address()).await;
    assert_eq!(unsubscribe.fault(), (200, -32602, "not_subscribed".to_owned()));
    for expected in [None, Some("not_subscribed")] {
        let unsubscribe = theirs.request(2, "resources/unsubscribe", &uri).send(node.address()).await;
        assert_eq!(unsubscribe.json()["error"]["data"]["reason"].as_str(), expected);
    }
}

// C16: the session goes on, so the answer must not end it for its client.
#[tokio::test]
async fn c16_events_that_are_gone_are_no_reason_to_end_the_session() {
    let settings = [("streams.max_session_events", "2"), ("streams.on_gap", "error")];
    let mut steered = Steered::with(&settings).await;
    let (session, link) = steered.session().await;
    let mut stream = session.listen().await;
    announce(&link, "first").await;
    let (first, _) = stream.message().await.expect("a message");
    for _ in 0..6 {
        announce(&link, "later").await;
        stream.message().await.expect("a message");
    }
    drop(stream);
    let asked = async || session.get().header("Last-Event-ID", &first).send(session.server).await;
    let response = asked().await;
    assert_eq!(response.fault(), (400, -32600, "stream_forgotten".to_owned()));
    assert_eq!(response.header("mcp-session-id"), Some(session.id.as_str()));
    assert_eq!(session.request(9, "ping", &json!({})).send(session.server).await.status(), 200);
}

// A18.31: that a client does not say its revision is noted once for each session, if its revision asks for it.
#[tokio::test]
async fn a18_31_a_missing_version_header_is_noted_once() {
    let server = Server::start(&["--log", "json"]).await;
    for revision in ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"] {
        let session = Session::of_revision(server.address(), revision).await;
        for id in 1..4 {
            let ping = session.request(id, "ping", &json!({})).send(server.address()).await;
            assert_eq!(ping.status(), 200);
        }
    }
    server.signal("TERM").await;
    let (_, _, logs) = server.ended().await;
    let noted = logs.lines().filter(|line| line.contains("sends no MCP-Protocol-Version"));
    let noted: Vec<Value> = noted.map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(noted.len(), 2, "{logs}");
    assert!(noted.iter().all(|line| line["level"] == "WARN"), "{noted:?}");
}

/// Makes a data session in the dialect that came first.
async fn data_session(session: &Session) -> String {
    let made = session.request(50, "session/create", &json!({})).send(session.server).await.json();
    made["result"]["id"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned()
}

// A16.20: every answer brings the cookie back, that to a ping too.
#[tokio::test]
async fn a16_20_a_ping_brings_the_cookie_back() {
    let node = demo().await;
    let session = Session::start(node.address()).await;
    let id = data_session(&session).await;
    let ping = async |cookie: Value| {
        let params = json!({ "_meta": { "mcp/session": cookie } });
        session.request(1, "ping", &params).send(node.address()).await.json()["result"].clone()
    };
    assert_eq!(ping(json!({ "id": id })).await["_meta"]["mcp/session"]["id"], json!(id));
    // One that leads nowhere is taken back.
    assert_eq!(ping(json!({ "id": "sess-0" })).await["_meta"], json!({ "mcp/session": null }));
    assert_eq!(ping(Value::Null).await, json!({}));
    let plain = session.request(2, "ping", &json!({})).send(node.address()).await.json();
    assert_eq!(plain["result"], json!({}));
}

// A2.08: what the capability says can be chosen, and is so.
#[tokio::test]
async fn a2_08_the_capability_has_the_version_and_features_that_are_configured() {
    let settings = [("data_sessions.version", "1"), ("data_sessions.features", "delete, create")];
    let node = demo_with(&settings).await;
    let said = initialize("2025-11-25").send(node.address()).await.json();
    let capability = &said["result"]["capabilities"]["experimental"]["session"];
    assert_eq!((&capability["version"], &capability["features"]), (&json!(1), &json!(["create", "delete"])));
    let session = Session::start(node.address()).await;
    let id = data_session(&session).await;
    let ask = async |method: &str| {
        session.request(1, method, &json!({ "id": id })).send(node.address()).await.json()
    };
    for absent in ["session/resume", "session/list", "session/recover", "session/fork"] {
        assert_eq!(ask(absent).await["error"]["code"], -32601, "{absent}");
    }
    assert_eq!(ask("session/delete").await["result"]["deleted"], true);
}
