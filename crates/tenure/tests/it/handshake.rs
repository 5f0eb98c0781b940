//! From `initialize` to the first request: versions, the session id, the order of things, and ids.

use serde_json::{Value, json};
use tenure_testkit::fake_backend::{BackendEvent, Opens};

use crate::support::client::{Ask, Response};
use crate::support::node::{Steered, demo, demo_with, say};
use crate::support::session::{Session, initialize, initialize_params, notification, request};
use crate::support::wait::until;

fn is_session_id(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn revision(response: &Response) -> Value {
    response.json()["result"]["protocolVersion"].clone()
}

#[tokio::test]
async fn initialize_answers_json_with_a_session_id_of_32_hex_digits() {
    let node = demo().await;
    let response = initialize("2025-11-25").send(node.address()).await;
    assert_eq!(response.status(), 200);
    assert!(is_session_id(response.header("mcp-session-id").unwrap()));
    let message = response.json();
    assert_eq!(message["id"], 0);
    assert_eq!(message["result"]["protocolVersion"], "2025-11-25");
    assert_eq!(message["result"]["serverInfo"]["name"], "tenure-demo");
    assert!(message["result"]["capabilities"]["tools"].is_object());
}

#[tokio::test]
async fn every_initialize_makes_a_session_of_its_own() {
    let node = demo().await;
    let mut ids = std::collections::HashSet::new();
    for _ in 0..20 {
        let response = initialize("2025-11-25").send(node.address()).await;
        assert!(ids.insert(response.header("mcp-session-id").unwrap().to_owned()));
    }
    assert_eq!(node.sessions().tallies().sessions, 20);
}

#[tokio::test]
async fn any_legacy_version_header_on_initialize_is_tolerated() {
    let node = demo().await;
    for header in ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05", "1999-01-01", "nonsense", ""] {
        let ask = initialize("2025-11-25").header("MCP-Protocol-Version", header);
        let response = ask.send(node.address()).await;
        assert_eq!((response.status(), revision(&response)), (200, json!("2025-11-25")), "{header}");
    }
}

#[tokio::test]
async fn an_unknown_version_is_answered_with_our_latest() {
    let node = demo().await;
    for unknown in ["2099-01-01", "2026-07-28", "2025-11-26", "1.0", ""] {
        let response = initialize(unknown).send(node.address()).await;
        assert_eq!((response.status(), revision(&response)), (200, json!("2025-11-25")), "{unknown}");
    }
}

#[tokio::test]
async fn every_older_revision_is_kept_as_asked() {
    let node = demo().await;
    for known in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let response = initialize(known).send(node.address()).await;
        assert_eq!((response.status(), revision(&response)), (200, json!(known)));
    }
}

#[tokio::test]
async fn a_session_id_comes_only_with_an_initialize_that_succeeded() {
    let steered = Steered::start().await;
    for opens in [Opens::Refuses, Opens::Panics, Opens::Nonsense] {
        steered.backend.set_opens(opens);
        let response = initialize("2025-11-25").send(steered.address()).await;
        // The server behind refused, not HTTP: clients read the error in the body.
        assert_eq!(response.status(), 200, "{opens:?}");
        assert_eq!(response.header("mcp-session-id"), None, "{opens:?}");
        assert!(response.json()["error"]["message"].is_string(), "{opens:?}");
    }
    assert_eq!(steered.node.sessions().tallies().sessions, 0, "what failed takes no seat");
}

#[tokio::test]
async fn a_backend_that_never_answers_initialize_is_given_up_on() {
    let steered = Steered::with(&[("timeouts.initialize", "50ms")]).await;
    steered.backend.set_opens(Opens::Hangs);
    let response = initialize("2025-11-25").send(steered.address()).await;
    assert_eq!(response.json()["error"]["data"]["reason"], "timed_out");
    assert_eq!(response.header("mcp-session-id"), None);
    assert_eq!(steered.node.sessions().tallies().sessions, 0);
}

#[tokio::test]
async fn a_client_that_leaves_during_initialize_leaves_nothing_behind() {
    let steered = Steered::start().await;
    steered.backend.set_opens(Opens::Hangs);
    let connection = initialize("2025-11-25").begin(steered.address()).await;
    let held = || steered.node.sessions().tallies().sessions;
    until("initialize has begun", || held() == 1).await;
    drop(connection);
    until("its seat is free", || held() == 0).await;
    assert_eq!(steered.node.sessions().tallies().created, 0);
}

#[tokio::test]
async fn initialize_without_a_version_is_refused() {
    let node = demo().await;
    for params in [None, Some(json!({})), Some(json!({ "protocolVersion": 3 }))] {
        let mut message = json!({ "jsonrpc": "2.0", "id": 7, "method": "initialize" });
        if let Some(params) = &params {
            message["params"] = params.clone();
        }
        let response = Ask::post(message.to_string()).send(node.address()).await;
        assert_eq!(response.fault(), (400, -32602, "invalid_params".to_owned()), "{params:?}");
        assert_eq!(response.json()["id"], 7);
        assert_eq!(response.header("mcp-session-id"), None);
    }
}

#[tokio::test]
async fn initialize_inside_a_live_session_is_refused() {
    let node = demo().await;
    let session = Session::start(node.address()).await;
    let again = request(5, "initialize", &initialize_params("2025-11-25"));
    let response = session.post(&again).send(node.address()).await;
    assert_eq!(response.fault(), (400, -32600, "already_initialized".to_owned()));
    assert_eq!(
        session.tool(6, "public_echo", &json!({ "text": "x" })).await.status(),
        200,
        "the session lives on"
    );
    // Nor does it bring an unknown one to life.
    let unknown = initialize("2025-11-25").header("Mcp-Session-Id", &"0".repeat(32));
    assert_eq!(unknown.send(node.address()).await.fault(), (404, -32001, "session_not_found".to_owned()));
    assert_eq!(node.sessions().tallies().created, 1);
}

