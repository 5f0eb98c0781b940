//! Data sessions of requests without a session: our own dialect, byte for byte, and what it shares with the others.

use std::sync::Arc;
use std::time::Duration;

use expect_test::{expect, expect_file};
use serde_json::{Value, json};
use tenure_layers::data::{Policy, Required};
use tenure_protocol::RpcError;
use tenure_session::Principal;
use tenure_session::backend::{Backend, Open, Opened};
use tenure_session::port::BoxFuture;

use super::world::{Modern, World, at};

const HOUR: Duration = Duration::from_secs(3600);
const KEY: &str = "dev.tenure/session";

/// What a client declares that knows data sessions.
fn knowing() -> Value {
    json!({ "extensions": { "dev.tenure/sessions": {} } })
}

fn cookie(id: &Value) -> Value {
    json!({ KEY: { "sessionId": id } })
}

async fn create(client: &mut Modern) -> Value {
    let made = client.ask("dev.tenure/session/create", json!({})).await;
    made["result"]["sessionId"].clone()
}

async fn tool(client: &mut Modern, name: &str, arguments: Value, meta: Value) -> Value {
    client.ask("tools/call", json!({ "name": name, "arguments": arguments, "_meta": meta })).await
}

fn told(answer: &Value) -> &Value {
    &answer["result"]["structuredContent"]
}

#[tokio::test(start_paused = true)]
async fn own() {
    let world = World::new(Policy::default());
    let mut client = world.modern(knowing());
    client.ask("server/discover", json!({})).await;
    client.remark("A tool that needs a session, and a client that has none.");
    tool(&mut client, "session_counter_inc", json!({}), json!({})).await;
    client.ask("resources/read", json!({ "uri": "demo://notebook" })).await;
    client.remark("Made with hints, and without.");
    let hints = json!({ "label": "review", "data": { "title": "Review" } });
    client.ask("dev.tenure/session/create", json!({ "hints": hints })).await;
    let id = create(&mut client).await;
    client.remark("Used: the whole cookie, or its id alone. It comes back with every answer.");
    tool(&mut client, "session_counter_inc", json!({}), cookie(&id)).await;
    tokio::time::advance(HOUR / 2).await;
    let whole = json!({ KEY: { "sessionId": id, "expiresAt": "2023-11-14T23:13:20Z" } });
    tool(&mut client, "session_counter_get", json!({}), whole).await;
    tool(&mut client, "public_echo", json!({ "text": "x" }), cookie(&id)).await;
    client.ask("resources/read", json!({ "uri": "demo://notebook", "_meta": cookie(&id) })).await;
    client.ask("prompts/list", json!({ "_meta": cookie(&id) })).await;
    client.remark("Resumed, forked, listed. Without signing in, only the one whose cookie comes along.");
    client.ask("dev.tenure/session/resume", json!({ "sessionId": id })).await;
    let fork = client.ask("dev.tenure/session/fork", json!({ "sessionId": id })).await;
    tool(&mut client, "session_counter_get", json!({}), cookie(&fork["result"]["sessionId"])).await;
    client.ask("dev.tenure/session/list", json!({})).await;
    client.ask("dev.tenure/session/list", json!({ "_meta": cookie(&id) })).await;
    client.remark("One that never was: refused where one is needed, taken back where none is.");
    let never = cookie(&json!("sess-1d99647ac338"));
    tool(&mut client, "session_counter_get", json!({}), never.clone()).await;
    tool(&mut client, "public_echo", json!({ "text": "x" }), never.clone()).await;
    client.ask("resources/read", json!({ "uri": "demo://notebook", "_meta": never })).await;
    client.remark("Revoked by the server; deleted by the client, by its cookie, once.");
    let second = create(&mut client).await;
    tool(&mut client, "session_probe", json!({ "action": "revoke" }), cookie(&second)).await;
    tool(&mut client, "session_counter_get", json!({}), cookie(&second)).await;
    client.ask("dev.tenure/session/delete", json!({ "_meta": cookie(&id) })).await;
    client.ask("dev.tenure/session/delete", json!({ "sessionId": id })).await;
    client.ask("dev.tenure/session/delete", json!({})).await;
    client.remark("Expired, and recovered.");
    let third = create(&mut client).await;
    tokio::time::advance(2 * HOUR).await;
    tool(&mut client, "session_counter_get", json!({}), cookie(&third)).await;
    client.ask("dev.tenure/session/recover", json!({ "sessionId": third })).await;
    tool(&mut client, "session_counter_get", json!({}), cookie(&third)).await;
    client.remark("What makes no sense.");
    tool(&mut client, "public_echo", json!({ "text": "x" }), json!({ KEY: {} })).await;
    client.ask("dev.tenure/session/resume", json!({ "sessionId": 7 })).await;
    client.ask("dev.tenure/session/list", json!({ "cursor": "zz" })).await;
    client.ask("dev.tenure/session/unheard_of", json!({})).await;
    client.ask("session/create", json!({})).await;
    expect_file!["snapshots/own.txt"].assert_eq(client.transcript());
}

