//! What belongs to one principal is nothing to another: sessions, streams, data sessions.

use serde_json::json;

use super::world::{Bearing, World};
use crate::support::client::Ask;
use crate::support::modern;
use crate::support::session::{Session, initialize};

/// The same requests with the id of a session that is another's, and with one that never was.
fn with_ids(ask: impl Fn(&Session) -> Ask, session: &Session) -> [Ask; 2] {
    let unknown = Session { id: "0123456789abcdef0123456789abcdef".to_owned(), ..session.clone() };
    [ask(session), ask(&unknown)]
}

#[tokio::test]
async fn au6_a_session_of_another_is_byte_for_byte_an_unknown_one() {
    let doors = "[doors]\nsse = true\nrpc = true\npost_sse = true\nmcp_sse = true\nwebsocket = true\n";
    let world = World::with(doors).await;
    let (alice, bob) = (world.token("alice"), world.token("bob"));
    let session = world.session(&alice).await;
    let upgrade = |session: &Session| {
        Ask::new("GET", "/ws")
            .header("Mcp-Session-Id", &session.id)
            .header("Connection", "upgrade")
            .header("Upgrade", "websocket")
            .header("Sec-WebSocket-Version", "13")
            .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
    };
    type Way = Box<dyn Fn(&Session) -> Ask>;
    let ways: Vec<Way> = vec![
        Box::new(|session| session.request(1, "ping", &json!({}))),
        Box::new(|session| session.request(1, "tools/list", &json!({}))),
        Box::new(|session| session.post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))),
        Box::new(|session| session.post(&json!({ "jsonrpc": "2.0", "id": 1, "result": {} }))),
        Box::new(|session| session.post(&json!([{ "jsonrpc": "2.0", "id": 1, "method": "ping" }]))),
        Box::new(Session::get),
        Box::new(|session| session.get().header("Last-Event-ID", "1-1-00000000")),
        Box::new(Session::delete),
        Box::new(|session| session.request(1, "ping", &json!({})).at("/rpc")),
        Box::new(|session| session.request(1, "ping", &json!({})).at("/sse")),
        Box::new(|session| session.get().at("/sse")),
        Box::new(|session| session.get().at("/mcp/sse")),
        Box::new(upgrade),
    ];
    for (number, way) in ways.iter().enumerate() {
        let [foreign, unknown] = with_ids(way, &session).map(|ask| world.send(ask.bearer(&bob)));
        let (foreign, unknown) = (foreign.await, unknown.await);
        assert_eq!(foreign.status(), 404, "{number}: {foreign:?}");
        assert_eq!(format!("{foreign:?}"), format!("{unknown:?}"), "{number}");
    }
    let still = world.send(session.request(1, "ping", &json!({})).bearer(&alice)).await;
    assert_eq!(still.status(), 200, "bob could not end it");
}

#[tokio::test]
async fn au8_two_clients_of_one_user_share_data_sessions_and_not_sessions() {
    let world = World::start().await;
    let desk = world.token_with("alice", &json!({ "client_id": "desk" }));
    let phone = world.token_with("alice", &json!({ "client_id": "phone" }));
    let session = world.session(&desk).await;
    let foreign = world.send(session.request(1, "ping", &json!({})).bearer(&phone)).await;
    assert_eq!(foreign.fault(), (404, -32001, "session_not_found".to_owned()));
    let create = json!({ "name": "create_workspace", "arguments": {} });
    let made = world.send(session.request(2, "tools/call", &create).bearer(&desk)).await.json();
    let handle = made["result"]["structuredContent"]["workspace_id"].as_str().unwrap().to_owned();
    let count = json!({ "name": "session_counter_get", "arguments": { "workspace_id": handle } });
    let on_phone = world.session(&phone).await;
    let seen = world.send(on_phone.request(1, "tools/call", &count).bearer(&phone)).await.json();
    assert_eq!(seen["result"]["structuredContent"]["counter"], 0, "the workspace is alice's: {seen}");
    let bob = world.token("bob");
    let of_bob = world.session(&bob).await;
    let refused = world.send(of_bob.request(1, "tools/call", &count).bearer(&bob)).await.json();
    assert_eq!(refused["result"]["isError"], true, "to bob it is unknown: {refused}");
}

#[tokio::test]
async fn au8_a_call_is_resumed_by_its_client_alone() {
    let world = World::start().await;
    let desk = world.token_with("alice", &json!({ "client_id": "desk" }));
    let phone = world.token_with("alice", &json!({ "client_id": "phone" }));
    let params =
        json!({ "name": "long_task", "arguments": { "seconds": 3 }, "_meta": { "progressToken": 1 } });
    let mut stream = modern::ask(7, "tools/call", &params).bearer(&desk).open(world.address()).await;
    stream.message().await.expect("progress");
    let id = stream.last_id();
    let unknown = format!("call-{}{}", "0".repeat(32), &id[37..]);
    let resume = |id: &str| {
        let ask = Ask::new("GET", "/mcp").header("Accept", "text/event-stream").header("Last-Event-ID", id);
        ask.header("MCP-Protocol-Version", "2026-07-28")
    };
    let [foreign, never] = [&id, &unknown].map(|id| world.send(resume(id).bearer(&phone)));
    let (foreign, never) = (foreign.await.text(), never.await.text());
    assert!(never.contains("interrupted"), "{never}");
    // Each repeats the id that it was asked for, and a time that is spread by the id.
    let words = |text: &str| text.split_once("data: {").map(|(_, rest)| rest.to_owned()).unwrap();
    assert_eq!(words(&foreign), words(&never), "{foreign}");
    let mut back = resume(&id).bearer(&desk).open(world.address()).await;
    assert_eq!(back.rest().await.last().unwrap(), "result 7", "its own client goes on");
}

#[tokio::test]
async fn a_session_goes_on_with_the_next_token_and_wakes_for_its_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("disk:{}", folder.path().join("store").display());
    let world = World::with_settings("", &[("store", &store)]).await;
    let first = world.token("alice");
    let session = world.session(&first).await;
    let second = world.token_with("alice", &json!({ "jti": "2" }));
    assert_ne!(first, second);
    let ping = |session: &Session| session.request(1, "ping", &json!({}));
    assert_eq!(world.send(ping(&session).bearer(&second)).await.status(), 200);
    let World { node, issuer, .. } = world;
    node.stop().await;
    let keys = tempfile::tempdir().unwrap();
    let config = super::world::config(&issuer.url, &keys, "", &[("store", &store)]);
    let node = tenure::Node::start(&config).await.unwrap();
    let session = session.moved_to(node.address());
    let bob = {
        let claims = json!({
            "iss": issuer.url, "sub": "bob", "aud": format!("{}/mcp", super::world::PUBLIC), "client_id": "app",
            "exp": super::world::now().0 + 60,
        });
        issuer.token(&claims)
    };
    assert_eq!(ping(&session).bearer(&bob).send(node.address()).await.status(), 404);
    assert_eq!(ping(&session).bearer(&second).send(node.address()).await.status(), 200);
    let again = initialize("2025-11-25").bearer(&bob).send(node.address()).await;
    assert_eq!(again.status(), 200, "bob may have his own");
}
