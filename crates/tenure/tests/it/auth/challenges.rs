//! The first contact: no credentials, where to get some, and which are refused.

use std::time::Duration;

use serde_json::{Value, json};

use super::world::{Bearing, PUBLIC, World, challenge};
use crate::support::client::{Ask, Connection};
use crate::support::modern;
use crate::support::session::{Session, initialize, notification};
use crate::support::wait::within;

const METADATA: &str = "/.well-known/oauth-protected-resource";

#[tokio::test]
async fn au1_a_caller_without_a_token_is_told_where_to_get_one() {
    let world = World::with("scopes = [\"* = mcp:use\"]\n").await;
    let response = world.send(initialize("2025-11-25")).await;
    let expected = format!("Bearer scope=\"mcp:use\", resource_metadata=\"{PUBLIC}{METADATA}/mcp\"");
    assert_eq!(challenge(&response), (401, expected));
    assert_eq!(response.fault(), (401, -31001, "unauthorized".to_owned()));
    assert_eq!(response.header("cache-control"), Some("no-store"));
    for path in [format!("{METADATA}/mcp"), METADATA.to_owned()] {
        let document = world.send(Ask::new("GET", &path)).await;
        assert_eq!(document.status(), 200, "{path}");
        assert_eq!(document.header("access-control-allow-origin"), Some("*"));
        let document: Value = serde_json::from_str(&document.text()).unwrap();
        assert_eq!(document["resource"], format!("{PUBLIC}/mcp"), "exactly as clients call it");
        assert_eq!(document["authorization_servers"], json!([world.issuer.url]));
        assert_eq!(document["scopes_supported"], json!(["mcp:use"]));
    }
    let preflight = Ask::new("OPTIONS", METADATA).header("Origin", "https://anywhere.example");
    assert_eq!(world.send(preflight).await.status(), 204);
}

/// Some clients send the head of a request and its body separately, and their next request on the same connection.
#[tokio::test]
async fn a_refused_request_is_read_to_its_end_and_its_connection_is_kept() {
    let world = World::with("").await;
    let (head, body) = head_and_body();
    let mut connection = Connection::open(world.address()).await;
    for _ in 0..3 {
        connection.write(&head).await;
        let early = tokio::time::timeout(Duration::from_millis(100), connection.head()).await;
        assert!(early.is_err(), "the refusal comes after the body");
        connection.write(&body).await;
        let refused = connection.response().await;
        assert_eq!((refused.status(), refused.header("connection")), (401, None));
    }
    connection.write(&Ask::new("GET", "/healthz").bytes()).await;
    assert_eq!(connection.response().await.status(), 200);
}

#[tokio::test]
async fn a_client_whose_refused_request_is_not_read_is_told_that_the_connection_ends() {
    let world = World::with("").await;
    let (head, _) = head_and_body();
    let head = String::from_utf8(head).unwrap();
    let large = head.replace("Content-Length: ", "Content-Length: 9");
    let waiting = head.replace("Content-Length: ", "Expect: 100-continue\r\nContent-Length: ");
    assert!(large != head && waiting != head, "{head}");
    // A body that does not come, one that is large, and one that the client has not begun to send.
    for head in [head, large, waiting] {
        let mut connection = Connection::open(world.address()).await;
        connection.write(head.as_bytes()).await;
        let refused = connection.response().await;
        assert_eq!((refused.status(), refused.header("connection")), (401, Some("close")), "{head}");
        assert_eq!(within("the connection is closed", connection.until_closed()).await, b"");
    }
}

/// A request without credentials, as two writes.
fn head_and_body() -> (Vec<u8>, Vec<u8>) {
    let mut head = initialize("2025-11-25").bytes();
    let end = head.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("the head ends") + 4;
    let body = head.split_off(end);
    (head, body)
}

#[tokio::test]
async fn au1_each_endpoint_is_a_resource_of_its_own() {
    let echo = env!("CARGO_BIN_EXE_tenure");
    let backends = format!(
        "[[backend]]\nname = \"a\"\ncommand = [\"{echo}\", \"stdio\"]\n\
         [[backend]]\nname = \"b\"\ncommand = [\"{echo}\", \"stdio\"]\n"
    );
    let world = World::with(&backends).await;
    for name in ["a", "b"] {
        let (path, metadata) = (format!("/mcp/{name}"), format!("{METADATA}/mcp/{name}"));
        let refused = world.send(initialize("2025-11-25").at(&path)).await;
        let expected = format!("Bearer resource_metadata=\"{PUBLIC}{metadata}\"");
        assert_eq!(challenge(&refused), (401, expected));
        let document = world.send(Ask::new("GET", &metadata)).await.text();
        let document: Value = serde_json::from_str(&document).unwrap();
        assert_eq!(document["resource"], format!("{PUBLIC}{path}"));
    }
    let for_a = world.token_with("alice", &json!({ "aud": format!("{PUBLIC}/mcp/a") }));
    let at = |path: &str| initialize("2025-11-25").at(path).bearer(&for_a);
    let response = world.send(at("/mcp/a")).await;
    assert_eq!(response.status(), 200);
    for path in ["/mcp/b", "/mcp"] {
        assert_eq!(world.send(at(path)).await.status(), 401, "{path}");
    }
    // A session of one endpoint is unknown at another, even with a token that is good at both.
    let both = json!({ "aud": [format!("{PUBLIC}/mcp/a"), format!("{PUBLIC}/mcp/b")] });
    let both = world.token_with("alice", &both);
    let session = Session::of(world.address(), "/mcp/b", &response);
    let foreign = world.send(session.request(1, "ping", &json!({})).bearer(&both)).await;
    assert_eq!(foreign.fault(), (404, -32001, "session_not_found".to_owned()));
}