#[tokio::test(start_paused = true)]
async fn the_extension_has_to_be_declared_for_its_methods_and_not_for_its_cookie() {
    let world = World::new(Policy::default());
    let id = create(&mut world.modern(knowing())).await;
    let mut client = world.modern(json!({}));
    for verb in ["create", "resume", "delete", "list", "recover", "fork"] {
        let refused = client.ask(&format!("dev.tenure/session/{verb}"), json!({ "sessionId": id })).await;
        assert_eq!(refused["error"]["code"], -32021, "{verb}");
        assert_eq!(refused["error"]["data"]["requiredCapabilities"], knowing());
    }
    let used = tool(&mut client, "session_counter_inc", json!({}), cookie(&id)).await;
    assert_eq!(told(&used)["counter"], 1, "{used}");
    assert_eq!(used["result"]["_meta"][KEY]["sessionId"], id);
    // A client that declared something once is not remembered.
    create(&mut world.modern(knowing())).await;
    let words = tool(&mut client, "session_counter_inc", json!({}), json!({})).await;
    expect!["This tool works on a workspace. Call create_workspace first, and pass the workspace_id that it returns."]
        .assert_eq(words["result"]["content"][0]["text"].as_str().unwrap_or_default());
    assert_eq!(words["result"]["isError"], true);
}

#[tokio::test(start_paused = true)]
async fn one_state_by_a_cookie_of_either_era_and_by_its_handle() {
    let world = World::new(Policy::default());
    let legacy = world.client("{}").await;
    let mut modern = world.modern(knowing());
    let made = tool(&mut modern, "create_workspace", json!({}), json!({})).await;
    let handle = told(&made)["workspace_id"].clone();
    assert!(handle.is_string(), "{made}");

    let id = create(&mut modern).await;
    let listed = tool(&mut modern, "list_workspaces", json!({}), cookie(&id)).await;
    let own = told(&listed)["workspaces"][0]["workspace_id"].clone();
    let count = |answer: &Value| told(answer)["counter"].clone();

    let by_cookie = tool(&mut modern, "session_counter_inc", json!({}), cookie(&id)).await;
    assert_eq!(count(&by_cookie), 1);
    let by_handle = tool(&mut modern, "session_counter_inc", json!({ "workspace_id": own }), json!({})).await;
    assert_eq!(count(&by_handle), 2);
    assert_eq!(by_handle["result"]["_meta"][KEY], Value::Null, "a handle is no cookie");
    for (number, meta) in [
        (3, json!({ "mcp/session": { "id": id } })),
        (4, json!({ "io.modelcontextprotocol/session": { "sessionId": id } })),
    ] {
        let params = json!({ "name": "session_counter_inc", "_meta": meta });
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let answer = legacy.send_raw(&request.to_string()).await;
        assert_eq!(at(&answer, "/result/structuredContent/counter"), number, "{answer}");
    }
    let both = tool(&mut modern, "session_counter_inc", json!({ "workspace_id": own }), cookie(&id)).await;
    assert_eq!(count(&both), 5);
    assert_eq!(both["result"]["_meta"][KEY]["sessionId"], id);
    let two = tool(&mut modern, "session_counter_inc", json!({ "workspace_id": handle }), cookie(&id)).await;
    assert_eq!(two["result"]["isError"], true, "two names of different things: {two}");

    // Deleted in one era, it is gone in the other, by all its names.
    let delete = json!({ "jsonrpc": "2.0", "id": 2, "method": "session/delete", "params": { "id": id } });
    assert_eq!(at(&legacy.send_raw(&delete.to_string()).await, "/result/deleted"), true);
    let gone = tool(&mut modern, "session_counter_get", json!({}), cookie(&id)).await;
    assert_eq!(gone["error"]["data"]["reason"], "data_session_deleted", "{gone}");
    let gone = tool(&mut modern, "session_counter_get", json!({ "workspace_id": own }), json!({})).await;
    assert_eq!(gone["result"]["isError"], true, "{gone}");
}

