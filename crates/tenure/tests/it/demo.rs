//! The demo server: every tool, resource and prompt does what it says, for its own session alone.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_layers::data::{DataLayer, Policy};
use tenure_session::call::Caller;
use tenure_session::port::clock::SystemClock;
use tenure_session::port::store::Store;
use tenure_session::state::StateLimits;
use tenure_session::{Answer, Limits, Session, Sessions, States};
use tenure_store::memory::Memory;
use tenure_testkit::runtime;

fn start() -> Sessions {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let states = States::start(Arc::clone(&store), Arc::new(SystemClock), StateLimits::default());
    let demo = Arc::new(tenure::demo::backend());
    let layer = DataLayer::new(demo, states, Policy::default(), vec![tenure::demo::workspace()]);
    runtime::start(store, Arc::new(layer), Limits::default())
}

/// Makes a workspace, and returns the argument that names it.
async fn workspace(session: &Arc<Session>) -> Value {
    json!({ "workspace_id": told(session, "create_workspace", &json!({})).await["workspace_id"] })
}

/// Arguments that name a workspace too.
fn on(workspace: &Value, mut arguments: Value) -> Value {
    arguments["workspace_id"] = workspace["workspace_id"].clone();
    arguments
}

async fn ask(session: &Arc<Session>, method: &str, params: &Value) -> Value {
    let request = runtime::request(1, method, params);
    match session.request(request, Caller::anonymous("test")).await.expect("admitted") {
        Answer::Json(body) | Answer::TryLater { body, .. } => runtime::parse(&body),
        Answer::Stream(mut reader) => runtime::events(&mut reader).await.pop().expect("an answer"),
        Answer::Withdrawn => panic!("an answer"),
    }
}

async fn tool(session: &Arc<Session>, name: &str, arguments: &Value) -> Value {
    ask(session, "tools/call", &json!({ "name": name, "arguments": arguments })).await["result"].clone()
}

async fn told(session: &Arc<Session>, name: &str, arguments: &Value) -> Value {
    tool(session, name, arguments).await["structuredContent"].clone()
}

#[tokio::test]
async fn what_is_stored_belongs_to_its_workspace() {
    let sessions = start();
    let one = runtime::session(&sessions, "2025-11-25").await;
    let two = runtime::session(&sessions, "2025-11-25").await;
    let (mine, theirs) = (workspace(&one).await, workspace(&two).await);
    assert_eq!(told(&one, "session_counter_inc", &mine).await, json!({ "counter": 1 }));
    assert_eq!(told(&one, "session_counter_inc", &mine).await, json!({ "counter": 2 }));
    assert_eq!(
        told(&one, "notebook_append", &on(&mine, json!({ "text": "mine" }))).await,
        json!({ "notes": 1 })
    );
    assert_eq!(told(&two, "session_counter_get", &theirs).await, json!({ "counter": 0 }));
    assert_eq!(told(&two, "notebook_read", &theirs).await, json!({ "notes": [] }));
    assert_eq!(told(&one, "notebook_read", &mine).await, json!({ "notes": ["mine"] }));
    assert_eq!(told(&one, "notebook_status", &mine).await, json!({ "notes": 1 }));
    assert_eq!(told(&one, "notebook_clear", &mine).await, json!({ "cleared": 1 }));
}

#[tokio::test]
async fn each_link_counts_for_itself() {
    let sessions = start();
    let one = runtime::session(&sessions, "2025-11-25").await;
    let two = runtime::session(&sessions, "2025-11-25").await;
    let first = told(&one, "link_counter_inc", &json!({})).await;
    let second = told(&one, "link_counter_inc", &json!({})).await;
    let other = told(&two, "link_counter_inc", &json!({})).await;
    assert_eq!((&first["counter"], &second["counter"], &other["counter"]), (&json!(1), &json!(2), &json!(1)));
    assert_eq!(first["link"], second["link"]);
    assert_ne!(first["link"], other["link"]);
}

