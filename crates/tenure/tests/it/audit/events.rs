//! What is recorded of calls, sessions, questions, refusals and operators, and what is not.

use serde_json::{Value, json};

use super::log::Log;
use crate::auth::world::{Bearing, World};
use crate::cli::process::run;
use crate::operator::place::{Place, label};
use crate::support::client::Ask;
use crate::support::modern;
use crate::support::node::{Steered, demo_with};
use crate::support::session::Session;
use crate::support::wait::until;

const CALL: [&str; 1] = ["call_finished"];

#[tokio::test]
async fn calls_are_recorded_with_who_made_them_and_how_they_ended() {
    let log = Log::new();
    let world = World::with_settings(
        "scopes = [\"notebook_* = notes\"]\n",
        &[("audit.file", &log.path().display().to_string())],
    )
    .await;
    let (token, key) = (world.token("alice"), world.key("ci", ""));
    let session = world.session(&token).await;
    let call = |id, name: &str| {
        let params = json!({ "name": name, "arguments": { "text": "secret words" } });
        session.request(id, "tools/call", &params)
    };
    let traced = call(1, "public_echo").bearer(&token).header("X-Request-Id", "f3c1-77");
    assert_eq!(world.send(traced).await.status(), 200);
    world.send(call(2, "no_such_tool").bearer(&token)).await;
    world.send(session.request(3, "resources/read", &json!({ "uri": "demo://about" })).bearer(&token)).await;
    world.send(session.request(4, "tools/list", &json!({})).bearer(&token)).await;
    let modern =
        modern::ask(5, "tools/call", &json!({ "name": "public_echo", "arguments": { "text": "x" } }));
    world.send(modern.header("X-API-Key", &key)).await;
    // Refused: no scope, no credentials, bad ones.
    assert_eq!(world.send(call(6, "notebook_read").bearer(&token)).await.status(), 403);
    assert_eq!(world.send(Ask::post("{}")).await.status(), 401);
    assert_eq!(world.send(Ask::post("{}").bearer("forged.token.here")).await.status(), 401);
    assert_eq!(world.send(session.delete().bearer(&token)).await.status(), 204);
    world.node.stop().await;
    let who = ["principal/iss", "principal/sub", "principal/client_id", "principal/kind"];
    let members = [&["method", "name", "outcome", "code"][..], &who].concat();
    assert_eq!(
        log.shown(&CALL, &members),
        [
            "tools/call public_echo ok - corp alice app token",
            "tools/call no_such_tool error -32602 corp alice app token",
            "resources/read demo://about ok - corp alice app token",
            "tools/call public_echo ok - key ci - key",
        ]
    );
    let first = &log.records(&CALL)[0];
    assert_eq!((&first["request_id"], &first["remote"]), (&json!("f3c1-77"), &json!("127.0.0.1")));
    assert!(first["args_digest"].as_str().is_some_and(|digest| digest.len() == 64), "{first}");
    assert!(first["session"].as_str().unwrap().starts_with("s-") && first["client"] == "it", "{first}");
    assert_eq!(
        log.shown(&["refused"], &["code", "reason", "name", "principal/sub"]),
        ["403 forbidden notebook_read alice", "401 unauthorized - -", "401 unauthorized - -"]
    );
    assert_eq!(
        log.shown(&["session_created", "session_ended"], &["event", "outcome", "principal/sub", "client"]),
        ["session_created - alice it", "session_ended deleted alice -"]
    );
    let said = log.verified().await;
    assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
    // Nothing that opens a door, and nothing that was said.
    let text = log.text();
    for secret in [&token, &key, &session.id, "secret words", "forged.token"] {
        assert!(!text.contains(secret), "{secret} is in the log");
    }
}

