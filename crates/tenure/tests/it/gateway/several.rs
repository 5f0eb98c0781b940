//! Several servers behind one process: each at its own endpoint, and all as one.

use serde_json::{Value, json};

use crate::gateway::crashing::{begin, rest};
use crate::gateway::family::signal;
use crate::gateway::running::{Gateway, echo};
use crate::support::client::Ask;
use crate::support::session::{Session, initialize};
use crate::support::wait::within;

/// Three servers: two of the example, and the demo without a prefix.
fn three() -> String {
    let (echo, tenure) = (echo(), env!("CARGO_BIN_EXE_tenure"));
    format!(
        r#"
        [[backend]]
        name = "one"
        command = ["{echo}"]
        [[backend]]
        name = "two"
        prefix = "Second"
        command = ["{echo}"]
        [[backend]]
        name = "demo"
        prefix = ""
        command = ["{tenure}", "stdio", "--store", "memory:", "--log-level", "warn"]
        "#
    )
}

async fn ask(session: &Session, id: u64, method: &str, params: Value) -> Value {
    session.request(id, method, &params).send(session.server).await.json()
}

/// The process behind a tool of the example server.
async fn pid(session: &Session, id: u64, tool: &str) -> u32 {
    let said = ask(session, id, "tools/call", json!({ "name": tool })).await;
    u32::try_from(said["result"]["pid"].as_u64().unwrap_or_else(|| panic!("{said}"))).unwrap()
}

async fn kill(gateway: &Gateway, pid: u32) {
    signal(pid, "KILL").await;
    gateway.logged("the loss", |line| line["message"] == "one of the servers is gone").await;
}