/// The tools of B.5: those of the demo servers that clients of both dialects were tried with.
#[tokio::test]
async fn the_tools_of_b_5_are_all_there() {
    let session = runtime::session(&start(), "2025-11-25").await;
    let listed = ask(&session, "tools/list", &json!({})).await["result"]["tools"].clone();
    let listed: Vec<_> =
        listed.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    for (prefix, names) in [
        ("", "session_probe echo whoami public_echo session_start session_reset"),
        ("session_counter_", "inc get"),
        ("notebook_", "append read clear status"),
        ("hashcheck_", "store verify list delete"),
        ("client_notes_", "add list clear status"),
    ] {
        for name in names.split(' ').map(|name| format!("{prefix}{name}")) {
            assert!(listed.contains(&name.as_str()), "{name} is not among {listed:?}");
        }
    }
}

/// Those of B.5 that work on a session which a client has made.
#[tokio::test]
async fn a_session_is_told_who_it_is_and_followed_by_a_new_one() {
    let session = runtime::session(&start(), "2025-11-25").await;
    let hints = json!({ "hints": { "label": "review", "data": { "title": "Review", "color": "blue" } } });
    let made = ask(&session, "session/create", &hints).await["result"].clone();
    let cookie = json!({ "mcp/session": { "id": made["id"] } });
    let call = async |tool: &str, arguments: Value| {
        let params = json!({ "name": tool, "arguments": arguments, "_meta": cookie });
        ask(&session, "tools/call", &params).await
    };

    assert_eq!(call("echo", json!({ "text": "x" })).await["result"]["content"][0]["text"], "x");
    let who = call("whoami", json!({})).await["result"]["structuredContent"].clone();
    assert_eq!((&who["label"], &who["data"]), (&json!("review"), &hints["hints"]["data"]));
    assert_eq!(who["expires"], made["expiry"]);
    assert!(!who.to_string().contains(made["id"].as_str().unwrap()), "the id is the client's secret");
    call("session_counter_inc", json!({})).await;
    let by_handle = json!({ "workspace_id": who["workspace_id"] });
    assert_eq!(told(&session, "session_counter_get", &by_handle).await["counter"], 1, "its other name");

    let anew = call("session_probe", json!({ "action": "new" })).await["result"].clone();
    assert_eq!(anew["_meta"], json!({ "mcp/session": null }), "the client gives the old one up");
    let after = call("session_counter_get", json!({})).await;
    assert_eq!(after["error"]["data"]["reason"], "session_revoked");
    let fresh = json!({ "workspace_id": anew["structuredContent"]["workspace_id"] });
    assert_ne!(fresh, by_handle);
    let status = told(&session, "session_probe", &fresh).await;
    assert_eq!(status, json!({ "title": "Review", "counter": 0, "notes": 0, "hashes": 0 }));
    let unknown = tool(&session, "session_probe", &on(&fresh, json!({ "action": "old" }))).await;
    assert_eq!(unknown["isError"], true);
}

/// Those of B.5 that do without a session of the client's.
#[tokio::test]
async fn a_tool_starts_a_session_and_clients_carry_notes() {
    let session = runtime::session(&start(), "2025-11-25").await;
    let refused = tool(&session, "echo", &json!({ "text": "x" })).await;
    let words = refused["content"][0]["text"].as_str().unwrap();
    assert!(refused["isError"] == true && words.starts_with("Session required."), "{refused}");
    let started = told(&session, "session_start", &json!({ "label": "mine" })).await;
    let work = json!({ "workspace_id": started["workspace_id"] });
    assert_eq!(told(&session, "session_probe", &work).await["title"], "mine");
    for note in ["one", "two"] {
        told(&session, "client_notes_add", &on(&work, json!({ "text": note }))).await;
    }
    assert_eq!(told(&session, "client_notes_list", &work).await, json!({ "notes": ["one", "two"] }));
    assert_eq!(told(&session, "client_notes_status", &work).await, json!({ "notes": 2 }));
    assert_eq!(told(&session, "notebook_read", &work).await, json!({ "notes": [] }), "other notes");
    assert_eq!(told(&session, "client_notes_clear", &work).await, json!({ "cleared": 2 }));
    assert_eq!(told(&session, "client_notes_status", &work).await, json!({ "notes": 0 }));
}