#[tokio::test]
async fn al5_arguments_are_recorded_for_the_tools_that_are_listed_and_for_no_others() {
    let log = Log::new();
    let path = log.path().display().to_string();
    let settings = [
        ("audit.file", path.as_str()),
        ("audit.arguments", "public_*,never"),
        ("audit.redact", "/text,/none"),
    ];
    let node = demo_with(&settings).await;
    let session = Session::start(node.address()).await;
    let workspace = session.workspace().await;
    session.tool(1, "public_echo", &json!({ "text": "the first secret", "more": [1, 2] })).await;
    let note = json!({ "workspace_id": workspace, "text": "the second secret" });
    session.tool(2, "notebook_append", &note).await;
    node.stop().await;
    let text = log.text();
    assert!(!text.contains("secret") && !text.contains(&workspace), "{text}");
    let args = log.shown(&CALL, &["name", "args"]);
    assert_eq!(
        args,
        ["create_workspace -", r#"public_echo {"more":[1,2],"text":"(redacted)"}"#, "notebook_append -"]
    );
    // The same arguments have the same digest, which says nothing without the key.
    let digests: Vec<_> = log.records(&CALL).iter().map(|record| record["args_digest"].clone()).collect();
    assert!(digests[1] != digests[2] && digests.iter().all(Value::is_string), "{digests:?}");
}

#[tokio::test]
async fn arguments_at_the_merged_endpoint_are_recorded_by_the_servers_own_names_too() {
    let demo = env!("CARGO_BIN_EXE_tenure");
    let backend = |name: &str| {
        format!(
            "[[backend]]\nname = \"{name}\"\ncommand = [\"{demo}\", \"stdio\", \"--store\", \"memory:\"]\n"
        )
    };
    for (pattern, expected) in [
        ("one/public_*", [true, false]),
        ("public_echo", [true, true]),
        ("two__public_echo", [false, true]),
        ("*/public_echo", [true, true]),
        ("one/*", [true, false]),
        ("three/*", [false, false]),
    ] {
        let log = Log::new();
        let world = World::with_settings(
            &format!("{}{}", backend("one"), backend("two")),
            &[("audit.file", &log.path().display().to_string()), ("audit.arguments", pattern)],
        )
        .await;
        let token = world.token("alice");
        let session = world.session(&token).await;
        for (id, tool) in [(1, "one__public_echo"), (2, "two__public_echo")] {
            let params = json!({ "name": tool, "arguments": { "text": "x" } });
            let called = world.send(session.request(id, "tools/call", &params).bearer(&token)).await;
            assert!(called.json()["result"].is_object(), "{called:?}");
        }
        world.node.stop().await;
        let shown: Vec<_> = log.records(&CALL).iter().map(|record| record["args"].is_string()).collect();
        assert_eq!(shown, expected, "{pattern}");
    }
}

#[tokio::test]
async fn calls_that_limits_refuse_are_refusals_and_bounded_whatever_form_the_answer_has() {
    for answer in ["error", "tool_result"] {
        let log = Log::new();
        let path = log.path().display().to_string();
        let settings = [
            ("audit.file", path.as_str()),
            ("limits.tools", "public_echo = 1/h"),
            ("limits.max_wait", "0s"),
            ("limits.answer", answer),
        ];
        let node = demo_with(&settings).await;
        let session = Session::start(node.address()).await;
        for id in 1..152 {
            session.tool(id, "public_echo", &json!({ "text": "x" })).await;
        }
        node.stop().await;
        let calls = log.shown(&CALL, &["name", "outcome"]);
        assert_eq!(calls, ["public_echo ok"], "{answer}");
        let refused = log.shown(&["refused"], &["name", "code", "reason", "outcome", "count"]);
        let (last, each) = refused.split_last().unwrap();
        assert_eq!(each.len(), 100, "{answer}");
        for one in each {
            assert_eq!(one, "public_echo -31029 rate_limited limited -", "{answer}");
        }
        assert_eq!(last, "- - more_of_the_same - 50", "{answer}");
    }
}

#[tokio::test]
async fn a_caller_that_is_refused_again_and_again_makes_no_more_records_where_they_are_required() {
    let log = Log::new();
    let path = log.path().display().to_string();
    let settings = [
        ("audit.file", path.as_str()),
        ("audit.durability", "required"),
        ("limits.tools", "public_echo = 1/h"),
        ("limits.max_wait", "0s"),
    ];
    let node = demo_with(&settings).await;
    let session = Session::start(node.address()).await;
    for id in 1..152 {
        session.tool(id, "public_echo", &json!({ "text": "x" })).await;
    }
    let other = session.tool(200, "create_workspace", &json!({})).await.json();
    assert_eq!(other["error"]["data"]["limit"], "100 refused calls a minute", "{other}");
    node.stop().await;
    assert_eq!(log.records(&["call_begun"]).len(), 101);
    let ends = log.shown(&CALL, &["outcome", "reason"]);
    assert_eq!((ends.len(), ends[0].as_str(), ends[100].as_str()), (101, "ok -", "limited rate_limited"));
    assert_eq!(log.shown(&["refused"], &["reason", "count"]), ["more_of_the_same 51"]);
}

#[tokio::test]
async fn a_server_that_answers_as_a_limit_would_hides_none_of_its_calls_and_has_none_refused() {
    for durability in ["best_effort", "required"] {
        let log = Log::new();
        let path = log.path().display().to_string();
        let settings = [("audit.file", path.as_str()), ("audit.durability", durability)];
        let mut steered = Steered::with(&settings).await;
        let (session, _link) = steered.session().await;
        let claim = json!({ "isError": true, "content": [],
            "_meta": { "dev.tenure/refused": { "reason": "rate_limited", "retryAfterMs": 1 } } });
        for id in 1..=120 {
            let arguments = json!({});
            let (said, ()) = tokio::join!(session.tool(id, "any", &arguments), async {
                steered.script.call().await.answer(&claim);
            });
            assert_eq!(said.json()["result"]["isError"], true, "{durability}: call {id}");
        }
        steered.node.stop().await;
        let calls = log.shown(&CALL, &["name", "outcome"]);
        assert_eq!(calls, vec!["any tool_error"; 120], "{durability}");
        assert!(log.records(&["refused"]).is_empty(), "{durability}");
    }
}

#[tokio::test]
async fn of_a_question_to_a_user_only_the_choice_is_recorded() {
    let log = Log::new();
    let path = log.path().display().to_string();
    let node = demo_with(&[("audit.file", path.as_str())]).await;
    let session = Session::start(node.address()).await;
    for (id, answer) in [
        (1, json!({ "action": "accept", "content": { "name": "Ada" } })),
        (2, json!({ "action": "decline" })),
    ] {
        let call = session.request(id, "tools/call", &json!({ "name": "ask_name", "arguments": {} }));
        let mut stream = call.begin(node.address()).await.events().await;
        let question = stream.message().await.unwrap().1;
        assert_eq!(question["method"], "elicitation/create");
        let response = json!({ "jsonrpc": "2.0", "id": question["id"], "result": answer });
        assert_eq!(session.post(&response).send(node.address()).await.status(), 202);
        while stream.message().await.is_some_and(|(_, message)| message["id"] != id) {}
    }
    node.stop().await;
    assert_eq!(
        log.shown(&["elicitation_sent", "elicitation_answered"], &["event", "outcome"]),
        [
            "elicitation_sent -",
            "elicitation_answered accept",
            "elicitation_sent -",
            "elicitation_answered decline"
        ]
    );
    assert!(!log.text().contains("Ada"));
}

#[tokio::test]
async fn what_operators_do_is_recorded_with_who_did_it() {
    let (log, place) = (Log::new(), Place::new());
    let server = place.serve_with(&["--set", &log.setting()]).await;
    let session = Session::start(server.address()).await;
    place.told(&["sessions", "list"]).await;
    let name = label(&session);
    place.told(&["sessions", "set", &name, "team=red", "--ttl", "2h"]).await;
    place.told(&["sessions", "set", &name, "team=blue"]).await;
    place.told(&["sessions", "revoke", &name]).await;
    server.signal("TERM").await;
    server.ended().await;
    let user = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(log.path()).unwrap());
    assert_eq!(
        log.shown(
            &["admin_action"],
            &["method", "name", "outcome", "principal/kind", "principal/sub", "change"]
        ),
        [
            format!(
                r#"sessions.settings {name} ok operator uid-{user} {{"metadata.team":[null,"red"],"ttl_ms":["default",7200000]}}"#
            ),
            format!(r#"sessions.settings {name} ok operator uid-{user} {{"metadata.team":["red","blue"]}}"#),
            format!("sessions.revoke {name} ok operator uid-{user} -"),
        ]
    );
    assert_eq!(log.shown(&["session_ended"], &["outcome"]), ["revoked"]);
}

#[tokio::test]
async fn changes_of_the_file_of_keys_are_recorded_by_the_server_that_reads_it() {
    let log = Log::new();
    let world = World::with_settings("", &[("audit.file", &log.path().display().to_string())]).await;
    let secret = world.key("ci", "");
    until("the new key", || log.records(&["key_added"]).len() == 1).await;
    world.key_file().revoke("ci").unwrap();
    until("the end of the key", || log.records(&["key_removed"]).len() == 1).await;
    world.node.stop().await;
    assert_eq!(
        log.shown(&["key_added", "key_removed"], &["event", "name"]),
        ["key_added ci", "key_removed ci"]
    );
    assert!(!log.text().contains(&secret));
}

#[tokio::test]
async fn a_log_is_shown_by_who_and_what() {
    let log = Log::new();
    let path = log.path().display().to_string();
    let node = demo_with(&[("audit.file", path.as_str())]).await;
    let session = Session::start(node.address()).await;
    session.tool(1, "public_echo", &json!({ "text": "x" })).await;
    session.tool(2, "no_such_tool", &json!({})).await;
    node.stop().await;
    let said = run(&["audit", "show", &path, "--tool", "public_echo", "--since", "1h"]).await;
    assert_eq!((said.code, said.out.lines().count()), (Some(0), 2), "{}", said.out);
    let said = run(&["audit", "show", &path, "--principal", "anonymous", "--json"]).await;
    assert!(
        said.out.lines().all(|line| log.text().contains(line)) && said.out.lines().count() >= 3,
        "{}",
        said.out
    );
    let said = run(&["audit", "show", &path, "--principal", "corp:nobody"]).await;
    assert_eq!((said.code, said.out.as_str()), (Some(0), ""));
    // A byte is changed: the exit status and the number say so.
    let text = std::fs::read_to_string(log.path()).unwrap();
    std::fs::write(log.path(), text.replacen("public_echo", "public_ecko", 1)).unwrap();
    let number = log.records(&CALL)[0]["seq"].as_u64().unwrap();
    let said = log.verified().await;
    assert_eq!(said.code, Some(1));
    assert!(said.out.starts_with(&format!("broken at record {number}: ")), "{}", said.out);
}
