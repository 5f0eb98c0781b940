//! The servers behind: their tools, calls that an operator tries, restarts; and the log of the process.

use serde_json::{Value, json};

use super::world::{AsValue, order};
use crate::cli::process::Server;
use crate::operator::place::{Place, stop};
use crate::support::client::{Ask, Connection};
use crate::support::session::Session;
use crate::support::wait::within;

/// A gateway in front of our own demo as a program.
async fn gateway(place: &Place, settings: &[&str]) -> Server {
    let own = ["--set", "streams.json_wait=1h", "--set", "metrics.collect=true"];
    let behind = ["--", env!("CARGO_BIN_EXE_tenure"), "stdio"];
    place.serve_with(&[&own[..], settings, &behind].concat()).await
}

async fn at_socket(place: &Place, ask: Ask) -> (u16, Value) {
    let stream = tokio::net::UnixStream::connect(place.store().join("control.sock"));
    let stream = within("connect", stream).await.unwrap();
    let mut connection = Connection::over(stream);
    connection.write(&ask.bytes()).await;
    let response = connection.response().await;
    (response.status(), response.value())
}

async fn read(place: &Place, path: &str) -> Value {
    let (status, body) = at_socket(place, Ask::new("GET", &format!("/api/v1/{path}"))).await;
    assert_eq!(status, 200, "{path}: {body}");
    body
}

async fn change(place: &Place, path: &str, body: &Value) -> (u16, Value) {
    at_socket(place, order("POST", path, body)).await
}

#[tokio::test]
async fn a_server_is_shown_with_its_tools_and_started_again() {
    let place = Place::new();
    let server = gateway(&place, &["--set", "child.warm=0"]).await;
    let session = Session::start(server.address()).await;
    let first = session.tool(1, "public_echo", &json!({ "text": "one" })).await;
    assert_eq!(first.json()["result"]["content"][0]["text"], "one");
    let rows = read(&place, "backends").await;
    let row = &rows["rows"][0];
    assert_eq!((&row["name"], &row["kind"], &row["up"]), (&json!("main"), &json!("child"), &json!(true)));
    let starts = row["starts"].as_u64().unwrap();
    let detail = read(&place, "backends/main").await;
    let tools = detail["tools"].as_array().unwrap();
    let echo = tools.iter().find(|tool| tool["name"] == "public_echo").unwrap();
    assert_eq!(echo["inputSchema"]["type"], "object");

    let (status, body) =
        change(&place, "backends/nothing/restart", &json!({ "reason": "new version" })).await;
    assert_eq!((status, &body["reason"]), (404, &json!("not_found")));
    let (status, body) = change(&place, "backends/main/restart", &json!({ "reason": "new version" })).await;
    assert_eq!((status, body), (200, json!({ "restarting": true })));
    // The session goes on, soon with another process. A call that meets the old one while it ends may be refused by it.
    for id in 2.. {
        let again = session.tool(id, "public_echo", &json!({ "text": "two" })).await;
        let (answer, is_new) =
            (again.json(), read(&place, "backends").await["rows"][0]["starts"].as_u64().unwrap() > starts);
        let is_refused = answer["error"]["data"]["reason"] == "draining" && !is_new;
        assert!(is_refused || answer["result"]["content"][0]["text"] == "two", "{answer}");
        if is_new && !is_refused {
            break;
        }
    }
    stop(server).await;
}

#[tokio::test]
async fn a_tool_can_be_tried_where_that_is_allowed() {
    let place = Place::new();
    let server = place.serve().await;
    let body =
        json!({ "tool": "public_echo", "arguments": { "text": "hello" }, "reason": "does it answer?" });
    let (status, answer) = change(&place, "try", &body).await;
    assert_eq!((status, &answer["reason"]), (422, &json!("not_supported")));
    stop(server).await;

    let server = place.serve_with(&["--set", "admin.try=true"]).await;
    let (status, answer) = change(&place, "try", &body).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["result"]["content"][0]["text"], "hello");
    let unknown = json!({ "tool": "nothing", "reason": "does it answer?" });
    let (status, answer) = change(&place, "try", &unknown).await;
    assert!(status == 422 || answer["result"]["isError"] == true, "{status} {answer}");
    let elsewhere = json!({ "backend": "nothing", "tool": "public_echo", "reason": "does it answer?" });
    assert_eq!(change(&place, "try", &elsewhere).await.0, 404);
    stop(server).await;
}

