//! One token for all callers, by our own credentials.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::recorder::refusal;
use super::world::{BY_SECRET, World, echo};
use crate::auth::world::Bearing;
use crate::support::client::Response;
use crate::support::modern;
use crate::support::session::{Session, initialize};
use crate::support::wait::until;

/// The reason of an error in a 200, in which nothing of the server's own refusal may be.
fn refused(response: &Response) -> String {
    let text = format!("{response:?}");
    for word in ["upstream-realm", "evil", "-32099", "upstream-token", "s3cret"] {
        assert!(!text.contains(word), "{text}");
    }
    assert_eq!((response.status(), response.header("www-authenticate")), (200, None), "{text}");
    let error = &response.json()["error"];
    assert_eq!(error["code"], -31011, "{text}");
    error["data"]["reason"].as_str().unwrap_or_default().to_owned()
}

/// A session whose stream at the server is there: opening it later would find the token refused before a call does.
async fn listening(world: &World, token: &str) -> Session {
    let session = world.session(token).await;
    until("its stream", || world.seen().iter().any(|seen| seen.method == "GET")).await;
    session
}

#[tokio::test]
async fn all_callers_share_one_token_that_is_asked_for_as_configured() {
    let world = World::with(BY_SECRET).await;
    let (ann, bob) = (world.token("ann"), world.token("bob"));
    let (of_ann, of_bob) = (world.session(&ann).await, world.session(&bob).await);
    let calls = (1..=10).map(|id| world.send(echo(&of_ann, id, "hi").bearer(&ann)));
    let more = (1..=10).map(|id| world.send(echo(&of_bob, id, "hi").bearer(&bob)));
    for answer in join_all(calls).await.into_iter().chain(join_all(more).await) {
        assert!(answer.json()["result"].is_object(), "{answer:?}");
    }
    let asked = world.server.asked();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(asked[0].field("grant_type"), "client_credentials");
    assert_eq!(asked[0].field("resource"), world.recorder.url("/mcp"));
    assert_eq!(asked[0].field("scope"), "tools:use");
    assert_eq!(asked[0].basic.as_deref(), Some("gate%20way:s3cret%26of%20the%20gateway"));
    assert_eq!(world.seen_values("authorization"), ["Bearer upstream-token-1-gateway"]);
}

#[tokio::test]
async fn the_server_behind_may_name_its_authorization_server() {
    let by_discovery =
        "auth = \"client_credentials\"\nclient_id = \"gateway\"\nclient_secret = \"gateway-s3cret\"\n";
    let world = World::with(by_discovery).await;
    let (resource, server) = (world.recorder.url("/mcp"), world.server.url.clone());
    world.recorder.gate(move |seen| {
        (seen.path == "/.well-known/oauth-protected-resource/mcp").then(|| {
            let body = json!({"resource": resource, "authorization_servers": [server]}).to_string();
            format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            )
        })
    });
    let token = world.token("ann");
    let session = world.session(&token).await;
    let called = world.send(echo(&session, 1, "hi").bearer(&token)).await;
    assert!(called.json()["result"].is_object(), "{called:?}");
    assert_eq!(world.seen_values("authorization"), ["Bearer upstream-token-1-gateway"]);
    assert_eq!(world.server.asked()[0].basic.as_deref(), Some("gateway:gateway-s3cret"));
}

#[tokio::test]
async fn up3_a_refused_token_is_renewed_once_and_the_request_is_answered() {
    let world = World::with(BY_SECRET).await;
    let token = world.token("ann");
    let session = listening(&world, &token).await;
    // The server forgets the first token, as after a restart with a new key.
    world.recorder.gate(|seen| {
        (seen.header("authorization") == Some("Bearer upstream-token-1-gateway")).then(|| refusal(401))
    });
    let called = world.send(echo(&session, 1, "hi").bearer(&token)).await;
    assert!(called.json()["result"].is_object(), "{called:?}");
    let listed = world.send(modern::ask(2, "tools/list", &json!({})).bearer(&token)).await;
    assert!(listed.json()["result"].is_object(), "{listed:?}");
    assert_eq!(world.server.asked().len(), 2);
    let calls: Vec<_> = world.seen().into_iter().filter(|seen| seen.body.contains("\"hi\"")).collect();
    assert_eq!(calls.len(), 2, "it was sent once more");
    assert_eq!(calls[0].body, calls[1].body);
}