fn names(list: &Value, what: &str) -> Vec<String> {
    let items = list["result"][what].as_array().unwrap_or_else(|| panic!("{list}")).iter();
    items.map(|item| item["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn endpoints_and_children_are_told_apart() {
    let gateway = Gateway::configured(&three()).await;
    for name in ["one", "two", "demo"] {
        let line =
            gateway.logged("an endpoint", |line| line["backend"] == name && line["message"] == "listening");
        let url = line.await["url"].as_str().unwrap().to_owned();
        assert!(url.ends_with(&format!("/mcp/{name}")), "{url}");
    }
    let nothing = Ask::new("GET", "/mcp/nope").send(gateway.address).await;
    let words =
        "not found; the MCP endpoints are /mcp for all servers as one, and /mcp/demo, /mcp/one, /mcp/two\n";
    assert_eq!((nothing.status(), nothing.text()), (404, words.to_owned()));

    let begun = initialize("2025-11-25").at("/mcp/two").send(gateway.address).await;
    let session = Session::of(gateway.address, "/mcp/two", &begun).initialized().await;
    signal(pid(&session, 1, "heard").await, "KILL").await;
    let ended = gateway.logged("the end", |line| line["message"] == "the server ended by itself").await;
    assert_eq!(ended["backend"], "two");
}

#[tokio::test]
async fn each_server_has_its_endpoint_and_sessions_stay_at_theirs() {
    let mut gateway = Gateway::configured(&three()).await;
    let paths = ["/mcp", "/mcp/one", "/mcp/demo"];
    let mut sessions = Vec::new();
    for path in paths {
        let begun = initialize("2025-11-25").at(path).send(gateway.address).await;
        sessions.push(Session::of(gateway.address, path, &begun).initialized().await);
    }
    for again in [false, true] {
        for session in &sessions {
            let tool = if session.path == "/mcp/one" { "heard" } else { "public_echo" };
            let said =
                ask(session, 1, "tools/call", json!({ "name": tool, "arguments": { "text": "x" } })).await;
            assert!(said["result"].is_object(), "{again} {} {said}", session.path);
            for path in paths.iter().filter(|path| **path != session.path) {
                let elsewhere = Session { path: (*path).to_owned(), ..session.clone() };
                for ask in [elsewhere.request(2, "tools/list", &json!({})), elsewhere.delete()] {
                    assert_eq!(ask.send(gateway.address).await.status(), 404, "{path} of {}", session.path);
                }
            }
        }
        // A session that is woken is still where it was.
        gateway.kill_and_start_again().await;
    }
    let nowhere = sessions[0].request(3, "ping", &json!({})).at("/mcp/three").send(gateway.address).await;
    assert_eq!(nowhere.status(), 404);
    for session in &sessions {
        assert_eq!(session.delete().send(gateway.address).await.status(), 204);
    }
    gateway.stop().await;
    gateway.until_no_process().await;
}

#[tokio::test]
async fn all_of_them_are_served_as_one() {
    let gateway = Gateway::configured(&three()).await;
    let session = gateway.session().await;
    let tools = names(&ask(&session, 1, "tools/list", json!({})).await, "tools");
    for tool in ["one__slow", "Second__slow", "notebook_read"] {
        assert!(tools.iter().any(|known| known == tool), "{tool} in {tools:?}");
    }
    let (first, second) = (pid(&session, 2, "one__heard").await, pid(&session, 3, "Second__heard").await);
    assert_ne!(first, second);
    // Whatever is in the params passes but for the name.
    let raw = br#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"_meta":{"x":1.0e2},"name":"one__odd", "arguments":{"name" :"one__odd","n":1E5}}}"#;
    let said = session.post_raw(raw).send(gateway.address).await.json();
    assert_eq!(said["result"]["tool"], "odd");
    assert_eq!(said["result"]["arguments"], json!({ "name": "one__odd", "n": 1e5 }));
    let prompts = names(&ask(&session, 5, "prompts/list", json!({})).await, "prompts");
    assert_eq!(prompts, ["summarize_notebook"], "the example server has no list of prompts that can be read");
    let prompt = ask(&session, 6, "prompts/get", json!({ "name": "one__p" })).await;
    assert_eq!(prompt["result"]["params"], json!({ "name": "p" }));
    let read = ask(&session, 7, "resources/read", json!({ "uri": "demo://about" })).await;
    assert!(read["result"]["contents"].is_array(), "{read}");
    let reference = json!({ "type": "ref/prompt", "name": "Second__p" });
    let completed =
        ask(&session, 8, "completion/complete", json!({ "ref": reference, "argument": {} })).await;
    assert_eq!(completed["result"]["params"]["ref"], json!({ "type": "ref/prompt", "name": "p" }));
    for name in ["three__slow", "two__slow"] {
        // It goes to the server without a prefix, which does not know it.
        let said = ask(&session, 9, "tools/call", json!({ "name": name })).await;
        assert_eq!(said["error"]["code"], -32602, "{said}");
    }
    assert_eq!(ask(&session, 10, "tasks/list", json!({})).await["error"]["code"], -32601);
}

#[tokio::test]
async fn a_server_that_dies_takes_only_its_own_with_it() {
    let gateway = Gateway::configured(&three()).await;
    let session = gateway.session().await;
    let gate = gateway.folder.path().join("gate");
    for (id, method, params) in [
        (1, "logging/setLevel", json!({ "level": "error" })),
        // No server lists it, and the first one takes it.
        (2, "resources/subscribe", json!({ "uri": "file:///kept" })),
    ] {
        assert_eq!(ask(&session, id, method, params).await["result"], json!({}));
    }
    let mut is_safe = begin(&session, 3, "one__slow_safe", &gate).await;
    let mut is_not = begin(&session, 4, "one__slow", &gate).await;
    let mut elsewhere = begin(&session, 5, "Second__slow", &gate).await;
    let (first, second) = (pid(&session, 6, "one__heard").await, pid(&session, 7, "Second__heard").await);
    kill(&gateway, first).await;
    assert_eq!(rest(&mut is_not).await, ["error 4 interrupted"]);
    std::fs::write(&gate, "").unwrap();
    assert_eq!(rest(&mut is_safe).await, ["2", "3", "result 3"], "each step once");
    assert_eq!(rest(&mut elsewhere).await, ["2", "3", "result 5"]);
    assert_eq!(pid(&session, 8, "Second__heard").await, second, "it is the same as before");
    let said = ask(&session, 9, "tools/call", json!({ "name": "one__heard" })).await;
    let heard: Vec<_> =
        said["result"]["heard"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(heard[0].starts_with("initialize "), "{heard:?}");
    assert_eq!(
        heard[1..],
        [
            "notifications/initialized",
            r#"logging/setLevel {"level":"error"}"#,
            r#"resources/subscribe {"uri":"file:///kept"}"#
        ]
    );
}

#[tokio::test]
async fn a_server_that_is_away_is_named_and_comes_back() {
    let folder = tempfile::TempDir::new().unwrap();
    let there = folder.path().join("there");
    let script = format!("test -e {} && exec {}", there.display(), echo());
    let config = format!(
        r#"
        [[backend]]
        name = "steady"
        command = ["{}"]
        [[backend]]
        name = "late"
        command = ["sh", "-c", "{script}"]
        "#,
        echo()
    );
    let gateway = Gateway::configured(&config).await;
    let session = gateway.session().await;
    let mut listening = session.listen().await;
    let list = ask(&session, 1, "tools/list", json!({})).await;
    assert_eq!(list["result"]["_meta"], json!({ "dev.tenure/unavailable": ["late"] }));
    assert!(names(&list, "tools").iter().all(|name| name.starts_with("steady__")), "{list}");
    let refused = ask(&session, 2, "tools/call", json!({ "name": "late__heard" })).await;
    assert_eq!(refused["error"]["code"], -31011, "{refused}");
    std::fs::write(&there, "").unwrap();
    let mut id = 3;
    // Not at once: a server that failed is left alone for a while.
    while ask(&session, id, "tools/call", json!({ "name": "late__heard" })).await["error"].is_object() {
        id += 1;
        assert!(id < 10_000);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let mut told = Vec::new();
    while told.len() < 3 {
        told.push(listening.message().await.unwrap().1["method"].as_str().unwrap().to_owned());
    }
    told.sort();
    assert_eq!(
        told,
        ["prompts", "resources", "tools"].map(|list| format!("notifications/{list}/list_changed"))
    );
    let list = ask(&session, id + 1, "tools/list", json!({})).await;
    assert_eq!(list["result"].get("_meta"), None);
    assert!(names(&list, "tools").iter().any(|name| name == "late__slow"), "{list}");
}

#[tokio::test]
async fn questions_of_any_server_reach_the_client() {
    let gateway = Gateway::configured(&three()).await;
    let session = gateway.session().await;
    for (id, tool) in [(1, "one__ask"), (2, "Second__ask")] {
        let arguments = json!({ "method": "elicitation/create", "params": { "message": tool } });
        let params = json!({ "name": tool, "arguments": arguments });
        let mut stream = session.request(id, "tools/call", &params).open(session.server).await;
        let asked = stream.message().await.unwrap().1;
        assert_eq!(asked["params"]["message"], tool);
        let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "action": "accept" } });
        assert_eq!(session.post(&answer).send(gateway.address).await.status(), 202);
        let said = stream.message().await.unwrap().1;
        assert_eq!(said["result"]["answer"], json!({ "action": "accept" }), "{said}");
    }
}

#[tokio::test]
async fn a_session_of_all_survives_the_gateway() {
    let mut gateway = Gateway::configured(&three()).await;
    let session = gateway.session().await;
    let gate = gateway.folder.path().join("gate");
    let mut stream = begin(&session, 1, "Second__slow_safe", &gate).await;
    let last = stream.last_id();
    gateway.kill().await;
    while stream.message().await.is_some() {}
    gateway.start_again().await;
    std::fs::write(&gate, "").unwrap();
    let mut stream = session.resume(&last).await;
    assert_eq!(rest(&mut stream).await, ["2", "3", "result 1"]);
    gateway.stop().await;
    gateway.until_no_process().await;
}

#[tokio::test]
async fn a_subscription_waits_for_a_server_that_is_away_when_the_session_wakes() {
    let folder = tempfile::TempDir::new().unwrap();
    let there = folder.path().join("there");
    std::fs::write(&there, "").unwrap();
    let script = format!("test -e {} && exec {}", there.display(), echo());
    let config = format!(
        r#"
        [[backend]]
        name = "demo"
        command = ["{}", "stdio", "--store", "memory:", "--log-level", "warn"]
        [[backend]]
        name = "late"
        command = ["sh", "-c", "{script}"]
        "#,
        env!("CARGO_BIN_EXE_tenure")
    );
    let mut gateway = Gateway::configured(&config).await;
    let session = gateway.session().await;
    let subscribed = ask(&session, 1, "resources/subscribe", json!({ "uri": "file:///a" })).await;
    assert_eq!(subscribed["result"], json!({}), "{subscribed}");
    gateway.kill().await;
    std::fs::remove_file(&there).unwrap();
    gateway.start_again().await;
    // It wakes, and no server that is up knows the resource.
    let read = ask(&session, 2, "resources/read", json!({ "uri": "file:///a" })).await;
    assert_eq!(read["error"]["code"], -31011, "{read}");
    std::fs::write(&there, "").unwrap();
    let heard = async {
        for id in 3.. {
            let said = ask(&session, id, "tools/call", json!({ "name": "late__heard" })).await;
            if let Some(heard) = said["result"]["heard"].as_array() {
                return heard.clone();
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        unreachable!()
    };
    let heard = within("the server is back", heard).await;
    assert!(heard.contains(&json!(r#"resources/subscribe {"uri":"file:///a"}"#)), "{heard:?}");
}

#[tokio::test]
async fn a_list_that_is_too_large_does_not_take_the_others_with_it() {
    let config = format!("[streams]\nmax_event = \"6KiB\"\n{}", three());
    let gateway = Gateway::configured(&config).await;
    let session = gateway.session().await;
    let list = ask(&session, 1, "tools/list", json!({})).await;
    // The demo's is larger than what is left.
    assert_eq!(list["result"]["_meta"], json!({ "dev.tenure/unavailable": ["demo"] }), "{list}");
    assert!(names(&list, "tools").contains(&"one__slow".to_owned()));
}

#[tokio::test]
async fn a_server_that_fails_once_does_not_lose_its_resources_to_another() {
    let gateway = Gateway::configured(&three()).await;
    let session = gateway.session().await;
    // The example servers take any URI, but this one is in the list of the demo, which comes last.
    for (id, uri) in [(1, "demo://about"), (2, "demo://notebook/99"), (3, "demo://about")] {
        let read = ask(&session, id, "resources/read", json!({ "uri": uri })).await;
        assert!(read["result"]["method"].is_null(), "the example server answered: {read}");
    }
}

/// One server of each era.
fn one_of_each_era() -> String {
    let (echo, tenure) = (echo(), env!("CARGO_BIN_EXE_tenure"));
    format!(
        r#"
        [[backend]]
        name = "old"
        command = ["{echo}"]
        [[backend]]
        name = "new"
        prefix = ""
        command = ["env", "TENURE_ERAS=modern", "{tenure}", "stdio", "--store", "memory:", "--log-level", "warn"]
        "#
    )
}

/// A request without a session.
async fn alone(gateway: &Gateway, path: &str, method: &str, mut params: Value) -> Value {
    const VERSION: &str = "2026-07-28";
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
    });
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let mut ask = Ask::post(message.to_string())
        .at(path)
        .header("MCP-Protocol-Version", VERSION)
        .header("Mcp-Method", method);
    if let Some(name) = params["name"].as_str() {
        ask = ask.header("Mcp-Name", name);
    }
    ask.send(gateway.address).await.json()
}

#[tokio::test]
async fn servers_of_either_era_are_one_for_clients_of_either() {
    let mut gateway = Gateway::configured(&one_of_each_era()).await;
    let session = gateway.session().await;
    let echoed = json!({ "name": "public_echo", "arguments": { "text": "x" } });
    let listed = [
        ask(&session, 1, "tools/list", json!({})).await,
        alone(&gateway, "/mcp", "tools/list", json!({})).await,
    ];
    for list in &listed {
        let tools = names(list, "tools");
        assert!(["old__hold", "public_echo"].iter().all(|tool| tools.iter().any(|it| it == tool)), "{list}");
    }
    assert_eq!(listed[0]["result"].get("resultType"), None);
    assert_eq!(listed[1]["result"]["resultType"], "complete");
    let in_session = ask(&session, 2, "tools/call", echoed.clone()).await;
    assert_eq!(in_session["result"].get("resultType"), None, "{in_session}");
    for path in ["/mcp", "/mcp/new"] {
        let said = alone(&gateway, path, "tools/call", echoed.clone()).await;
        assert_eq!(said["result"]["content"], in_session["result"]["content"], "{path} {said}");
    }
    // A question of the one that knows sessions, to a client that knows none.
    let question =
        json!({ "method": "elicitation/create", "params": { "message": "m", "requestedSchema": {} } });
    for (path, tool) in [("/mcp", "old__ask"), ("/mcp/old", "ask")] {
        let mut call = json!({ "name": tool, "arguments": question });
        let asked = alone(&gateway, path, "tools/call", call.clone()).await;
        assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
        call["requestState"] = asked["result"]["requestState"].clone();
        call["inputResponses"] = json!({ "q1": { "action": "accept", "content": { "name": "Ada" } } });
        let said = alone(&gateway, path, "tools/call", call).await;
        assert_eq!(said["result"]["answer"]["content"]["name"], "Ada", "{path} {said}");
    }
    gateway.stop().await;
    gateway.until_no_process().await;
}
