//! Handles: what a model sees of states, and what it is told when one is gone.

use std::time::Duration;

use expect_test::expect;
use serde_json::json;
use tenure_layers::data::Policy;
use tenure_session::Principal;

use super::world::{Client, World, at};

async fn tool(
    client: &Client,
    name: &str,
    arguments: &serde_json::Value,
    meta: &serde_json::Value,
) -> serde_json::Value {
    let params = json!({ "name": name, "arguments": arguments, "_meta": meta });
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    at(&client.send_raw(&request.to_string()).await, "/result")
}

async fn words(client: &Client, name: &str, arguments: serde_json::Value) -> String {
    let result = tool(client, name, &arguments, &json!({})).await;
    let mark = if result["isError"] == true { "! " } else { "" };
    format!("{mark}{}", result["content"][0]["text"].as_str().unwrap_or_default())
}

async fn create(client: &Client) -> String {
    let made = tool(client, "create_workspace", &json!({}), &json!({})).await;
    made["structuredContent"]["workspace_id"].as_str().expect("a handle").to_owned()
}

#[tokio::test(start_paused = true)]
async fn the_tools_of_a_kind_come_from_its_declaration() {
    let world = World::new(Policy::default());
    let client = world.client("{}").await;
    let listed = client.send_raw(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await;
    let tools = at(&listed, "/result/tools");
    let ours: Vec<_> = tools.as_array().unwrap().iter().rev().take(3).rev().collect();
    let shown = serde_json::to_string_pretty(&ours).unwrap();
    expect_test::expect_file!["snapshots/tools.json"].assert_eq(&shown);
    let counter =
        tools.as_array().unwrap().iter().find(|tool| tool["name"] == "session_counter_get").unwrap();
    assert_eq!(counter["inputSchema"]["properties"]["workspace_id"]["x-mcp-header"], "Workspace-Id");
}

#[tokio::test(start_paused = true)]
async fn a_model_makes_one_uses_it_and_destroys_it() {
    let world = World::new(Policy::default());
    let client = world.client("{}").await;
    let handle = create(&client).await;
    let said = |text: String| text.replace(&handle, "H");
    assert_eq!(
        words(&client, "notebook_append", json!({ "workspace_id": handle, "text": "n" })).await,
        r#"{"notes":1}"#
    );
    expect!["Destroyed workspace H."]
        .assert_eq(&said(words(&client, "destroy_workspace", json!({ "workspace_id": handle })).await));
    expect!["! The workspace `H` was destroyed. Create another with create_workspace."]
        .assert_eq(&said(words(&client, "notebook_read", json!({ "workspace_id": handle })).await));
    expect!["! The workspace `H` was destroyed. Create another with create_workspace."]
        .assert_eq(&said(words(&client, "destroy_workspace", json!({ "workspace_id": handle })).await));
}

#[tokio::test(start_paused = true)]
async fn a_model_is_told_what_to_do() {
    let world = World::new(Policy::default());
    let client = world.client("{}").await;
    let handle = create(&client).await;
    let said = |text: String| text.replace(&handle, "H");
    expect!["! Session required. Call session/create or session/resume first. Or call create_workspace and pass its workspace_id."]
        .assert_eq(&words(&client, "notebook_read", json!({})).await);
    expect!["! There is no workspace `workspace_made_up`. Create another with create_workspace."]
        .assert_eq(&words(&client, "notebook_read", json!({ "workspace_id": "workspace_made_up" })).await);
    expect!["! Say which workspace to destroy: pass its workspace_id."]
        .assert_eq(&words(&client, "destroy_workspace", json!({})).await);
    expect!["! A title is a text of up to 200 letters."]
        .assert_eq(&words(&client, "create_workspace", json!({ "title": 7 })).await);
    expect!["Without signing in, only the workspace of your own session is listed, and this session has no workspace."]
        .assert_eq(&words(&client, "list_workspaces", json!({})).await);
    tokio::time::advance(Duration::from_secs(2 * 3600)).await;
    expect!["! The workspace `H` has expired. Create another with create_workspace."]
        .assert_eq(&said(words(&client, "notebook_read", json!({ "workspace_id": handle })).await));
}

#[tokio::test(start_paused = true)]
async fn a_cookie_and_a_handle_name_the_same_or_the_call_is_refused() {
    let world = World::new(Policy::default());
    let client = world.client("{}").await;
    let handle = create(&client).await;
    let made = client.send_raw(r#"{"jsonrpc":"2.0","id":1,"method":"session/create"}"#).await;
    let cookie = json!({ "mcp/session": { "id": at(&made, "/result/id") } });
    let proven = tool(&client, "list_workspaces", &json!({}), &cookie).await;
    let own = proven["structuredContent"]["workspaces"][0]["workspace_id"].clone();
    assert_eq!(proven["structuredContent"]["workspaces"].as_array().unwrap().len(), 1);

    tool(&client, "session_counter_inc", &json!({}), &cookie).await;
    let both = tool(&client, "session_counter_inc", &json!({ "workspace_id": own }), &cookie).await;
    assert_eq!(both["structuredContent"]["counter"], 2, "two names, one state");
    assert!(both["_meta"]["mcp/session"]["expiry"].is_string());
    let by_handle = tool(&client, "session_counter_get", &json!({ "workspace_id": own }), &json!({})).await;
    assert_eq!(by_handle["structuredContent"]["counter"], 2);
    assert_eq!(by_handle["_meta"], json!(null), "a handle is no cookie");

    let differ = tool(&client, "session_counter_inc", &json!({ "workspace_id": handle }), &cookie).await;
    assert_eq!(differ["isError"], true);
    expect![
        "The call names two different things: its workspace_id and the session it is made in. Leave one out."
    ]
    .assert_eq(differ["content"][0]["text"].as_str().unwrap());

    let delete =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "session/delete", "params": { "_meta": cookie } });
    client.send_raw(&delete.to_string()).await;
    let gone = tool(&client, "session_counter_get", &json!({ "workspace_id": own }), &json!({})).await;
    assert_eq!(gone["isError"], true, "deleting a data session kills its handle");
}

