//! Tokens that are bound to a key or to a certificate.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{CertificateParams, KeyPair};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use tenure_auth::ClientCertificate;
use tenure_testkit::issuer::SigningKey;

use crate::world::{NOW, World, reason};

fn hash(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, text.as_bytes()))
}

/// The thumbprint of a key on P-256.
fn thumbprint(key: &SigningKey) -> String {
    let jwk = key.jwk();
    let text = |name: &str| jwk[name].as_str().unwrap().to_owned();
    hash(&format!(r#"{{"crv":"P-256","kty":"EC","x":"{}","y":"{}"}}"#, text("x"), text("y")))
}

fn proof(key: &SigningKey, token: &str, id: &str, changes: &Value) -> String {
    let mut claims =
        json!({"jti": id, "htm": "POST", "htu": "https://h.example/mcp", "iat": NOW.0, "ath": hash(token)});
    for (name, value) in changes.as_object().unwrap() {
        claims[name] = value.clone();
    }
    key.sign(&json!({"alg": "ES256", "typ": "dpop+jwt", "jwk": key.jwk()}), &claims)
}

#[tokio::test]
async fn a_bound_token_needs_a_fresh_proof_by_its_key() {
    let world = World::with(|settings, _| settings.dpop = true).await;
    let key = SigningKey::es256("client");
    let token = world.issuer.token(&world.claims_with(&json!({"cnf": {"jkt": thumbprint(&key)}})));
    let ask = async |proof: String| {
        let headers = [("authorization", format!("DPoP {token}")), ("dpop", proof)];
        world.ask(&headers, None, &world.endpoint, NOW).await
    };
    let first = proof(&key, &token, "1", &json!({}));
    assert!(ask(first.clone()).await.is_ok());
    assert_eq!(reason(ask(first).await), "replayed");
    assert!(ask(proof(&key, &token, "2", &json!({"htu": "https://h.example/mcp/"}))).await.is_ok());
    let rows = [
        (json!({"htm": "GET"}), "other method"),
        (json!({"htu": "https://h.example/other"}), "other path"),
        (json!({"iat": NOW.0 - 301}), "too old"),
        (json!({"iat": NOW.0 + 301}), "too new"),
        (json!({"ath": hash("another token")}), "other token"),
        (json!({"ath": null}), "no token"),
    ];
    for (changes, what) in rows {
        assert_eq!(reason(ask(proof(&key, &token, what, &changes)).await), "proof", "{what}");
    }
    let other = SigningKey::es256("client");
    assert_eq!(reason(ask(proof(&other, &token, "3", &json!({}))).await), "proof");
    assert_eq!(reason(world.bearer(&token).await), "proof", "a bound token is no bearer token");
    let free = world.token();
    let headers = [("authorization", format!("DPoP {free}")), ("dpop", proof(&key, &free, "4", &json!({})))];
    assert_eq!(reason(world.ask(&headers, None, &world.endpoint, NOW).await), "proof");
}

#[tokio::test]
async fn a_token_that_is_bound_in_a_way_we_do_not_know_is_refused() {
    let world = World::new().await;
    let token = world.issuer.token(&world.claims_with(&json!({"cnf": {"kid": "x"}})));
    assert_eq!(reason(world.bearer(&token).await), "proof");
    for bound in [json!({"jkt": "x"}), json!({}), json!({"jkt": null})] {
        let token = world.issuer.token(&world.claims_with(&json!({"cnf": bound})));
        assert_eq!(reason(world.bearer(&token).await), "proof", "{bound}");
    }
}

#[tokio::test]
async fn a_certificate_is_an_identity_or_what_a_token_is_bound_to() {
    let world = World::with(|settings, _| settings.certificates = true).await;
    let certificate = |name: &str| {
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        (URL_SAFE_NO_PAD.encode(digest(&SHA256, made.der())), ClientCertificate::from_der(made.der()))
    };
    let (thumbprint, mine) = certificate("agent.example");
    let (_, other) = certificate("other.example");
    let identity = world.ask(&[], Some(&mine), &world.endpoint, NOW).await.unwrap();
    assert_eq!(identity.principal(), "cert:agent.example");
    world.auth.revoke("cert:agent.example", NOW);
    assert_eq!(reason(world.ask(&[], Some(&mine), &world.endpoint, NOW).await), "revoked");
    assert_eq!(reason(world.ask(&[], None, &world.endpoint, NOW).await), "missing");

    let token = world.issuer.token(&world.claims_with(&json!({"cnf": {"x5t#S256": thumbprint}})));
    let headers = [("authorization", format!("Bearer {token}"))];
    let asked = async |certificate| world.ask(&headers, certificate, &world.endpoint, NOW).await;
    assert_eq!(asked(Some(&mine)).await.unwrap().principal(), "corp:alice");
    assert_eq!(reason(asked(Some(&other)).await), "proof");
    assert_eq!(reason(asked(None).await), "proof");
}
