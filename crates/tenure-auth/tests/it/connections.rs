//! A connection that shows the same credentials again and again: what it was told first must not outlive what is true.

use rcgen::{CertificateParams, KeyPair};
use ring::digest::{SHA256, digest};
use serde_json::json;
use tenure_auth::keys::{ApiKeyFile, NewKey};
use tenure_auth::{ClientCertificate, ProtectedResource, UnixSeconds};

use crate::world::{NOW, World, reason};

/// More requests than it takes until a connection answers by what it was shown before.
const OFTEN: usize = 5;

#[tokio::test]
async fn credentials_that_were_good_on_a_connection_end_there_with_the_next_request() {
    let folder = tempfile::tempdir().unwrap();
    let file = ApiKeyFile::at(folder.path().join("keys.toml"));
    let key = file.add(NewKey { name: "ci".to_owned(), ..NewKey::default() }, NOW).unwrap();
    let world = World::with(|settings, _| settings.keys = Some(file.clone())).await;
    let token = world.token();
    let at = |seconds: u64| UnixSeconds(NOW.0 + seconds);
    let often = async |text: &str, who: &str| {
        for _ in 0..OFTEN {
            assert_eq!(world.bearer(text).await.unwrap().principal(), who);
        }
    };

    often(&token, "corp:alice").await;
    assert_eq!(reason(world.bearer_at(&token, at(700)).await), "expired");
    often(&token, "corp:alice").await;
    world.auth.revoke("corp:alice", NOW);
    assert_eq!(reason(world.bearer(&token).await), "revoked");
    world.auth.reinstate("corp:alice");
    often(&token, "corp:alice").await;

    often(key.expose(), "key:ci").await;
    assert_eq!(world.auth.keys()[0].1, Some(NOW));
    assert!(world.bearer_at(key.expose(), at(9)).await.is_ok());
    assert_eq!(world.auth.keys()[0].1, Some(at(9)), "each use is noted");
    file.revoke("ci").unwrap();
    world.auth.read_keys().unwrap();
    assert_eq!(reason(world.bearer(key.expose()).await), "unknown");
}

#[tokio::test]
async fn users_who_share_a_connection_are_told_apart_and_so_are_endpoints() {
    let world = World::new().await;
    let of = |user: &str| world.issuer.token(&world.claims_with(&json!({"sub": user})));
    let (alice, bobby) = (of("alice"), of("bobby"));
    assert_eq!(alice.len(), bobby.len(), "they differ in bytes alone");
    for turn in 0..20 {
        // Sometimes one of them several times in a row.
        let (token, who) = if turn % 5 < 3 { (&alice, "corp:alice") } else { (&bobby, "corp:bobby") };
        assert_eq!(world.bearer(token).await.unwrap().principal(), who);
    }
    for _ in 0..OFTEN {
        assert!(world.bearer(&alice).await.is_ok());
    }
    let other = ProtectedResource::new("https://h.example", "/mcp/other").unwrap();
    let headers = [("authorization", format!("Bearer {alice}"))];
    assert_eq!(reason(world.ask(&headers, None, &other, NOW).await), "audience");
}

#[tokio::test]
async fn a_bound_token_needs_its_certificate_on_each_request_of_a_connection() {
    let world = World::new().await;
    let certificate = |name: &str| {
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    };
    let (own, foreign) = (certificate("own.example"), certificate("foreign.example"));
    let thumbprint =
        base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, digest(&SHA256, &own));
    let (own, foreign) = (ClientCertificate::from_der(&own), ClientCertificate::from_der(&foreign));
    let token = world.issuer.token(&world.claims_with(&json!({"cnf": {"x5t#S256": thumbprint}})));
    let headers = [("authorization", format!("Bearer {token}"))];
    let ask = |certificate| world.ask(&headers, certificate, &world.endpoint, NOW);
    for _ in 0..OFTEN {
        assert!(ask(Some(&own)).await.is_ok());
    }
    assert_eq!(reason(ask(Some(&foreign)).await), "proof");
    assert_eq!(reason(ask(None).await), "proof");
}
