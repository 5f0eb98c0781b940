//! The access log: one line for each request, when its answer has ended.

use serde_json::{Value, json};
use tokio::net::UnixStream;

use super::process::Server;
use crate::operator::place::Place;
use crate::stdio::process::Process;
use crate::support::client::{Ask, Connection};
use crate::support::modern;
use crate::support::session::{Session, request};

/// The lines about requests in a log, as short texts of these members.
pub(crate) fn lines(log: &str, members: &[&str]) -> Vec<String> {
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).expect(line));
    let shown = |line: &Value, name: &str| match &line[name] {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    lines
        .filter(|line| line["target"] == "access")
        .map(|line| members.iter().map(|name| shown(&line, name)).collect::<Vec<_>>().join(" "))
        .collect()
}

/// Stops a server and reads its log.
pub(crate) async fn log_of(server: Server) -> String {
    server.signal("TERM").await;
    server.ended().await.2
}

#[tokio::test]
async fn every_request_leaves_a_line_with_what_became_of_it() {
    let server = Server::start(&["--log", "json"]).await;
    let address = server.address();
    let session = Session::start(address).await;
    session.tool(1, "public_echo", &json!({ "text": "hello" })).await;
    session.tool(2, "no_such_tool", &json!({})).await;
    session.request(3, "resources/read", &json!({ "uri": "demo://about" })).send(address).await;
    session.request(4, "no/such/method", &json!({})).send(address).await;
    session.post_raw("{").send(address).await;
    assert_eq!(session.delete().send(address).await.status(), 204);
    session.get().send(address).await;
    Ask::new("PUT", "/mcp").send(address).await;
    Ask::new("GET", "/nowhere").send(address).await;
    Ask::new("GET", "/healthz").send(address).await;
    Ask::post("{}").header("Origin", "https://evil.example.com").send(address).await;
    modern::ask(5, "tools/call", &json!({ "name": "public_echo", "arguments": { "text": "x" } }))
        .send(address)
        .await;
    let log = log_of(server).await;
    let seen =
        lines(&log, &["http", "path", "status", "method", "name", "outcome", "code", "reason", "client"]);
    assert_eq!(
        seen,
        [
            "POST /mcp 200 initialize - ok - - it",
            "POST /mcp 202 notifications/initialized - - - - it",
            "POST /mcp 200 tools/call public_echo ok - - it",
            "POST /mcp 200 tools/call no_such_tool error -32602 invalid_params it",
            "POST /mcp 200 resources/read demo://about ok - - it",
            "POST /mcp 200 no/such/method - error -32601 method_not_found it",
            "POST /mcp 400 - - error -32700 parse_error -",
            "DELETE /mcp 204 - - - - - -",
            "GET /mcp 404 - - error -32001 session_deleted -",
            "PUT /mcp 405 - - error -32600 method_not_allowed -",
            "GET /nowhere 404 - - - - - -",
            "POST /mcp 403 - - error -32600 origin_not_allowed -",
            "POST /mcp 200 tools/call public_echo ok - - -",
        ]
    );
    let of_session = lines(&log, &["session", "cut", "via"]);
    let label = of_session[0].split(' ').next().unwrap();
    assert!(label.starts_with("s-") && !log.contains(&session.id), "{of_session:?}");
    for place in (0..=5).chain([7]) {
        assert_eq!(of_session[place], format!("{label} - http"), "{place}");
    }
    for line in lines(&log, &["in", "out", "ms", "remote", "id"]) {
        let values: Vec<_> = line.split(' ').collect();
        assert!(values[..2].iter().all(|value| value.parse::<u64>().is_ok()), "{line}");
        assert!(values[2].parse::<f64>().is_ok() && values[3].starts_with("127.0.0.1:"), "{line}");
        assert_eq!(values[4].len(), 16, "an id was made: {line}");
    }
    let bytes = lines(&log, &["method", "in", "out"]);
    assert!(bytes.iter().any(|line| line.starts_with("tools/call ") && !line.contains(" 0")), "{bytes:?}");
}