#[tokio::test]
async fn what_is_logged_is_changed_for_a_while() {
    let place = Place::new();
    let server = place.serve_with(&["--log-level", "warn"]).await;
    assert_eq!(read(&place, "log").await, json!({ "level": "warn" }));
    for wrong in [
        json!({ "level": "tenure=loud", "for_s": 60, "reason": "looking" }),
        json!({ "level": "debug", "for_s": 0, "reason": "looking" }),
        json!({ "level": "debug", "for_s": 86400, "reason": "looking" }),
    ] {
        let (status, _) = change(&place, "log", &wrong).await;
        assert!(matches!(status, 400 | 422), "{wrong}");
    }
    let order = json!({ "level": "tenure_session=debug", "for_s": 1, "reason": "looking" });
    let (status, answer) = change(&place, "log", &order).await;
    assert_eq!((status, &answer["level"]), (200, &json!("tenure_session=debug")));
    Session::start(server.address()).await;
    // It says itself when it is over.
    while read(&place, "log").await != json!({ "level": "warn" }) {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    Session::start(server.address()).await;
    server.signal("TERM").await;
    let (status, _, logs) = server.ended().await;
    assert_eq!(status.code(), Some(0));
    assert_eq!(logs.matches("session created").count(), 1, "{logs}");
}

#[tokio::test]
async fn figures_are_there_for_charts_and_for_other_tools() {
    let place = Place::new();
    let server = place.serve().await;
    let session = Session::start(server.address()).await;
    session.tool(1, "public_echo", &json!({ "text": "one" })).await;
    let recent = read(&place, "calls/recent").await;
    let call = recent["rows"].as_array().unwrap().iter().find(|row| row["tool"] == "public_echo").unwrap();
    assert_eq!((&call["outcome"], &call["method"]), (&json!("result"), &json!("tools/call")));
    let key = call["session"].as_str().unwrap();
    let detail = read(&place, &format!("sessions/{key}")).await;
    assert_eq!((&detail["figures"]["tool_calls"], &detail["last_tool"]), (&json!(1), &json!("public_echo")));
    assert_eq!(detail["timeline"][0]["what"], "created");
    let history = read(&place, "history?span=24h").await;
    assert_eq!(history["step_ms"], 10_000);
    assert!(history["series"]["calls"].is_array(), "{history}");
    assert!(read(&place, "calls/slowest").await["rows"].is_array());
    session.delete().send(server.address()).await;
    let ended = read(&place, "sessions/ended").await;
    assert_eq!((&ended["rows"][0]["key"], &ended["rows"][0]["end"]), (&json!(key), &json!("deleted")));
    let stream = tokio::net::UnixStream::connect(place.store().join("control.sock")).await.unwrap();
    let mut connection = Connection::over(stream);
    connection.write(&Ask::new("GET", "/api/v1/metrics").bytes()).await;
    let metrics = connection.response().await.text();
    assert!(metrics.contains("tenure_sessions_created_total 1"), "{metrics}");
    stop(server).await;
}

#[tokio::test]
async fn a_look_at_the_hints_of_a_client_is_recorded() {
    let place = Place::new();
    let log = place.beside("audit.jsonl");
    let server = place.serve_with(&["--set", &format!("audit.file={}", log.display())]).await;
    let session = Session::start(server.address()).await;
    let hints = json!({ "hints": { "label": "review", "data": { "title": "Review" } } });
    session.request(1, "session/create", &hints).send(server.address()).await;
    let rows = read(&place, "data").await;
    let (key, name) = (rows["rows"][0]["key"].as_str().unwrap(), rows["rows"][0]["name"].clone());
    assert_eq!(read(&place, &format!("data/{key}")).await["hints"]["title"], "Review");
    stop(server).await;
    let text = std::fs::read_to_string(log).unwrap();
    let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let looks: Vec<_> = records.filter(|record| record["event"] == "admin_action").collect();
    assert_eq!(looks.len(), 1, "{looks:?}");
    assert_eq!((&looks[0]["method"], &looks[0]["name"]), (&json!("data.contents"), &name));
}

#[tokio::test]
async fn a_server_with_very_many_tools_is_shown_with_as_many_as_a_page_can_use() {
    let (backend, mut script) = tenure_testkit::fake_backend::FakeBackend::new();
    let folder = tempfile::tempdir().unwrap();
    let store = format!("disk:{}", folder.path().join("store").display());
    let node =
        tenure::Node::with_backend(&super::world::in_memory(&[("store", &store)]), backend).await.unwrap();
    let asked = async || {
        let stream = tokio::net::UnixStream::connect(folder.path().join("store/control.sock")).await.unwrap();
        let mut connection = Connection::over(stream);
        connection.write(&Ask::new("GET", "/api/v1/backends/main").bytes()).await;
        connection.response().await.value()
    };
    let tools: Vec<_> = (0..1500).map(|n| json!({ "name": format!("t-{n}"), "inputSchema": {} })).collect();
    let answered = async {
        let call = script.call().await;
        call.answer(&json!({ "tools": tools, "nextCursor": "more" }));
    };
    let (shown, ()) = tokio::join!(asked(), answered);
    assert_eq!(
        (shown["tools"].as_array().unwrap().len(), &shown["tools_cut"]),
        (1000, &json!(true)),
        "{}",
        shown["tools_error"]
    );
    // A page that stays open, or several, ask the server once.
    let (one, other) = within("from what was listed", async { tokio::join!(asked(), asked()) }).await;
    assert_eq!((one["tools"].as_array().unwrap().len(), &other["tools_cut"]), (1000, &json!(true)));
    node.stop().await;
}
