//! `initialize`, answered out of a server's discovery; at once, out of memory, and after a restart.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_protocol::RpcError;
use tenure_session::Principal;
use tenure_testkit::fake_responder::discovery;
use tenure_testkit::runtime::{self, json_of};

use crate::over_exchanges::support::{World, quiet, send};

#[tokio::test]
async fn initialize_is_answered_out_of_the_servers_discovery() {
    let mut world = World::new();
    let capabilities = json!({ "roots": { "listChanged": true }, "elicitation": {}, "tasks": {} });
    let (_session, told) = world.introduced("2025-06-18", &capabilities, &discovery()).await;
    assert_eq!(
        told,
        json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {
                "tools": { "listChanged": true },
                "resources": { "subscribe": true, "listChanged": true },
                "prompts": {},
                "logging": {},
            },
            "serverInfo": { "name": "modern", "version": "1" },
            "instructions": "ask nicely",
        })
    );
}

#[tokio::test]
async fn a_server_without_a_name_gets_one() {
    let mut world = World::new();
    let (_session, told) = world.introduced("2025-11-25", &json!({}), &quiet()).await;
    assert_eq!(told["serverInfo"], json!({ "name": "server", "version": "unknown" }));
}

#[tokio::test]
async fn a_discovery_says_who_asks_and_what_can_be_relayed() {
    let mut world = World::new();
    let mut params = runtime::initialize("2025-11-25");
    params["capabilities"] =
        json!({ "roots": { "listChanged": true }, "tasks": {}, "experimental": { "x": {} } });
    let creating = world.sessions.create(runtime::request(0, "initialize", &params), &Principal::ANONYMOUS);
    let discovered = async {
        let asked = world.server.expect("server/discover").await;
        assert_eq!(asked.meta("protocolVersion"), "2026-07-28");
        assert_eq!(asked.meta("clientCapabilities"), json!({ "roots": {} }));
        assert_eq!(asked.meta("clientInfo"), json!({ "name": "test", "version": "1" }));
        assert_eq!(asked.context.protocol(), "2026-07-28");
        asked.answer(&quiet());
    };
    let (created, ()) = tokio::join!(creating, discovered);
    created.unwrap().session.unwrap();
}

#[tokio::test]
async fn a_server_that_cannot_be_discovered_refuses_the_session() {
    let mut world = World::new();
    let none = json!({ "supportedVersions": ["2025-11-25"], "capabilities": {} });
    for answer in [Err(RpcError::new(-32601, "no such method")), Ok(none), Ok(json!([]))] {
        let request = runtime::request(0, "initialize", &runtime::initialize("2025-11-25"));
        let creating = world.sessions.create(request, &Principal::ANONYMOUS);
        let discovered = async {
            let asked = world.server.expect("server/discover").await;
            match answer {
                Ok(result) => asked.answer(&result),
                Err(error) => asked.fail(error),
            }
        };
        let (created, ()) = tokio::join!(creating, discovered);
        let created = created.unwrap();
        assert!(created.session.is_none());
        assert!(runtime::parse(&created.answer)["error"].is_object());
    }
}

/// Opens sessions of these callers, one after the other, and says for which of them the server was asked.
async fn asked_for(world: &mut World, callers: &[&str], discovery: &Value) -> Vec<bool> {
    let mut asked = Vec::new();
    for caller in callers {
        let request = runtime::request(0, "initialize", &runtime::initialize("2025-11-25"));
        let principal = Principal::named(caller);
        let mut creating = std::pin::pin!(world.sessions.create(request, &principal));
        let is_asked = tokio::select! {
            created = &mut creating => {
                created.unwrap().session.unwrap();
                false
            }
            question = world.server.expect("server/discover") => {
                question.answer(discovery);
                creating.await.unwrap().session.unwrap();
                true
            }
        };
        asked.push(is_asked);
    }
    asked
}

#[tokio::test(start_paused = true)]
async fn a_discovery_is_kept_as_long_and_for_whom_the_server_says() {
    let callers = ["anna", "anna", "bert", "bert"];
    let said = |ttl: Value, scope: &str| {
        let mut said = quiet();
        (said["ttlMs"], said["cacheScope"]) = (ttl, json!(scope));
        said
    };
    let table = [
        (said(json!(60_000), "private"), [true, false, true, false]),
        (said(json!(60_000), "public"), [true, false, false, false]),
        (said(json!(0), "public"), [true; 4]),
        (said(json!(-1), "public"), [true; 4]),
        (said(Value::Null, "public"), [true; 4]),
    ];
    for (discovery, expected) in table {
        let mut world = World::new();
        assert_eq!(asked_for(&mut world, &callers, &discovery).await, expected, "{discovery}");
        tokio::time::sleep(Duration::from_secs(61)).await;
        assert_eq!(asked_for(&mut world, &callers[..1], &discovery).await, [true], "it expires");
    }
}

#[tokio::test]
async fn a_session_that_is_woken_discovers_its_server_anew_and_keeps_its_level() {
    let mut world = World::new();
    let session = world.session().await;
    let set = send(&session, 1, "logging/setLevel", &json!({ "level": "warning" }));
    assert_eq!(json_of(set.await.unwrap())["result"], json!({}));
    session.saved().await;
    let mut world = world.killed();
    let (id, sessions) = (*session.id(), world.sessions.clone());
    let finding = tokio::spawn(async move { sessions.find(&id, &Principal::ANONYMOUS).await });
    world.server.discovered().await;
    let session = finding.await.unwrap().unwrap();
    let _listen = world.server.expect("subscriptions/listen").await;
    let waiting = send(&Arc::clone(&session), 2, "tools/list", &json!({}));
    let asked = world.server.expect("tools/list").await;
    assert_eq!(asked.meta("logLevel"), "warning");
    asked.answer(&json!({ "tools": [] }));
    assert_eq!(json_of(waiting.await.unwrap())["result"], json!({ "tools": [] }));
}