#[tokio::test(start_paused = true)]
async fn a_state_of_a_session_is_found_without_one() {
    let world = World::new(Policy::default());
    let legacy = world.client("{}").await;
    let made = legacy.send_raw(r#"{"jsonrpc":"2.0","id":1,"method":"session/create"}"#).await;
    let id = at(&made, "/result/id");
    let mut modern = world.modern(json!({}));
    let used = tool(&mut modern, "session_counter_inc", json!({}), cookie(&id)).await;
    assert_eq!(told(&used)["counter"], 1, "{used}");
}

#[tokio::test(start_paused = true)]
async fn another_principal_is_told_what_everybody_is_told_of_nothing() {
    let world = World::new(Policy::default());
    let mut ann = world.modern_of(knowing(), Principal::named("ann"));
    let mut bob = world.modern_of(knowing(), Principal::named("bob"));
    let id = create(&mut ann).await;
    let never = json!(format!("sess-{}", "0".repeat(32)));
    let said = |mut answer: Value| {
        answer["id"].take();
        answer.to_string()
    };
    let (hers, unknown) = (id.as_str().unwrap(), never.as_str().unwrap());
    for verb in ["resume", "recover", "delete", "fork"] {
        let method = format!("dev.tenure/session/{verb}");
        let asked = said(bob.ask(&method, json!({ "sessionId": id })).await);
        assert!(asked.contains("data_session_not_found"), "{asked}");
        let of_nothing = bob.ask(&method, json!({ "sessionId": never })).await;
        assert_eq!(asked.replace(hers, unknown), said(of_nothing), "{verb}");
    }
    for name in ["notebook_append", "public_echo"] {
        let asked = said(tool(&mut bob, name, json!({ "text": "x" }), cookie(&id)).await);
        let of_nothing = tool(&mut bob, name, json!({ "text": "x" }), cookie(&never)).await;
        assert_eq!(asked.replace(hers, unknown), said(of_nothing), "{name}");
    }
    let listed = bob.ask("dev.tenure/session/list", json!({ "_meta": cookie(&id) })).await;
    assert_eq!(listed["result"]["sessions"], json!([]));
    let listed = ann.ask("dev.tenure/session/list", json!({})).await;
    assert_eq!(listed["result"]["sessions"][0]["sessionId"], id);
    let read = tool(&mut ann, "notebook_read", json!({}), cookie(&id)).await;
    assert_eq!(told(&read)["notes"], json!([]), "hers is untouched");
}

#[tokio::test(start_paused = true)]
async fn what_an_operator_revokes_is_gone_at_once() {
    let world = World::new(Policy::default());
    let mut client = world.modern(knowing());
    let id = create(&mut client).await;
    let used = tool(&mut client, "session_counter_inc", json!({}), cookie(&id)).await;
    assert_eq!(told(&used)["counter"], 1);
    world.revoke_all().await;
    let refused = tool(&mut client, "session_counter_inc", json!({}), cookie(&id)).await;
    assert_eq!(
        (&refused["error"]["code"], &refused["error"]["data"]["reason"]),
        (&json!(-31043), &json!("data_session_revoked"))
    );
    let open = tool(&mut client, "public_echo", json!({ "text": "x" }), cookie(&id)).await;
    assert_eq!(open["result"]["_meta"].get(KEY), Some(&Value::Null), "taken back: {open}");
}

#[tokio::test(start_paused = true)]
async fn the_policy_holds_for_clients_without_a_session() {
    let world = World::new(Policy { required: Required::All, ..Policy::default() });
    for (capabilities, declared) in [(json!({}), false), (knowing(), true)] {
        let mut client = world.modern(capabilities);
        let refused = tool(&mut client, "public_echo", json!({ "text": "x" }), json!({})).await;
        assert_eq!(
            (&refused["error"]["code"], &refused["error"]["data"]["reason"]),
            (&json!(-31044), &json!("data_session_required"))
        );
        let lists = client.ask("prompts/list", json!({})).await;
        assert!(lists["result"]["prompts"].is_array(), "lists are open to all");
        if declared {
            let id = create(&mut client).await;
            let echoed = tool(&mut client, "public_echo", json!({ "text": "x" }), cookie(&id)).await;
            assert_eq!(echoed["result"]["content"][0]["text"], "x");
            let found = client.ask("server/discover", json!({})).await;
            let offered = &found["result"]["capabilities"]["extensions"]["dev.tenure/sessions"];
            assert_eq!(offered["required"], "all");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn params_that_make_no_sense_do_not_get_past_the_guard() {
    let world = World::new(Policy { required: Required::All, ..Policy::default() });
    let client = world.modern(json!({}));
    let meta = client.meta().to_string();
    for params in [
        format!(r#"{{"name":"public_echo","name":"public_echo","arguments":{{"text":"x"}},"_meta":{meta}}}"#),
        format!(r#"{{"name":null,"n\u0061me":"public_echo","arguments":{{"text":"x"}},"_meta":{meta}}}"#),
        format!(
            r#"{{"name":"public_echo","arguments":{{"text":"x"}},"arguments":{{"text":"x"}},"_meta":{meta}}}"#
        ),
    ] {
        let request = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
        let answer = client.send_raw(&request).await;
        assert_eq!(at(&answer, "/error/code"), -32602, "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn tools_are_listed_the_same_with_and_without_a_cookie() {
    let world = World::new(Policy::default());
    let mut client = world.modern(knowing());
    let id = create(&mut client).await;
    let without = client.ask("tools/list", json!({})).await;
    let with = client.ask("tools/list", json!({ "_meta": cookie(&id) })).await;
    assert_eq!(with["result"]["tools"], without["result"]["tools"]);
    assert_eq!(with["result"]["_meta"][KEY]["sessionId"], id);
    let legacy = world.client("{}").await;
    let listed = legacy.send_raw(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await;
    assert_eq!(at(&listed, "/result/tools"), without["result"]["tools"], "and in a session");
}

/// A server that knows only sessions.
struct SessionsOnly(Arc<dyn Backend>);

impl Backend for SessionsOnly {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        self.0.open(open)
    }
}

#[tokio::test(start_paused = true)]
async fn in_front_of_a_server_that_knows_only_sessions() {
    let server = Arc::new(SessionsOnly(Arc::new(tenure::demo::backend())));
    let world = World::around(server, Policy::default(), vec![tenure::demo::workspace()]);
    let mut client = world.modern(knowing());
    let found = client.ask("server/discover", json!({})).await;
    assert!(found["result"]["capabilities"]["extensions"]["dev.tenure/sessions"].is_object(), "{found}");
    let id = create(&mut client).await;
    // The server is in another session of ours: what tells it the state is the call.
    let used = tool(&mut client, "session_counter_inc", json!({}), cookie(&id)).await;
    assert_eq!(told(&used)["counter"], 1, "{used}");
    assert_eq!(used["result"]["_meta"][KEY]["sessionId"], id);
    let read = client.ask("resources/read", json!({ "uri": "demo://notebook" })).await;
    assert_eq!(read["error"]["code"], -31044, "{read}");
    let listed = client.ask("tools/list", json!({})).await;
    assert!(listed["result"]["tools"].to_string().contains("create_workspace"));
}
