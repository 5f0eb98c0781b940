//! Servers behind the layer that know nothing of data sessions, or keep their own.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_backend::native::{Handler, Introduction, Native};
use tenure_layers::data::{Policy, Required};
use tenure_protocol::{Method, RawJson, Reason, Reply, RpcError};
use tenure_session::backend::{Backend, Call};

use super::world::{Client, World, at};

/// Says back what it was asked, to the byte.
struct Stranger {
    capabilities: Value,
    tools: &'static str,
}

impl Handler for Stranger {
    fn introduction(&self) -> Introduction {
        Introduction {
            name: "stranger",
            version: "1",
            capabilities: self.capabilities.clone(),
            instructions: None,
        }
    }

    async fn call(self: Arc<Self>, call: Call) -> Reply {
        match call.request.method {
            Method::ToolsList if self.tools.is_empty() => {
                Err(RpcError::of(Reason::MethodNotFound, "no tools"))
            }
            Method::ToolsList => Ok(RawJson::trusted(self.tools)),
            _ => {
                let params = call.request.params.map_or(String::new(), |params| format!("{params:?}"));
                Ok(RawJson::of(&json!({ "method": call.request.method.as_str(), "params": params })))
            }
        }
    }
}

fn stranger(capabilities: Value, tools: &'static str) -> Arc<dyn Backend> {
    Arc::new(Native::new(move |_: &_| Stranger { capabilities: capabilities.clone(), tools }))
}

fn required(tools: &[&str]) -> Policy {
    let tools = tools.iter().map(|tool| (*tool).to_owned()).collect();
    Policy { required: Required::Tools(tools), ..Policy::default() }
}

async fn ask(client: &Client, request: &str) -> String {
    client.send_raw(request).await
}

#[tokio::test(start_paused = true)]
async fn the_policy_holds_and_the_cookie_passes_as_it_came() {
    let world = World::around(
        stranger(json!({ "tools": {} }), r#"{"tools":[]}"#),
        required(&["guarded"]),
        Vec::new(),
    );
    let client = world.client("{}").await;
    let call = |tool: &str, rest: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{ "name" : "{tool}",  "arguments":{{"n":1.50}}{rest}}}}}"#
        )
    };
    let refused = ask(&client, &call("guarded", "")).await;
    assert_eq!(at(&refused, "/error/code"), -32002, "{refused}");
    let open = ask(&client, &call("open", "")).await;
    assert_eq!(
        at(&open, "/result/params"),
        r#"{ "name" : "open",  "arguments":{"n":1.50}}"#,
        "not a byte is changed"
    );

    let made = ask(&client, r#"{"jsonrpc":"2.0","id":1,"method":"session/create"}"#).await;
    let id = at(&made, "/result/id");
    let cookie = format!(r#","_meta":{{ "mcp/session":{{"id":{id}}}, "progressToken":7}}"#);
    let passed = ask(&client, &call("guarded", &cookie)).await;
    assert_eq!(
        at(&passed, "/result/params"),
        format!(r#"{{ "name" : "guarded",  "arguments":{{"n":1.50}}{cookie}}}"#)
    );
    assert_eq!(at(&passed, "/result/_meta/mcp~1session/id"), id);
    // Requests that are not ours go to the server.
    let other = ask(&client, r#"{"jsonrpc":"2.0","id":1,"method":"session/unheard_of"}"#).await;
    assert_eq!(at(&other, "/result/method"), "session/unheard_of");
}

#[tokio::test(start_paused = true)]
async fn tools_are_marked_and_otherwise_left_as_they_are() {
    let tools = r#"{"tools":[{"name":"open","inputSchema":{"type" : "object","x":1.0}},{"name":"guarded","_meta":{"mine":true}}],"nextCursor":"c"}"#;
    let world = World::around(
        stranger(json!({ "tools": {} }), tools),
        required(&["guarded"]),
        vec![tenure::demo::workspace()],
    );
    let listed = ask(&world.client("{}").await, r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await;
    // There is another page, so our own tools come with that.
    let expected = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"open","inputSchema":{"type" : "object","x":1.0}},{"name":"guarded","_meta":{"mine":true,"sessionRequired":true}}],"nextCursor":"c"}}"#;
    assert_eq!(listed, expected);
}

