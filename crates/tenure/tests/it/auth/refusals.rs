//! Credentials that are refused: none of them reaches a server behind.

use serde_json::json;
use tenure_testkit::fake_backend::FakeBackend;
use tenure_testkit::issuer::{FakeIssuer, SigningKey};

use super::world::{Bearing, PUBLIC, World, challenge, config, now};
use crate::support::client::Ask;
use crate::support::session::initialize;

#[tokio::test]
async fn au2_bad_tokens_are_refused_in_the_words_of_the_standard_and_reach_nothing() {
    let (issuer, folder) =
        (FakeIssuer::start(SigningKey::es256("first")).await, tempfile::tempdir().unwrap());
    let (backend, mut script) = FakeBackend::new();
    let node = tenure::Node::with_backend(&config(&issuer.url, &folder, "", &[]), backend).await.unwrap();
    let good = |changes: serde_json::Value| {
        let mut claims = json!({
            "iss": issuer.url, "sub": "alice", "aud": format!("{PUBLIC}/mcp"), "exp": now().0 + 600,
        });
        for (name, value) in changes.as_object().unwrap() {
            match value {
                serde_json::Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
                value => claims[name] = value.clone(),
            }
        }
        claims
    };
    let key = issuer.key();
    let sign = |header: serde_json::Value, changes| key.sign(&header, &good(changes));
    let es256 = || json!({ "alg": "ES256", "kid": "first" });
    let foreign = SigningKey::es256("first");
    let rows = [
        ("expired", sign(es256(), json!({ "exp": now().0 - 100 }))),
        ("not yet", sign(es256(), json!({ "nbf": now().0 + 100 }))),
        ("other audience", sign(es256(), json!({ "aud": format!("{PUBLIC}/other") }))),
        ("no audience", sign(es256(), json!({ "aud": null }))),
        ("other issuer", sign(es256(), json!({ "iss": "https://evil.example" }))),
        ("issuer with a slash", sign(es256(), json!({ "iss": format!("{}/", issuer.url) }))),
        ("alg none", sign(json!({ "alg": "none", "kid": "first" }), json!({}))),
        ("HS256", sign(json!({ "alg": "HS256", "kid": "first" }), json!({}))),
        ("other key id", sign(json!({ "alg": "ES256", "kid": "x" }), json!({}))),
        ("critical", sign(json!({ "alg": "ES256", "kid": "first", "crit": ["x"] }), json!({}))),
        ("other key", foreign.sign(&es256(), &good(json!({})))),
        ("exp as text", sign(es256(), json!({ "exp": "9999999999" }))),
        ("no exp", sign(es256(), json!({ "exp": null }))),
        ("no subject", sign(es256(), json!({ "sub": null }))),
        ("bound to a key", sign(es256(), json!({ "cnf": { "jkt": "x" } }))),
        ("not a token", "a.b.c".to_owned()),
        ("opaque", "9f8e7d6c".to_owned()),
        ("a key that was never made", "tnr_0000000000000000000000000000000000000000000".to_owned()),
    ];
    for (what, token) in rows {
        let refused = initialize("2025-11-25").bearer(&token).send(node.address()).await;
        let (status, challenge) = challenge(&refused);
        assert_eq!(status, 401, "{what}");
        assert!(challenge.starts_with("Bearer error=\"invalid_token\""), "{what}: {challenge}");
        assert_eq!(refused.fault().2, "unauthorized", "{what}");
        assert!(!format!("{refused:?}").contains(&token), "{what}");
    }
    assert_eq!(script.opened_meanwhile(), 0, "none of them reached the server");
    let good = initialize("2025-11-25").bearer(&sign(es256(), json!({}))).send(node.address()).await;
    assert_eq!(good.status(), 200, "{good:?}");
    assert_eq!(script.opened_meanwhile(), 1);
}

