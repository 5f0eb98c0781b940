//! A token for each caller, in exchange for its own.

use futures_util::future::join_all;
use serde_json::json;
use tenure_testkit::token_server::FakeTokenServer;

use super::recorder::{Recorder, refusal};
use super::world::{EXCHANGE, World, echo};
use crate::auth::office::Office;
use crate::auth::world::{Bearing, now};
use crate::support::modern;
use crate::support::node::demo;
use crate::support::session::initialize;
use crate::support::wait::until;

#[tokio::test]
async fn up2_two_principals_have_two_tokens_and_a_hundred_calls_cause_one_request_for_each() {
    let world = World::with(EXCHANGE).await;
    let (ann, bob, eve) = (world.token("ann"), world.token("bob"), world.token("eve"));
    let list = |id: u64, token: &str| modern::ask(id, "tools/list", &json!({})).bearer(token);
    // The first request finds out which era the server speaks, and all others wait for that.
    assert!(world.send(list(0, &eve)).await.json()["result"].is_object());
    world.server.hold(true);
    let calls = (0..100).map(|id| world.send(list(id, if id % 2 == 0 { &ann } else { &bob })));
    let release = async {
        world.server.was_asked(3).await;
        world.server.hold(false);
    };
    let (answers, ()) = tokio::join!(join_all(calls), release);
    for answer in answers {
        assert!(answer.json()["result"].is_object(), "{answer:?}");
    }
    let asked = world.server.asked();
    assert_eq!(asked.len(), 3, "{asked:?}");
    let subjects: Vec<_> = asked.iter().map(|ask| ask.field("subject_token").to_owned()).collect();
    assert!(subjects.contains(&ann) && subjects.contains(&bob));
    for ask in &asked {
        assert_eq!(ask.field("grant_type"), "urn:ietf:params:oauth:grant-type:token-exchange");
        assert_eq!(ask.field("subject_token_type"), "urn:ietf:params:oauth:token-type:access_token");
        assert_eq!(ask.field("resource"), world.recorder.url("/mcp"));
        assert_eq!(ask.field("audience"), "behind");
        assert_eq!(ask.basic.as_deref(), Some("gateway:gateway-s3cret"));
    }
    let values = world.seen_values("authorization");
    assert_eq!(values.len(), 3, "{values:?}");
    for (user, token) in [("ann", &ann), ("bob", &bob)] {
        assert!(values.iter().any(|value| value.ends_with(user)), "{user}: {values:?}");
        assert!(!format!("{:?}", world.recorder.seen()).contains(token.as_str()));
    }
}

#[tokio::test]
async fn up2_sessions_and_what_belongs_to_them_have_their_callers_token() {
    let world = World::with(EXCHANGE).await;
    let (ann, bob) = (world.token("ann"), world.token("bob"));
    let (of_ann, of_bob) = (world.session(&ann).await, world.session(&bob).await);
    for (session, token, user) in [(&of_ann, &ann, "ann"), (&of_bob, &bob, "bob")] {
        let called = world.send(echo(session, 1, &format!("from {user}")).bearer(token)).await;
        assert!(called.json()["result"].is_object(), "{called:?}");
        assert_eq!(world.send(session.delete().bearer(token)).await.status(), 204);
    }
    crate::support::wait::until("two DELETEs", || {
        world.seen().iter().filter(|seen| seen.method == "DELETE").count() == 2
    })
    .await;
    // Each session there has been used with one token alone.
    let seen = world.seen();
    for id in seen.iter().filter_map(|seen| seen.header("mcp-session-id")) {
        let of_session = seen.iter().filter(|seen| seen.header("mcp-session-id") == Some(id));
        let tokens: std::collections::HashSet<_> =
            of_session.map(|seen| seen.header("authorization")).collect();
        assert_eq!(tokens.len(), 1, "{id}: {tokens:?}");
    }
    let from = |user: &str| {
        let call = seen.iter().find(|seen| seen.body.contains(&format!("from {user}"))).unwrap();
        call.header("authorization").unwrap().to_owned()
    };
    assert!(from("ann").ends_with("-ann") && from("bob").ends_with("-bob"));
    assert_eq!(world.server.asked().len(), 2);
}

#[tokio::test]
async fn a_token_of_the_same_user_with_other_scopes_is_exchanged_on_its_own() {
    let world = World::with(EXCHANGE).await;
    let narrow = world.token_with("ann", &json!({"scope": "read"}));
    let wide = world.token_with("ann", &json!({"scope": "read write"}));
    for token in [&wide, &narrow, &wide] {
        let listed = world.send(modern::ask(1, "tools/list", &json!({})).bearer(token)).await;
        assert!(listed.json()["result"].is_object(), "{listed:?}");
    }
    let asked: Vec<_> =
        world.server.asked().iter().map(|ask| ask.field("subject_token").to_owned()).collect();
    assert_eq!(asked, [wide, narrow]);
}