#[tokio::test]
async fn a_stream_leaves_its_line_when_it_ends() {
    let server = Server::start(&["--log", "json"]).await;
    let address = server.address();
    let session = Session::start(address).await;
    let stream = session.listen().await;
    // Progress makes a stream of it.
    let params = json!({ "name": "long_task", "arguments": { "seconds": 2, "interval_ms": 10 },
        "_meta": { "progressToken": 1 } });
    let mut call = session.request(1, "tools/call", &params).begin(address).await.events().await;
    while call.message().await.is_some_and(|(_, message)| message["id"] != 1) {}
    drop(call);
    drop(stream);
    // Another request, after which the server has noticed that the first two are over.
    assert_eq!(session.delete().send(address).await.status(), 204);
    let log = log_of(server).await;
    let mut seen = lines(&log, &["http", "status", "name", "outcome"]);
    seen.retain(|line| !line.starts_with("DELETE") && !line.ends_with("- -") || line.starts_with("GET"));
    seen.sort();
    assert_eq!(seen, ["GET 200 - -", "POST 200 - ok", "POST 200 long_task ok"]);
    let times = lines(&log, &["name", "ms"]);
    let call = times.iter().find_map(|line| line.strip_prefix("long_task ")).unwrap();
    assert!(call.parse::<f64>().unwrap() >= 10.0, "the time to the end of the stream: {call}");
}

#[tokio::test]
async fn requests_over_stdio_leave_a_line_each() {
    let mut process = Process::open(&["--log", "json"]).await;
    process.call(2, "public_echo", &json!({ "text": "hello" })).await;
    process.message().await;
    process.request(3, "no/such/method", &json!({})).await;
    process.message().await;
    let request = json!({ "jsonrpc": "2.0", "id": 4, "method": "tools/call",
        "params": modern::with_meta(&json!({ "name": "public_echo", "arguments": { "text": "x" } })) });
    process.send(&request).await;
    process.message().await;
    process.close_input();
    let log = process.ended().await.logs;
    let seen = lines(&log, &["via", "http", "method", "name", "outcome", "code", "client"]);
    let client = seen[0].rsplit(' ').next().unwrap().to_owned();
    assert_eq!(
        seen,
        [
            format!("stdio - initialize - ok - {client}"),
            format!("stdio - tools/call public_echo ok - {client}"),
            format!("stdio - no/such/method - error -32601 {client}"),
            "stdio - tools/call public_echo ok - -".to_owned(),
        ]
    );
    assert!(client != "-", "{seen:?}");
}

#[tokio::test]
async fn a_refusal_in_the_words_of_a_tool_is_no_failure_of_the_tool() {
    let limits = ["--set", "limits.tools=public_echo = 1/min", "--set", "limits.max_wait=0s"];
    let answer = ["--set", "limits.answer=tool_result"];
    let server = Server::start(&[&["--log", "json"], &limits[..], &answer].concat()).await;
    let session = Session::start(server.address()).await;
    for id in 1..3 {
        let said = session.tool(id, "public_echo", &json!({ "text": "hello" })).await.json();
        assert_eq!(said["result"]["isError"] == true, id == 2, "{said}");
    }
    let params = json!({ "name": "public_echo", "arguments": { "text": "x" } });
    modern::ask(3, "tools/call", &params).send(server.address()).await;
    let log = log_of(server).await;
    let mut seen = lines(&log, &["name", "outcome", "code", "reason"]);
    seen.retain(|line| line.starts_with("public_echo"));
    let limited = "public_echo limited - rate_limited";
    assert_eq!(seen, ["public_echo ok - -", limited, limited]);
}

#[tokio::test]
async fn each_request_of_a_batch_over_stdio_leaves_a_line() {
    let mut process = Process::start(&["--log", "json"]);
    let batch = |last: serde_json::Value| {
        json!([
            request(1, "ping", &json!({})),
            { "jsonrpc": "2.0", "method": "notifications/roots/list_changed" },
            request(2, "tools/call", &json!({ "name": "public_echo", "arguments": { "text": "two" } })),
            last,
        ])
    };
    let good = batch(request(3, "tools/call", &json!({ "name": "no_such_tool", "arguments": {} })));
    process.send(&good).await;
    process.message().await;
    process.shake_hands_as("2025-03-26").await;
    process.send(&good).await;
    for _ in 0..3 {
        process.message().await;
    }
    process.send(&batch(json!(17))).await;
    process.message().await;
    process.close_input();
    let log = process.ended().await.logs;
    let mut seen = lines(&log, &["method", "name", "outcome", "reason", "batch"]);
    seen.retain(|line| !line.ends_with(" -"));
    seen.sort();
    assert_eq!(
        seen,
        [
            "- - error batch_not_allowed 4",
            "- - error invalid_request 4",
            "ping - ok - 4",
            "tools/call no_such_tool error invalid_params 4",
            "tools/call public_echo ok - 4",
        ]
    );
    let mut whole = lines(&log, &["batch", "id", "method"]);
    whole.retain(|line| line.starts_with("4 ") && !line.ends_with(" -"));
    let ids: std::collections::HashSet<_> = whole.iter().map(|line| line.split(' ').nth(1)).collect();
    assert_eq!((whole.len(), ids.len()), (3, 1), "one id for a batch: {whole:?}");
}