#[tokio::test]
async fn credentials_that_cannot_be_read_are_a_bad_request() {
    let world = World::start().await;
    let token = world.token("alice");
    let call = || initialize("2025-11-25");
    let bearer = format!("Bearer {token}");
    let rows = [
        ("two of them", call().header("Authorization", &bearer).another("Authorization", &bearer)),
        ("two kinds", call().bearer(&token).header("X-API-Key", "tnr_x")),
        ("in the query", call().at(&format!("/mcp?access_token={token}"))),
        ("in the query too", call().at(&format!("/mcp?a=b&access_token={token}")).bearer(&token)),
        ("too long", call().bearer(&"x".repeat(9000))),
        ("no token", call().header("Authorization", "Bearer")),
    ];
    for (what, ask) in rows {
        let refused = world.send(ask).await;
        let (status, challenge) = challenge(&refused);
        assert_eq!((status, refused.fault().2.as_str()), (400, "malformed_credentials"), "{what}");
        assert!(challenge.starts_with("Bearer error=\"invalid_request\""), "{what}: {challenge}");
    }
    let basic = world.send(call().header("Authorization", "Basic YTpi")).await;
    assert_eq!(basic.status(), 401, "another scheme is no credentials");
    assert_eq!(world.send(call().bearer(&token)).await.status(), 200);
}

#[tokio::test]
async fn callers_whose_issuer_hangs_hold_up_no_other() {
    let world = World::start().await;
    let key = world.key("ci", "");
    // Another node, which has never had the keys of the issuer.
    world.issuer.hang(true);
    let (folder, path) = (tempfile::tempdir().unwrap(), world.key_file().path().display().to_string());
    let second = config(&world.issuer.url, &folder, "", &[("auth.keys_file", &path)]);
    let second = tenure::Node::start(&second).await.unwrap();
    let (done, has_answers) = tokio::sync::watch::channel(false);
    let waiting = (0..100).map(|number| {
        let ask = initialize("2025-11-25").bearer(&world.token(&format!("user-{number}")));
        ask.send(second.address())
    });
    let waiting = async {
        let answers = futures_util::future::join_all(waiting).await;
        done.send_replace(true);
        answers
    };
    let others = async {
        for _ in 0..20 {
            let begun = initialize("2025-11-25").header("X-API-Key", &key).send(second.address()).await;
            assert_eq!(begun.status(), 200, "{begun:?}");
        }
        assert!(!*has_answers.borrow(), "they were served while the others waited");
    };
    let (answers, ()) = tokio::join!(waiting, others);
    for answer in answers {
        assert_eq!(answer.fault(), (503, -31001, "auth_unavailable".to_owned()));
    }
}

#[tokio::test]
async fn a_file_of_keys_that_others_can_write_is_refused_at_the_start() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::start().await;
    let key = world.key("ci", "");
    std::fs::set_permissions(world.key_file().path(), std::fs::Permissions::from_mode(0o666)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = world.key_file().path().display().to_string();
    let second = config(&world.issuer.url, &folder, "", &[("auth.keys_file", &path)]);
    let refused = tenure::Node::start(&second).await.map(drop).unwrap_err();
    let said = format!("{refused:?}");
    assert!(said.contains("other users can write") && !said.contains(&key), "{said}");
}

#[tokio::test]
async fn au4_an_issuer_that_was_never_reached_is_not_the_callers_fault() {
    let world = World::start().await;
    let token = world.token("alice");
    assert_eq!(world.send(initialize("2025-11-25").bearer(&token)).await.status(), 200);
    world.issuer.fail(true);
    let folder = tempfile::tempdir().unwrap();
    let second = config(&world.issuer.url, &folder, "", &[]);
    let second = tenure::Node::start(&second).await.unwrap();
    let refused = initialize("2025-11-25").bearer(&token).send(second.address()).await;
    assert_eq!(refused.fault(), (503, -31001, "auth_unavailable".to_owned()));
    assert!(refused.header("retry-after").is_some());
    assert_eq!(Ask::new("GET", "/healthz").send(second.address()).await.status(), 200);
    // Where the keys are at hand, the outage is not noticed.
    assert_eq!(world.send(initialize("2025-11-25").bearer(&world.token("bob"))).await.status(), 200);
}