#[tokio::test]
async fn every_way_in_asks_for_credentials_first() {
    let doors = "[doors]\nsse = true\nrpc = true\npost_sse = true\nmcp_sse = true\nwebsocket = true\n";
    let world = World::with(doors).await;
    let token = world.token("alice");
    let session = world.session(&token).await;
    let ping = || session.request(1, "ping", &json!({}));
    let upgrade = Ask::new("GET", "/ws")
        .header("Connection", "upgrade")
        .header("Upgrade", "websocket")
        .header("Sec-WebSocket-Version", "13")
        .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
    let ways = [
        ping(),
        session.post(&notification("notifications/cancelled")),
        session.post(&json!({ "jsonrpc": "2.0", "id": 1, "result": {} })),
        session.get(),
        session.delete(),
        Ask::new("PUT", "/mcp"),
        modern::ask(1, "tools/list", &json!({})),
        ping().at("/rpc"),
        ping().at("/sse"),
        session.get().at("/sse"),
        session.get().at("/mcp/sse"),
        ping().at("/messages?sessionId=00000000000000000000000000000000"),
        upgrade,
        Ask::post("this is not JSON"),
    ];
    for way in ways {
        let text = String::from_utf8_lossy(&way.bytes()).into_owned();
        let refused = world.send(way).await;
        assert_eq!(refused.fault(), (401, -31001, "unauthorized".to_owned()), "{text}");
        assert!(challenge(&refused).1.starts_with("Bearer resource_metadata="), "{text}");
    }
    assert_eq!(world.send(ping().bearer(&token)).await.status(), 200, "the session is as before");
    for path in ["/healthz", "/readyz"] {
        assert_eq!(world.send(Ask::new("GET", path)).await.status(), 200, "{path} needs none");
    }
}

#[tokio::test]
async fn keys_alone_have_no_metadata_and_no_link_to_any() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys.toml");
    let node = crate::support::node::demo_with(&[("auth.keys_file", keys.to_str().unwrap())]).await;
    let refused = initialize("2025-11-25").send(node.address()).await;
    assert_eq!(challenge(&refused), (401, "Bearer realm=\"tenure\"".to_owned()));
    for path in [METADATA.to_owned(), format!("{METADATA}/mcp")] {
        assert_eq!(Ask::new("GET", &path).send(node.address()).await.status(), 404, "{path}");
    }
}

#[tokio::test]
async fn a_key_is_good_until_it_is_revoked_without_a_restart() {
    let world = World::start().await;
    let key = world.key("ci", "");
    let with = |name: &str, value: String| initialize("2025-11-25").header(name, &value);
    // The file is looked at every second.
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
    let wait_for = |status: u16| {
        let (key, world) = (key.clone(), &world);
        async move {
            while world.send(with("X-API-Key", key.clone())).await.status() != status {
                assert!(tokio::time::Instant::now() < deadline, "it stays otherwise");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    };
    wait_for(200).await;
    assert_eq!(world.send(with("Authorization", format!("bearer {key}"))).await.status(), 200);
    world.key_file().revoke("ci").unwrap();
    wait_for(401).await;
}

#[tokio::test]
async fn a_browser_may_ask_with_a_token_and_read_the_challenge() {
    let world = World::with("[http]\nallowed_origins = [\"https://app.example.com\"]\n").await;
    let origin = "https://app.example.com";
    let preflight = Ask::new("OPTIONS", "/mcp")
        .header("Origin", origin)
        .header("Access-Control-Request-Method", "POST")
        .header("Access-Control-Request-Headers", "authorization,content-type,x-api-key,dpop");
    let answer = world.send(preflight).await;
    assert_eq!(answer.status(), 204, "it needs no credentials");
    let allowed = answer.header("access-control-allow-headers").unwrap();
    for name in ["authorization", "mcp-session-id", "last-event-id", "x-api-key", "dpop"] {
        assert!(allowed.contains(name), "{name}: {allowed}");
    }
    let refused = world.send(initialize("2025-11-25").header("Origin", origin)).await;
    assert_eq!(refused.status(), 401);
    assert_eq!(refused.header("access-control-allow-origin"), Some(origin));
    assert!(refused.header("access-control-expose-headers").unwrap().contains("WWW-Authenticate"));
    let foreign = world.send(initialize("2025-11-25").header("Origin", "https://evil.example")).await;
    assert_eq!(foreign.fault().0, 403, "where it comes from is looked at first");
}