#[tokio::test]
async fn lines_about_requests_are_left_out_where_they_are_not_wanted() {
    for arguments in
        [["--set", "log.access=false"], ["--log-level", "warn"], ["--log-level", "info,access=off"]]
    {
        let server = Server::start(&[&["--log", "json"], &arguments[..]].concat()).await;
        Session::start(server.address()).await;
        let log = log_of(server).await;
        assert_eq!(lines(&log, &["path"]), [""; 0], "{arguments:?}");
    }
}

#[tokio::test]
async fn lines_about_requests_follow_the_level_that_an_operator_sets() {
    let place = Place::new();
    let server = place.serve_with(&["--log", "json"]).await;
    let session = Session::start(server.address()).await;
    let ping = async |id| session.request(id, "ping", &json!({})).send(server.address()).await;
    let set = async |level: &str| {
        let body = json!({ "level": level, "for_s": 600, "reason": "a test" }).to_string();
        let ask = Ask::post(body).at("/api/v1/log").without("Accept");
        let stream = UnixStream::connect(place.store().join("control.sock")).await.unwrap();
        let mut connection = Connection::over(stream);
        connection.write(&ask.bytes()).await;
        assert_eq!(connection.response().await.status(), 200);
    };
    ping(1).await;
    for level in ["warn", "info,access=off"] {
        set(level).await;
        ping(2).await;
    }
    set("debug").await;
    ping(3).await;
    let log = log_of(server).await;
    assert_eq!(lines(&log, &["method"]).iter().filter(|method| *method == "ping").count(), 2, "{log}");
}

#[tokio::test]
async fn more_requests_than_lines_of_one_kind_may_have_are_all_there() {
    let server = Server::start(&["--log", "json"]).await;
    let session = Session::start(server.address()).await;
    for id in 0..300 {
        let ping = session.request(id, "ping", &json!({})).send(server.address()).await;
        assert_eq!(ping.status(), 200);
    }
    let log = log_of(server).await;
    assert_eq!(lines(&log, &["method"]).iter().filter(|method| *method == "ping").count(), 300);
}

#[tokio::test]
async fn a_line_for_people_can_be_searched_by_key_and_value() {
    let server = Server::start(&["--log", "pretty"]).await;
    let session = Session::start(server.address()).await;
    session.tool(1, "public_echo", &json!({ "text": "secret words" })).await;
    let log = log_of(server).await;
    let line = log.lines().find(|line| line.contains("method=tools/call")).expect("a line");
    for part in [" INFO access: via=http http=POST path=/mcp status=200 ", " name=public_echo outcome=ok ms="]
    {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(!log.contains("secret words"), "no arguments");
}

#[tokio::test]
async fn behind_a_listed_proxy_the_address_is_that_of_the_client() {
    for (proxies, expected) in [("127.0.0.0/8", "203.0.113.7"), ("10.0.0.0/8", "127.0.0.1")] {
        let setting = format!("http.trusted_proxies={proxies}");
        let server = Server::start(&["--log", "json", "--set", &setting]).await;
        let ask = Ask::get().at("/nowhere").header("X-Forwarded-For", "198.51.100.1, 203.0.113.7");
        ask.send(server.address()).await;
        let log = log_of(server).await;
        let remote = lines(&log, &["remote"]).remove(0);
        assert_eq!(remote.split(':').next().unwrap(), expected, "{proxies}");
    }
}

#[tokio::test]
async fn an_id_of_the_client_is_taken_if_it_is_harmless() {
    let server = Server::start(&["--log", "json"]).await;
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let parent = format!("00-{trace}-b7ad6b7169203331-01");
    for (name, value) in
        [("X-Request-Id", "f3c1-77"), ("X-Request-Id", "a b"), ("Traceparent", parent.as_str())]
    {
        Ask::get().at("/nowhere").header(name, value).send(server.address()).await;
    }
    let log = log_of(server).await;
    let ids = lines(&log, &["id", "trace"]);
    assert_eq!((&*ids[0], &*ids[2]), ("f3c1-77 -", &*format!("{trace} {trace}")));
    assert!(ids[1].len() == 18 && !ids[1].contains("a b"), "{ids:?}");
}