#[tokio::test(start_paused = true)]
async fn two_principals_see_nothing_of_each_other() {
    let world = World::new(Policy::default());
    let ann = world.client_of("{}", Principal::named("ann")).await;
    let bob = world.client_of("{}", Principal::named("bob")).await;
    let handle = create(&ann).await;
    let made = ann.send_raw(r#"{"jsonrpc":"2.0","id":1,"method":"session/create"}"#).await;
    let id = at(&made, "/result/id");
    let id = id.as_str().unwrap();
    let never = format!("sess-{}", "0".repeat(32));
    // Whatever bob asks about ann's session he is told what he would be told of one that never was.
    for method in ["session/resume", "session/recover", "session/delete", "session/fork"] {
        let ask = |id: &str| {
            json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": { "id": id } }).to_string()
        };
        let hers = bob.send_raw(&ask(id)).await;
        assert_eq!(hers.replace(id, &never), bob.send_raw(&ask(&never)).await, "{method}");
        assert!(hers.contains("session_not_found"), "{hers}");
    }
    for key in ["mcp/session", "io.modelcontextprotocol/session"] {
        let ask = |tool: &str, id: &str| {
            let meta = json!({ key: { "id": id, "sessionId": id } });
            let params = json!({ "name": tool, "arguments": { "text": "x" }, "_meta": meta });
            json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string()
        };
        for tool in ["notebook_append", "public_echo"] {
            let hers = bob.send_raw(&ask(tool, id)).await;
            assert_eq!(hers.replace(id, &never), bob.send_raw(&ask(tool, &never)).await, "{tool}");
        }
    }
    let unknown = format!("workspace_{}", "A".repeat(22));
    for tool in ["notebook_read", "destroy_workspace"] {
        let hers = words(&bob, tool, json!({ "workspace_id": handle })).await;
        assert_eq!(
            hers.replace(&handle, &unknown),
            words(&bob, tool, json!({ "workspace_id": unknown })).await
        );
    }
    // Each lists their own.
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"session/list"}"#;
    assert_eq!(at(&bob.send_raw(list).await, "/result"), json!({ "sessions": [] }));
    let hers = at(&ann.send_raw(list).await, "/result/sessions");
    assert_eq!(hers.as_array().unwrap().len(), 2);
    let workspaces = tool(&ann, "list_workspaces", &json!({}), &json!({})).await;
    assert!(workspaces["structuredContent"]["workspaces"].to_string().contains(&handle));
    // And ann's is untouched.
    assert_eq!(words(&ann, "notebook_read", json!({ "workspace_id": handle })).await, r#"{"notes":[]}"#);
}