#[tokio::test]
async fn up3_many_requests_that_are_refused_at_once_cause_one_renewal() {
    let world = World::with(BY_SECRET).await;
    let token = world.token("ann");
    let session = world.session(&token).await;
    world.recorder.gate(|seen| {
        (seen.header("authorization") == Some("Bearer upstream-token-1-gateway")).then(|| refusal(401))
    });
    let calls = (1..=30).map(|id| world.send(echo(&session, id, "hi").bearer(&token)));
    for answer in join_all(calls).await {
        assert!(answer.json()["result"].is_object(), "{answer:?}");
    }
    assert_eq!(world.server.asked().len(), 2);
}

#[tokio::test]
async fn up3_a_server_that_refuses_twice_is_not_asked_again_and_not_relayed() {
    for status in [401, 403] {
        let world = World::with(BY_SECRET).await;
        let token = world.token("ann");
        let session = listening(&world, &token).await;
        world.recorder.gate(move |_| Some(refusal(status)));
        let before = world.seen().len();
        let called = world.send(echo(&session, 1, "hi").bearer(&token)).await;
        assert_eq!(refused(&called), "backend_unauthorized");
        let calls = world.seen()[before..].iter().filter(|seen| seen.body.contains("\"hi\"")).count();
        // 403 is no question of the token's age.
        let (expected_calls, expected_tokens) = if status == 401 { (2, 2) } else { (1, 1) };
        assert_eq!((calls, world.server.asked().len()), (expected_calls, expected_tokens), "{status}");
        // Another request within the next seconds finds the second token refused, and asks for no third.
        let again = world.send(echo(&session, 2, "again").bearer(&token)).await;
        assert_eq!(refused(&again), "backend_unauthorized");
        assert_eq!(world.server.asked().len(), expected_tokens);
        let modern = world.send(modern::ask(3, "tools/list", &json!({})).bearer(&token)).await;
        assert_eq!(refused(&modern), "backend_unauthorized");
        let fresh = world.send(initialize("2025-11-25").bearer(&token)).await;
        assert_eq!(refused(&fresh), "backend_unauthorized");
        // The session outlives it all.
        world.recorder.gate(|_| None);
        let after = world.send(echo(&session, 4, "after").bearer(&token)).await;
        assert!(after.json()["result"].is_object(), "{after:?}");
    }
}

#[tokio::test]
async fn up3_a_refusal_of_fixed_headers_is_not_relayed_either() {
    for status in [401, 403] {
        let world = World::with("headers = [\"Authorization: Bearer fixed\"]\n").await;
        world.recorder.gate(move |_| Some(refusal(status)));
        let token = world.token("ann");
        let fresh = world.send(initialize("2025-11-25").bearer(&token)).await;
        assert_eq!(refused(&fresh), "backend_unauthorized");
        let modern = world.send(modern::ask(1, "tools/list", &json!({})).bearer(&token)).await;
        assert_eq!(refused(&modern), "backend_unauthorized");
    }
}

#[tokio::test]
async fn an_authorization_server_that_refuses_or_is_away_is_asked_once_in_ten_seconds() {
    for refusal in [(401, json!({"error": "invalid_client"})), (503, Value::Null)] {
        let world = World::with(BY_SECRET).await;
        world.server.refuses(Some(refusal));
        let token = world.token("ann");
        for _ in 0..5 {
            let fresh = world.send(initialize("2025-11-25").bearer(&token)).await;
            assert_eq!(refused(&fresh), "backend_unauthorized");
        }
        assert_eq!(world.server.asked().len(), 1);
        assert_eq!(world.seen().len(), 0, "nothing is sent without a token");
    }
}

#[tokio::test]
async fn a_token_is_renewed_before_it_expires_and_no_request_waits() {
    let world = World::with(BY_SECRET).await;
    // Four fifths of five seconds are four.
    world.server.tokens_live(5);
    let token = world.token("ann");
    let session = world.session(&token).await;
    let began = std::time::Instant::now();
    let mut slowest = Duration::ZERO;
    while world.server.asked().len() < 2 {
        let sent = std::time::Instant::now();
        let called = world.send(echo(&session, 1, "hi").bearer(&token)).await;
        assert!(called.json()["result"].is_object(), "{called:?}");
        slowest = slowest.max(sent.elapsed());
        assert!(began.elapsed() < Duration::from_secs(20), "it was not renewed");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(began.elapsed() >= Duration::from_secs(3), "{:?}", began.elapsed());
    assert!(slowest < Duration::from_secs(3), "{slowest:?}");
}