#[tokio::test]
async fn a_token_got_in_exchange_counts_no_longer_than_the_callers_own() {
    let world = World::with(EXCHANGE).await;
    let now = crate::auth::world::now().0;
    let short = world.token_with("ann", &json!({"exp": now + 2}));
    let session = world.session(&short).await;
    let called = world.send(echo(&session, 1, "hi").bearer(&short)).await;
    assert!(called.json()["result"].is_object(), "{called:?}");
    while crate::auth::world::now().0 < now + 3 {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    // The token is still accepted for a while, since clocks differ, and is exchanged no more.
    let late = world.send(echo(&session, 2, "late").bearer(&short)).await.json();
    assert_eq!(late["error"]["data"]["reason"], "backend_unauthorized", "{late}");
    // With the next token the session goes on.
    let next = world.token("ann");
    let again = world.send(echo(&session, 3, "again").bearer(&next)).await.json();
    assert!(again["result"].is_object(), "{again}");
    assert_eq!(world.server.asked().last().unwrap().field("subject_token"), next);
}

/// A call of a tool that does not end.
fn endless() -> serde_json::Value {
    json!({ "name": "long_task", "arguments": { "seconds": 3600, "interval_ms": 50 }, "_meta": { "progressToken": 1 } })
}

#[tokio::test]
async fn a_server_is_told_of_a_cancellation_and_an_end_after_the_callers_token_has_expired() {
    let world = World::with(EXCHANGE).await;
    let ends = now().0 + 2;
    let short = world.token_with("ann", &json!({"exp": ends}));
    let session = world.session(&short).await;
    let call = session.request(7, "tools/call", &endless()).bearer(&short);
    let mut call = call.open(world.address()).await;
    call.message().await.expect("progress");
    while now().0 <= ends {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    // The gateway still takes the token for a while, since clocks differ.
    let cancelled =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
    assert_eq!(world.send(session.post(&cancelled).bearer(&short)).await.status(), 202);
    let reaches = |what: &'static str| {
        world.seen().into_iter().find(|seen| seen.method == what || seen.body.contains(what))
    };
    until("the cancellation", || reaches("notifications/cancelled").is_some()).await;
    assert_eq!(world.send(session.delete().bearer(&short)).await.status(), 204);
    until("the end", || reaches("DELETE").is_some()).await;
    for what in ["notifications/cancelled", "DELETE"] {
        let token = reaches(what).and_then(|seen| seen.header("authorization").map(str::to_owned));
        assert_eq!(token.as_deref(), Some("Bearer upstream-token-1-ann"), "{what}");
    }
    assert_eq!(world.server.asked().len(), 1);
}

#[tokio::test]
async fn a_server_is_told_of_the_end_of_a_session_whose_principal_is_revoked() {
    let (behind, server) = (demo().await, FakeTokenServer::start().await);
    let recorder = Recorder::before(behind.address()).await;
    let upstream = EXCHANGE.replace("TOKEN_URL", &server.token_url());
    let upstream = format!("[upstream]\nurl = \"{}\"\npatience = \"0s\"\n{upstream}", recorder.url("/mcp"));
    let office = Office::with("", &upstream).await;
    let ann = office.token("ann", now().0 - 5);
    let session = office.session(&ann).await;
    let mut call = office.open_stream(session.request(1, "tools/call", &endless()), &ann).await;
    call.message().await.expect("progress");
    office.told(&["principals", "revoke", "corp:ann"]).await;
    let end = || recorder.seen().into_iter().find(|seen| seen.method == "DELETE");
    until("the end", || end().is_some()).await;
    assert_eq!(end().unwrap().header("authorization"), Some("Bearer upstream-token-1-ann"));
    assert_eq!(server.asked().len(), 1);
    behind.stop().await;
}

#[tokio::test]
async fn exchanges_of_tokens_are_recorded_without_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    let audit = format!("{EXCHANGE}[audit]\nfile = \"{}\"\n", file.display());
    let world = World::with(&audit).await;
    let ann = world.token("ann");
    world.session(&ann).await;
    world.server.refuses(Some((400, json!({"error": "invalid_target"}))));
    let refused = world.send(initialize("2025-11-25").bearer(&world.token("bob"))).await.json();
    assert_eq!(refused["error"]["data"]["reason"], "backend_unauthorized", "{refused}");
    let server = world.recorder.url("/mcp");
    world.node.stop().await;
    let text = std::fs::read_to_string(file).unwrap();
    let records = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let of = |record: serde_json::Value| {
        (record["event"] == "token_exchanged").then(|| {
            assert_eq!(record["name"], server.as_str());
            format!(
                "{} {} {} {}",
                record["principal"]["sub"],
                record["principal"]["client_id"],
                record["outcome"],
                record["reason"]
            )
        })
    };
    let told: Vec<_> = records.filter_map(of).collect();
    assert_eq!(told, [r#""ann" "app" "ok" null"#, r#""bob" "app" "error" "refused""#]);
    assert!(!text.contains(&ann) && !text.contains("upstream-token"));
}

#[tokio::test]
async fn callers_without_a_token_are_told_why_they_are_refused() {
    let world = World::with(EXCHANGE).await;
    world.server.refuses(Some((400, json!({"error": "invalid_target"}))));
    let token = world.token("ann");
    for _ in 0..3 {
        let fresh = world.send(initialize("2025-11-25").bearer(&token)).await.json();
        assert_eq!(fresh["error"]["data"]["reason"], "backend_unauthorized", "{fresh}");
    }
    assert_eq!(world.server.asked().len(), 1, "a refusal counts for ten seconds");
    // Another caller is not held up by that.
    world.server.refuses(None);
    world.session(&world.token("bob")).await;
}

#[tokio::test]
async fn up3_a_refused_token_of_one_caller_is_renewed_for_that_caller() {
    let world = World::with(EXCHANGE).await;
    let (ann, bob) = (world.token("ann"), world.token("bob"));
    let (of_ann, of_bob) = (world.session(&ann).await, world.session(&bob).await);
    world.recorder.gate(|seen| {
        (seen.header("authorization") == Some("Bearer upstream-token-1-ann")).then(|| refusal(401))
    });
    for (session, token) in [(&of_ann, &ann), (&of_bob, &bob)] {
        let called = world.send(echo(session, 1, "hi").bearer(token)).await;
        assert!(called.json()["result"].is_object(), "{called:?}");
    }
    let subjects: Vec<_> =
        world.server.asked().iter().map(|ask| ask.field("subject_token").to_owned()).collect();
    assert_eq!(subjects, [ann.clone(), bob, ann]);
}
