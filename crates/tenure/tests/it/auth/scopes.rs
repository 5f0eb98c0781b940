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