#[tokio::test]
async fn hashes_are_kept_checked_and_forgotten() {
    let session = runtime::session(&start(), "2025-11-25").await;
    let work = workspace(&session).await;
    let stored = told(&session, "hashcheck_store", &on(&work, json!({ "name": "n", "text": "abc" }))).await;
    let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(stored, json!({ "name": "n", "sha256": sha256 }));
    for (text, matches) in [("abc", true), ("abd", false)] {
        let verified =
            told(&session, "hashcheck_verify", &on(&work, json!({ "name": "n", "text": text }))).await;
        assert_eq!(verified["matches"], matches);
    }
    assert_eq!(told(&session, "hashcheck_list", &on(&work, json!({}))).await, json!({ "names": ["n"] }));
    assert_eq!(told(&session, "hashcheck_delete", &on(&work, json!({ "name": "n" }))).await["deleted"], true);
    let unknown = tool(&session, "hashcheck_verify", &on(&work, json!({ "name": "n", "text": "abc" }))).await;
    assert_eq!(unknown["isError"], true);
    assert!(unknown["content"][0]["text"].as_str().is_some_and(|text| text.contains("hashcheck_store")));
}

#[tokio::test(start_paused = true)]
async fn a_long_task_reports_every_second() {
    let session = runtime::session(&start(), "2025-11-25").await;
    let params =
        json!({ "name": "long_task", "arguments": { "seconds": 3 }, "_meta": { "progressToken": 9 } });
    let request = runtime::request(1, "tools/call", &params);
    let answer = session.request(request, Caller::anonymous("test")).await.expect("admitted");
    let all = runtime::events(&mut runtime::reader_of(answer)).await;
    let steps: Vec<_> = all.iter().filter_map(|message| message["params"]["progress"].as_f64()).collect();
    assert_eq!(steps, [0.0, 1.0, 2.0, 3.0]);
    assert_eq!(all[4]["result"]["content"][0]["text"], "worked for 3 s");
}

#[tokio::test(start_paused = true)]
async fn the_seconds_of_a_long_task_can_be_short() {
    let session = runtime::session(&start(), "2025-11-25").await;
    let worked = tool(&session, "long_task", &json!({ "seconds": 3, "interval_ms": 500 })).await;
    assert_eq!(worked["content"][0]["text"], "worked for 1.5 s");
    let refused = tool(&session, "long_task", &json!({ "seconds": 3, "interval_ms": 0 })).await;
    assert_eq!(refused["content"][0]["text"], "interval_ms must be between 1 and 10000");
}

#[tokio::test(start_paused = true)]
async fn counting_slowly_says_every_number_with_its_tag() {
    let session = runtime::session(&start(), "2025-11-25").await;
    let arguments = json!({ "to": 2, "interval_ms": 1000, "tag": "t" });
    let params = json!({ "name": "count_slowly", "arguments": arguments, "_meta": { "progressToken": 9 } });
    let request = runtime::request(1, "tools/call", &params);
    let answer = session.request(request, Caller::anonymous("test")).await.expect("admitted");
    let all = runtime::events(&mut runtime::reader_of(answer)).await;
    let said: Vec<_> = all.iter().map(|message| message["params"].clone()).collect();
    assert_eq!(said[0], json!({ "level": "info", "data": { "tag": "t", "n": 1 } }));
    assert_eq!(said[1], json!({ "progressToken": 9, "progress": 1.0, "total": 2.0 }));
    assert_eq!(said[2]["data"], json!({ "tag": "t", "n": 2 }));
    assert_eq!((all.len(), &said[3]["progress"]), (5, &json!(2.0)));
    assert_eq!(all[4]["result"]["content"][0]["text"], "t: counted to 2");
    let refused = tool(&session, "count_slowly", &json!({ "to": 1001, "interval_ms": 1, "tag": "t" })).await;
    assert_eq!(refused["isError"], true);
}