#[tokio::test]
async fn a_request_without_a_session_id_is_refused_and_mints_none() {
    let node = demo().await;
    for method in ["tools/list", "ping", "no/such/method"] {
        let response = Ask::post(request(9, method, &json!({})).to_string()).send(node.address()).await;
        assert_eq!(response.fault(), (400, -32602, "session_required".to_owned()), "{method}");
        assert_eq!(response.json()["id"], 9);
        assert_eq!(response.header("mcp-session-id"), None);
    }
    assert_eq!(node.sessions().tallies().created, 0);
}

#[tokio::test]
async fn a_notification_is_answered_202_without_a_body() {
    let node = demo().await;
    let session = Session::begin(node.address(), "2025-11-25").await;
    for method in ["notifications/initialized", "notifications/initialized", "notifications/made/up"] {
        let response = session.post(&notification(method)).send(node.address()).await;
        assert_eq!((response.status(), response.body.len()), (202, 0), "{method}");
        assert_eq!(response.header("content-length"), Some("0"));
        assert_eq!(response.header("content-type"), None);
    }
    let response =
        Ask::post(notification("notifications/initialized").to_string()).send(node.address()).await;
    assert_eq!(response.fault(), (400, -32602, "session_required".to_owned()));
}

#[tokio::test]
async fn ping_is_answered_before_the_handshake_is_complete_and_without_the_backend() {
    let mut steered = Steered::start().await;
    let session = Session::begin(steered.address(), "2025-11-25").await;
    for _ in 0..2 {
        let response =
            session.post_raw(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).send(session.server).await;
        assert_eq!(
            (response.status(), response.text()),
            (200, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned())
        );
        session.post(&notification("notifications/initialized")).send(session.server).await;
    }
    steered.script.opened().await;
    for _ in 0..2 {
        assert!(matches!(steered.script.next().await, BackendEvent::Heard(_)), "the backend hears no ping");
    }
}

#[tokio::test]
async fn a_request_before_initialized_is_refused_in_band() {
    let node = demo().await;
    let session = Session::begin(node.address(), "2025-11-25").await;
    let list = session.request(3, "tools/list", &json!({}));
    let early = list.clone().send(node.address()).await;
    // Inside a working session an error is an answer; any 4xx could make a client drop the session.
    assert_eq!(early.fault(), (200, -32600, "not_initialized".to_owned()));
    assert_eq!(early.json()["id"], 3);
    session.post(&notification("notifications/initialized")).send(node.address()).await;
    let late = list.send(node.address()).await;
    assert_eq!(late.json()["result"]["tools"][0]["name"], "public_echo");
}

#[tokio::test]
async fn a_lenient_server_does_not_wait_for_initialized() {
    let node = demo_with(&[("session.require_initialized", "false")]).await;
    let session = Session::begin(node.address(), "2025-06-18").await;
    let response = session.request(3, "tools/list", &json!({})).send(node.address()).await;
    assert!(response.json()["result"]["tools"].is_array());
}

#[tokio::test]
async fn an_unknown_method_is_an_error_in_the_body_and_not_of_http() {
    let node = demo().await;
    let session = Session::start(node.address()).await;
    let response = session.request(4, "no/such/method", &json!({})).send(node.address()).await;
    assert_eq!(response.fault(), (200, -32601, "method_not_found".to_owned()));
    assert_eq!(response.json()["id"], 4);
}

/// Ids that a parser might change: too big for any integer, escaped, empty, negative.
const IDS: [&str; 9] = [
    "0",
    "-5",
    "9007199254740993",
    "123456789012345678901234567890",
    r#""""#,
    r#""plain""#,
    r#""\u0061\n\"\\\/""#,
    r#""ümläut 🦀""#,
    r#""\ud83e\udd80""#,
];

#[tokio::test]
async fn ids_come_back_byte_for_byte() {
    let node = demo().await;
    let session = Session::start(node.address()).await;
    for id in IDS {
        for (method, ours) in
            [("ping", true), ("tools/list", true), ("no/such/method", true), ("tools/list", false)]
        {
            let body = format!(r#"{{"method":"{method}","id":{id},"jsonrpc":"2.0"}}"#);
            let ask = if ours { session.post_raw(&body) } else { Ask::post(&body) };
            let text = ask.send(node.address()).await.text();
            assert!(
                text.starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{id},"#)),
                "{body} was answered {text}"
            );
        }
    }
}

#[tokio::test]
async fn ids_come_back_byte_for_byte_on_a_stream() {
    let mut steered = Steered::start().await;
    let (session, _link) = steered.session().await;
    for id in IDS {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{}}}}"#);
        let connection = session.post_raw(&body).begin(session.server).await;
        let call = steered.script.call().await;
        say(&call, "hello").await;
        call.answer(&json!({}));
        let mut events = connection.events().await;
        assert_eq!(events.rest().await.len(), 2);
        let answer = format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n\n");
        assert!(events.raw().ends_with(&answer), "{id}: {}", events.raw());
    }
}

#[tokio::test]
async fn an_id_that_is_neither_string_nor_integer_is_refused() {
    let node = demo().await;
    let session = Session::start(node.address()).await;
    for id in ["null", "1.5", "1e3", "true", "{}", "[1]"] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#);
        let response = session.post_raw(&body).send(node.address()).await;
        assert_eq!(response.fault(), (400, -32600, "invalid_request".to_owned()), "{id}");
        assert_eq!(response.json().get("id"), None, "{id}");
    }
}
