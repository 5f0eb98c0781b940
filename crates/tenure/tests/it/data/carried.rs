//! States that clients carry in their cookies, for a server that has lost its store.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_layers::data::Policy;
use tenure_session::Principal;
use tenure_store::sealed::keys::{SealKeys, generate};

use super::world::{Client, World};

const DRAFT: &str = "io.modelcontextprotocol/session";

fn policy(keys: &SealKeys) -> Policy {
    Policy { seal: Some(Arc::new(keys.clone())), ..Policy::default() }
}

fn keys() -> SealKeys {
    SealKeys::parse(&generate()).expect("a key")
}

async fn ask(client: &Client, method: &str, params: &Value) -> Value {
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    serde_json::from_str(&client.send_raw(&request.to_string()).await).expect("JSON")
}

async fn call(client: &Client, tool: &str, meta: &Value) -> Value {
    ask(client, "tools/call", &json!({ "name": tool, "arguments": { "text": "n" }, "_meta": meta })).await
}

/// Makes a session and counts to one; returns the cookie as it is to be sent back.
async fn counted(client: &Client) -> Value {
    let made = ask(client, "session/create", &json!({})).await;
    let cookie = made["result"]["_meta"].clone();
    call(client, "session_counter_inc", &cookie).await["result"]["_meta"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_server_that_has_lost_its_store_puts_the_state_back() {
    let keys = keys();
    let client = World::new(policy(&keys)).client("{}").await;
    let cookie = counted(&client).await;
    let elsewhere = World::new(policy(&keys)).client("{}").await;
    let answer = call(&elsewhere, "session_counter_inc", &cookie).await;
    assert_eq!(answer["result"]["structuredContent"]["counter"], 2);
    let answer = call(&elsewhere, "session_counter_inc", &cookie).await;
    assert_eq!(
        answer["result"]["structuredContent"]["counter"], 3,
        "what the store has counts, not the old cookie"
    );
    let deleted = ask(&elsewhere, "session/delete", &json!({ "_meta": cookie })).await;
    assert_eq!(deleted["result"]["deleted"], true);
    let answer = call(&elsewhere, "session_counter_inc", &cookie).await;
    assert_eq!(answer["error"]["data"]["reason"], "session_deleted", "it does not come back from the dead");
}

/// The notes of B.5 that clients carry.
#[tokio::test(start_paused = true)]
async fn notes_that_clients_carry_outlive_the_store() {
    let keys = keys();
    let client = World::new(policy(&keys)).client("{}").await;
    let made = ask(&client, "session/create", &json!({})).await;
    let noted = call(&client, "client_notes_add", &made["result"]["_meta"]).await;
    let elsewhere = World::new(policy(&keys)).client("{}").await;
    let listed = call(&elsewhere, "client_notes_list", &noted["result"]["_meta"]).await;
    assert_eq!(listed["result"]["structuredContent"], json!({ "notes": ["n"] }));
}

#[tokio::test(start_paused = true)]
async fn the_other_dialect_carries_it_too() {
    let keys = keys();
    let client = World::new(policy(&keys)).client("{}").await;
    let made = ask(&client, "sessions/create", &json!({})).await["result"]["session"].clone();
    let cookie = |state: &Value| json!({ DRAFT: { "sessionId": made["sessionId"], "state": state } });
    let answer = call(&client, "session_counter_inc", &cookie(&made["state"])).await;
    let state = &answer["result"]["_meta"][DRAFT]["state"];
    assert!(state.is_string() && *state != made["state"]);
    let elsewhere = World::new(policy(&keys)).client("{}").await;
    let answer = call(&elsewhere, "session_counter_get", &cookie(state)).await;
    assert_eq!(answer["result"]["structuredContent"]["counter"], 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_changed_or_is_anothers_is_worth_nothing() {
    let keys = keys();
    let client = World::new(policy(&keys)).client("{}").await;
    let cookie = counted(&client).await;
    let lost = |answer: &Value| answer["error"]["data"]["reason"] == "session_not_found";

    let bob = World::new(policy(&keys)).client_of("{}", Principal::named("bob")).await;
    assert!(lost(&call(&bob, "session_counter_get", &cookie).await), "another principal");
    let other_key = World::new(policy(&self::keys())).client("{}").await;
    assert!(lost(&call(&other_key, "session_counter_get", &cookie).await), "another key");
    let no_key = World::new(Policy::default()).client("{}").await;
    assert!(lost(&call(&no_key, "session_counter_get", &cookie).await), "no key");

    let fresh = World::new(policy(&keys)).client("{}").await;
    let state = cookie["mcp/session"]["state"].as_str().unwrap();
    let mut changed = cookie.clone();
    let last = if state.ends_with('A') { "B" } else { "A" };
    changed["mcp/session"]["state"] = format!("{}{last}", &state[..state.len() - 1]).into();
    assert!(lost(&call(&fresh, "session_counter_get", &changed).await), "changed");
    let mut swapped = cookie.clone();
    swapped["mcp/session"]["id"] = format!("sess-{}", "0".repeat(32)).into();
    assert!(lost(&call(&fresh, "session_counter_get", &swapped).await), "under another name");
}

#[tokio::test(start_paused = true)]
async fn what_is_carried_is_good_for_as_long_as_ends_are_remembered() {
    let keys = keys();
    let first = World::new(policy(&keys));
    let client = first.client("{}").await;
    let cookie = counted(&client).await;
    // Both clocks begin at the same time, so the second is the first an hour later.
    let later = World::new(policy(&keys));
    tokio::time::advance(Duration::from_secs(3601)).await;
    let answer = call(&later.client("{}").await, "session_counter_get", &cookie).await;
    assert_eq!(answer["error"]["data"]["reason"], "session_expired");
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_into_a_cookie_is_not_carried() {
    let client = World::new(policy(&keys())).client("{}").await;
    let cookie = counted(&client).await;
    let id = json!({ "mcp/session": { "id": cookie["mcp/session"]["id"] } });
    let note = "n".repeat(4000);
    let params = json!({ "name": "notebook_append", "arguments": { "text": note }, "_meta": id });
    let answer = ask(&client, "tools/call", &params).await;
    let cookie = &answer["result"]["_meta"]["mcp/session"];
    assert!(cookie["expiry"].is_string() && cookie["state"].is_null(), "{cookie}");
}

#[tokio::test(start_paused = true)]
async fn a_client_without_a_session_carries_it_too() {
    let (keys, knowing) = (keys(), json!({ "extensions": { "dev.tenure/sessions": {} } }));
    let mut client = World::new(policy(&keys)).modern(knowing.clone());
    let made = client.ask("dev.tenure/session/create", json!({})).await;
    let count = |cookie: &Value| json!({ "name": "session_counter_inc", "_meta": { "dev.tenure/session": cookie["dev.tenure/session"] } });
    let counted = client.ask("tools/call", count(&made["result"]["_meta"])).await;
    let cookie = &counted["result"]["_meta"];
    assert!(cookie["dev.tenure/session"]["state"].is_string(), "{counted}");
    let mut elsewhere = World::new(policy(&keys)).modern(knowing.clone());
    let answer = elsewhere.ask("tools/call", count(cookie)).await;
    assert_eq!(answer["result"]["structuredContent"]["counter"], 2, "{answer}");
    // The methods put it back as well, whatever else they do.
    let mut elsewhere = World::new(policy(&keys)).modern(knowing);
    let params = json!({ "_meta": { "dev.tenure/session": cookie["dev.tenure/session"] } });
    let deleted = elsewhere.ask("dev.tenure/session/delete", params).await;
    assert_eq!(deleted["result"]["deleted"], true, "{deleted}");
    let answer = elsewhere.ask("tools/call", count(cookie)).await;
    assert_eq!(answer["error"]["data"]["reason"], "data_session_deleted", "{answer}");
}