#[tokio::test]
async fn wrong_arguments_are_told_to_the_model_and_unknown_names_to_the_protocol() {
    let session = runtime::session(&start(), "2025-11-25").await;
    let work = workspace(&session).await;
    let wrong = tool(&session, "notebook_append", &on(&work, json!({ "txt": "x" }))).await;
    assert_eq!(wrong["isError"], true);
    for (method, params, code) in [
        ("tools/call", json!({ "name": "nothing" }), -32602),
        ("prompts/get", json!({ "name": "nothing" }), -32602),
        ("resources/read", json!({ "uri": "demo://nothing" }), -32002),
        ("resources/subscribe", json!({ "uri": "demo://nothing" }), -32002),
        ("logging/setLevel", json!({ "level": "loud" }), -32602),
        ("no/such/method", json!({}), -32601),
    ] {
        assert_eq!(ask(&session, method, &params).await["error"]["code"], code, "{method}");
    }
}

#[tokio::test]
async fn resources_change_and_subscribers_hear_of_it() {
    let sessions = start();
    let session = runtime::session(&sessions, "2025-11-25").await;
    let other = runtime::session(&sessions, "2025-11-25").await;
    for session in [&session, &other] {
        for uri in ["demo://notebook", "demo://visitors"] {
            ask(session, "resources/subscribe", &json!({ "uri": uri })).await;
        }
    }
    let made = ask(&session, "session/create", &json!({})).await["result"].clone();
    let cookie = json!({ "mcp/session": { "id": made["id"] } });
    let note = json!({ "name": "notebook_append", "arguments": { "text": "a note" }, "_meta": cookie });
    ask(&session, "tools/call", &note).await;
    let read = json!({ "uri": "demo://notebook/1", "_meta": cookie });
    let read = ask(&session, "resources/read", &read).await;
    assert_eq!(read["result"]["contents"][0]["text"], "a note");
    let _third = runtime::session(&sessions, "2025-11-25").await;
    let uris = async |session: &Arc<Session>, count: usize| {
        let mut reader = session.listen(None).await.expect("a stream");
        let mut uris = Vec::new();
        for _ in 0..count {
            uris.push(runtime::event(&mut reader).await.expect("news").1["params"]["uri"].clone());
        }
        uris
    };
    assert_eq!(uris(&session, 2).await, ["demo://notebook", "demo://visitors"]);
    // The notebook of one session is not told to another.
    assert_eq!(uris(&other, 1).await, ["demo://visitors"]);
}

#[tokio::test]
async fn lists_prompts_and_completions() {
    let session = runtime::session(&start(), "2025-11-25").await;
    let tools = ask(&session, "tools/list", &json!({})).await;
    assert_eq!(tools["result"]["tools"].as_array().map(Vec::len), Some(27));
    let prompt = json!({ "name": "summarize_notebook", "arguments": { "style": "formal" } });
    let prompt = ask(&session, "prompts/get", &prompt).await;
    let text = prompt["result"]["messages"][0]["content"]["text"].as_str().unwrap_or_default();
    assert!(text.contains("formal"), "{text}");
    let argument = json!({ "argument": { "name": "style", "value": "f" }, "ref": { "type": "ref/prompt", "name": "x" } });
    let completed = ask(&session, "completion/complete", &argument).await;
    assert_eq!(completed["result"]["completion"]["values"], json!(["formal", "friendly"]));
}