#[tokio::test(start_paused = true)]
async fn a_server_without_tools_has_those_of_its_kinds() {
    let world = World::around(stranger(json!({}), ""), Policy::default(), vec![tenure::demo::workspace()]);
    let mut client = world.client("{}").await;
    assert!(client.transcript().contains(r#""tools":{}"#), "{}", client.transcript());
    let listed = client.send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await;
    assert_eq!(at(&listed, "/result/tools").as_array().map(Vec::len), Some(3));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_keeps_its_own_is_left_alone() {
    for own in
        [json!({ "sessions": {} }), json!({ "experimental": { "session": { "features": ["create"] } } })]
    {
        let world =
            World::around(stranger(own.clone(), r#"{"tools":[]}"#), required(&["guarded"]), Vec::new());
        let client = world.client("{}").await;
        let said = client.transcript().split("\n← ").nth(1).unwrap_or_default();
        assert_eq!(at(said, "/result/capabilities"), own);
        for request in [
            r#"{"jsonrpc":"2.0","id":1,"method":"session/create"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"guarded","_meta":{"mcp/session":{"id":"theirs"}}}}"#,
        ] {
            let answer = ask(&client, request).await;
            assert!(at(&answer, "/result/method").is_string(), "{answer}");
            assert!(at(&answer, "/result/_meta").is_null(), "{answer}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_session_it_is_guarded_and_gets_the_cookie_as_it_came() {
    let world = World::around(
        stranger(json!({ "tools": {} }), r#"{"tools":[],"ttlMs":60000,"cacheScope":"public"}"#),
        required(&["guarded"]),
        Vec::new(),
    );
    let mut client = world.modern(json!({ "extensions": { "dev.tenure/sessions": {} } }));
    let made = client.ask("dev.tenure/session/create", json!({})).await;
    let id = &made["result"]["sessionId"];
    let cookie = json!({ "dev.tenure/session": { "sessionId": id, "of": "mine" } });
    let passed = client.ask("tools/call", json!({ "name": "guarded", "_meta": cookie })).await;
    let arrived = at(passed["result"]["params"].as_str().expect("params"), "/_meta/dev.tenure~1session");
    assert_eq!(arrived, cookie["dev.tenure/session"]);
    assert_eq!(&passed["result"]["_meta"]["dev.tenure/session"]["sessionId"], id);
    let refused = client.ask("tools/call", json!({ "name": "guarded" })).await;
    assert_eq!(refused["error"]["code"], -31044, "{refused}");

    // A result that every client may cache must not contain a cookie.
    let open = client.ask("tools/list", json!({})).await;
    assert_eq!((&open["result"]["cacheScope"], &open["result"]["ttlMs"]), (&json!("public"), &json!(60000)));
    for cookie in [cookie, json!({ "dev.tenure/session": { "sessionId": "sess-none" } })] {
        let own = client.ask("tools/list", json!({ "_meta": cookie })).await;
        assert!(own["result"]["_meta"].get("dev.tenure/session").is_some(), "{own}");
        assert_eq!(own["result"]["cacheScope"], "private", "{own}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_keeps_its_own_without_sessions_is_left_alone() {
    let own = json!({ "extensions": { "dev.tenure/sessions": { "theirs": true } } });
    let world = World::around(stranger(own.clone(), r#"{"tools":[]}"#), required(&["guarded"]), Vec::new());
    // The first request of a client need not be a discovery.
    let mut client = world.modern(json!({}));
    let cookie = json!({ "dev.tenure/session": { "sessionId": "theirs" } });
    for (method, params) in [
        ("tools/call", json!({ "name": "guarded", "_meta": cookie })),
        ("dev.tenure/session/create", json!({})),
    ] {
        let answer = client.ask(method, params).await;
        assert_eq!(answer["result"]["method"], method, "{answer}");
        assert!(answer["result"]["_meta"].get("dev.tenure/session").is_none(), "{answer}");
    }
    let found = client.ask("server/discover", json!({})).await;
    assert_eq!(found["result"]["capabilities"], own);
}
