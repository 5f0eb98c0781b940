//! Scopes: which tools a caller sees, which it may call, and how it gets more.

use serde_json::{Value, json};

use super::world::{Bearing, PUBLIC, World, challenge};
use crate::support::client::Ask;
use crate::support::modern;
use crate::support::session::Session;

const RULES: &str = "scopes = [\"* = mcp:use\", \"notebook_* = notes:read\", \"notebook_append = notes:write\"]\n\
     includes = [\"notes:write = notes:read\", \"admin = notes:write mcp:use\"]\n";

fn names(list: &Value) -> Vec<String> {
    let tools = list["result"]["tools"].as_array().unwrap_or_else(|| panic!("no list: {list}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

fn append(session: &Session) -> Ask {
    let params = json!({ "name": "notebook_append", "arguments": { "text": "x", "workspace_id": "y" } });
    session.request(2, "tools/call", &params)
}

#[tokio::test]
async fn au7_a_call_that_needs_more_is_challenged_and_goes_on_in_the_same_session() {
    let world = World::with(RULES).await;
    let narrow = world.token_with("alice", &json!({ "scope": "mcp:use notes:read" }));
    let session = world.session(&narrow).await;
    let refused = world.send(append(&session).bearer(&narrow)).await;
    let expected = format!(
        "Bearer error=\"insufficient_scope\", scope=\"mcp:use notes:read notes:write\", \
         resource_metadata=\"{PUBLIC}/.well-known/oauth-protected-resource/mcp\", \
         error_description=\"tools/call notebook_append needs the scope notes:write\""
    );
    assert_eq!(challenge(&refused), (403, expected));
    let answer = refused.json();
    assert_eq!(answer["id"], 2, "it answers the request");
    assert_eq!(
        (&answer["error"]["code"], &answer["error"]["data"]["requiredScopes"]),
        (&json!(-31003), &json!(["notes:write"]))
    );
    let wide = world.token_with("alice", &json!({ "scope": "mcp:use notes:write" }));
    let answered = world.send(append(&session).bearer(&wide)).await;
    assert_eq!(answered.status(), 200, "{answered:?}");
    // With the narrow token again: scopes are looked at on each request.
    assert_eq!(world.send(append(&session).bearer(&narrow)).await.status(), 403);
}

#[tokio::test]
async fn lists_show_what_the_caller_may_call_in_both_eras() {
    let world = World::with(RULES).await;
    let all = ["mcp:use notes:write", "admin"];
    for (scopes, sees_read, sees_append) in [
        ("mcp:use", false, false),
        ("mcp:use notes:read", true, false),
        (all[0], true, true),
        (all[1], true, true),
    ] {
        let token = world.token_with("alice", &json!({ "scope": scopes }));
        let session = world.session(&token).await;
        let legacy = world.send(session.request(1, "tools/list", &json!({})).bearer(&token)).await.json();
        let modern = world.send(modern::ask(1, "tools/list", &json!({})).bearer(&token)).await.json();
        for list in [&legacy, &modern] {
            let names = names(list);
            assert!(names.contains(&"public_echo".to_owned()), "{scopes}: {names:?}");
            assert_eq!(names.contains(&"notebook_read".to_owned()), sees_read, "{scopes}");
            assert_eq!(names.contains(&"notebook_append".to_owned()), sees_append, "{scopes}");
        }
        assert_eq!(modern["result"]["cacheScope"], "private", "lists differ from caller to caller");
    }
}

#[tokio::test]
async fn a_modern_call_is_challenged_too() {
    let world = World::with(RULES).await;
    let token = world.token_with("alice", &json!({ "scope": "mcp:use" }));
    let params = json!({ "name": "notebook_append", "arguments": { "text": "x" } });
    let refused = world.send(modern::ask(7, "tools/call", &params).bearer(&token)).await;
    assert_eq!(refused.fault(), (403, -31003, "forbidden".to_owned()));
    assert_eq!(refused.json()["id"], 7);
    assert!(challenge(&refused).1.contains("scope=\"notes:write\""), "modern clients add to what they have");
}

#[tokio::test]
async fn without_the_scope_for_everything_only_the_greeting_is_answered() {
    let world = World::with(RULES).await;
    let token = world.token_with("alice", &json!({ "scope": "notes:read" }));
    let session = world.session(&token).await;
    let asks = [
        session.request(1, "tools/list", &json!({})),
        session.request(2, "resources/list", &json!({})),
        session.get(),
        modern::ask(3, "server/discover", &json!({})),
    ];
    for ask in asks {
        let refused = world.send(ask.bearer(&token)).await;
        assert_eq!(refused.fault().0, 403);
        let (_, challenge) = challenge(&refused);
        assert!(challenge.contains("scope=\"mcp:use"), "{challenge}");
    }
    assert_eq!(world.send(session.request(4, "ping", &json!({})).bearer(&token)).await.status(), 200);
    assert_eq!(
        world.send(session.delete().bearer(&token)).await.status(),
        204,
        "what is theirs they may end"
    );
}

#[tokio::test]
async fn a_call_that_names_two_tools_needs_what_any_of_them_needs() {
    let world = World::with(RULES).await;
    let token = world.token_with("alice", &json!({ "scope": "mcp:use" }));
    let session = world.session(&token).await;
    for params in [
        r#"{"name":"public_echo","name":"notebook_append","arguments":{}}"#,
        r#"{"name":"public_echo","Name":"notebook_append","arguments":{}}"#,
        r#"{"arguments":{}}"#,
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
        let refused = world.send(session.post_raw(body).bearer(&token)).await;
        assert_eq!(refused.fault(), (403, -31003, "forbidden".to_owned()), "{params}");
    }
}

#[tokio::test]
async fn a_batch_is_refused_as_a_whole() {
    let world = World::with(RULES).await;
    let token = world.token_with("alice", &json!({ "scope": "mcp:use" }));
    let first = crate::support::session::initialize("2025-03-26").bearer(&token);
    let session = Session::of(world.address(), "/mcp", &world.send(first).await);
    let batch = json!([
        { "jsonrpc": "2.0", "id": 1, "method": "ping" },
        { "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": "notebook_append", "arguments": {} } },
    ]);
    let refused = world.send(session.post(&batch).bearer(&token)).await;
    assert_eq!(refused.fault().0, 403);
}

/// A node with two servers behind, of which the second needs a scope of its own.
async fn with_two_servers(rules: &str) -> World {
    let echo = env!("CARGO_BIN_EXE_tenure");
    let backend = |name: &str| format!("[[backend]]\nname = \"{name}\"\ncommand = [\"{echo}\", \"stdio\"]\n");
    World::with(&format!("{rules}{}{}", backend("a"), backend("b"))).await
}

#[tokio::test]
async fn the_scopes_of_a_server_count_for_every_request_to_it_at_the_endpoint_of_all() {
    let world = with_two_servers("scopes = [\"* = mcp:use\", \"b/* = b:use\"]\n").await;
    let narrow = world.token_with("alice", &json!({ "scope": "mcp:use" }));
    let wide = world.token_with("alice", &json!({ "scope": "mcp:use b:use" }));
    let session = world.session(&narrow).await;
    let get = |name: &str| {
        let (method, params) = (
            "prompts/get",
            json!({ "name": name, "arguments": { "topic": "x", "language": "rust", "code": "x" } }),
        );
        [session.request(3, method, &params), modern::ask(3, method, &params)]
    };
    let list = session.request(1, "prompts/list", &json!({}));
    let of = |list: Value| -> Vec<String> {
        let prompts =
            list["result"]["prompts"].as_array().unwrap_or_else(|| panic!("no list: {list}")).clone();
        prompts.iter().map(|prompt| prompt["name"].as_str().unwrap().to_owned()).collect()
    };
    let all = of(world.send(session.request(1, "prompts/list", &json!({})).bearer(&wide)).await.json());
    let seen = world.send(list.bearer(&narrow)).await.json();
    assert_eq!(seen["result"].get("_meta"), None, "nothing is said of what is not theirs: {seen}");
    let seen = of(seen);
    let of_b = all.iter().find(|name| name.starts_with("b__")).expect("b has prompts").clone();
    assert!(!seen.is_empty() && seen.iter().all(|name| name.starts_with("a__")), "{seen:?}");
    for ask in get(&of_b) {
        let refused = world.send(ask.bearer(&narrow)).await;
        assert_eq!(
            refused.fault(),
            (403, -31003, "forbidden".to_owned()),
            "a name tells the server: {refused:?}"
        );
        assert!(challenge(&refused).1.contains("b:use"), "{:?}", challenge(&refused));
    }
    for ask in get(&of_b) {
        assert_eq!(world.send(ask.bearer(&wide)).await.json()["error"].get("data"), None);
    }
    // A completion names its prompt inside: only the layer in front of the server sees that.
    let params =
        json!({ "ref": { "type": "ref/prompt", "name": of_b }, "argument": { "name": "x", "value": "" } });
    let asks = || {
        [session.request(4, "completion/complete", &params), modern::ask(4, "completion/complete", &params)]
    };
    for ask in asks() {
        let refused = world.send(ask.bearer(&narrow)).await.json();
        assert_eq!(refused["error"]["data"]["reason"], "forbidden", "{refused}");
        assert_eq!(refused["error"]["data"]["requiredScopes"], json!(["b:use"]));
    }
    for ask in asks() {
        let answer = world.send(ask.bearer(&wide)).await.json();
        assert_ne!(answer["error"]["data"]["reason"], "forbidden", "{answer}");
    }
}

#[tokio::test]
async fn a_resource_of_a_server_needs_the_scopes_of_that_server() {
    let echo = env!("CARGO_BIN_EXE_tenure");
    let rules = "scopes = [\"* = mcp:use\", \"b/* = b:use\"]\n";
    let world =
        World::with(&format!("{rules}[[backend]]\nname = \"b\"\ncommand = [\"{echo}\", \"stdio\"]\n")).await;
    let narrow = world.token_with("alice", &json!({ "scope": "mcp:use" }));
    let wide = world.token_with("alice", &json!({ "scope": "mcp:use b:use" }));
    let session = world.session(&narrow).await;
    let notebook = json!({ "uri": "demo://notebook" });
    for method in ["resources/read", "resources/subscribe", "resources/unsubscribe"] {
        let refused = world.send(session.request(2, method, &notebook).bearer(&narrow)).await.json();
        assert_eq!(refused["error"]["data"]["requiredScopes"], json!(["b:use"]), "{method}: {refused}");
    }
    let modern = world
        .send(
            modern::ask(2, "resources/read", &notebook).header("Mcp-Name", "demo://notebook").bearer(&narrow),
        )
        .await
        .json();
    assert_eq!(modern["error"]["data"]["reason"], "forbidden", "{modern}");
    let read = world.send(session.request(3, "resources/read", &notebook).bearer(&wide)).await.json();
    assert_ne!(read["error"]["data"]["reason"], "forbidden", "{read}");
}

#[tokio::test]
async fn at_the_endpoint_of_one_server_tools_are_judged_by_their_own_names() {
    // The name looks like one of `a` at the endpoint of all.
    let rules = "scopes = [\"* = mcp:use\", \"a/echo = a:echo\", \"public_echo = other\", \"b/public_echo = b:echo\"]\n";
    let world = with_two_servers(rules).await;
    let claims = json!({ "scope": "mcp:use b:echo", "aud": format!("{PUBLIC}/mcp/b") });
    let token = world.token_with("alice", &claims);
    let first = crate::support::session::initialize("2025-11-25").at("/mcp/b").bearer(&token);
    let session = Session::of(world.address(), "/mcp/b", &world.send(first).await);
    let ready = crate::support::session::notification("notifications/initialized");
    assert_eq!(world.send(session.post(&ready).bearer(&token)).await.status(), 202);
    let params = json!({ "name": "public_echo", "arguments": { "text": "x" } });
    let answer = world.send(session.request(1, "tools/call", &params).bearer(&token)).await.json();
    assert_eq!(answer["result"]["content"][0]["text"], "x", "{answer}");
    let list = world.send(session.request(2, "tools/list", &json!({})).bearer(&token)).await.json();
    assert!(names(&list).contains(&"public_echo".to_owned()), "{list}");
}

#[tokio::test]
async fn a_caller_without_the_scope_for_everything_may_greet_and_give_up_and_tell_nothing_else() {
    let world = World::with(RULES).await;
    let token = world.token_with("alice", &json!({ "scope": "notes:read" }));
    let session = world.session(&token).await;
    let tell = |method: &str| session.post(&crate::support::session::notification(method));
    for (method, status) in [
        ("notifications/initialized", 202),
        ("notifications/cancelled", 202),
        ("notifications/roots/list_changed", 403),
        ("notifications/progress", 403),
        ("notifications/of/their/own", 403),
    ] {
        assert_eq!(world.send(tell(method).bearer(&token)).await.status(), status, "{method}");
    }
    // An answer belongs to a call that was allowed when it was sent.
    let answer = session.post(&json!({ "jsonrpc": "2.0", "id": 1, "result": {} }));
    assert_eq!(world.send(answer.bearer(&token)).await.status(), 202);
}

#[tokio::test]
async fn a_refusal_repeats_no_name_of_any_length() {
    let world = World::with(RULES).await;
    let token = world.token_with("alice", &json!({ "scope": "mcp:use" }));
    let session = world.session(&token).await;
    let params = json!({ "name": format!("notebook_{}", "x".repeat(200_000)), "arguments": {} });
    let refused = world.send(session.request(1, "tools/call", &params).bearer(&token)).await;
    assert_eq!(refused.fault().0, 403);
    assert!(refused.body.len() < 1000 && challenge(&refused).1.len() < 1000, "{}", refused.body.len());
}

#[tokio::test]
async fn a_rule_for_a_server_that_is_not_there_is_a_mistake() {
    let folder = tempfile::tempdir().unwrap();
    let echo = env!("CARGO_BIN_EXE_tenure");
    let backend = format!("[[backend]]\nname = \"files\"\ncommand = [\"{echo}\", \"stdio\"]\n");
    let rows = [
        ("fils/read_* = x", backend.as_str(), "the backends are files"),
        ("mail*/read_* = x", &backend, "the backends are files"),
        ("files/read_* = x", "", "leave out the part in front of the `/`"),
        ("f*/read_* = x", &backend, ""),
    ];
    for (rule, backend, hint) in rows {
        let lines = format!("scopes = [\"{rule}\"]\n{backend}");
        let config = super::world::config("https://id.example", &folder, &lines, &[]);
        match tenure::Node::start(&config).await {
            Ok(_) => assert_eq!(hint, "", "{rule}"),
            Err(failure) => {
                let text = format!("{failure:?}");
                assert!(
                    !hint.is_empty() && text.contains(hint) && text.contains("there is no such backend"),
                    "{rule}: {text}"
                );
            }
        }
    }
}
