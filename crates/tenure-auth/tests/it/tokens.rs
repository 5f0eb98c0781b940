//! Signed tokens: the good ones are let in, and each kind of bad one is refused for its own reason.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serde_json::{Value, json};
use tenure_auth::{ProtectedResource, UnixSeconds};
use tenure_testkit::issuer::SigningKey;

use crate::world::{NOW, World, reason};

#[tokio::test]
async fn a_good_token_is_an_identity_with_any_allowed_algorithm() {
    let world = World::new().await;
    for key in [SigningKey::es256("ec"), SigningKey::ed25519("ed"), SigningKey::rsa("rsa")] {
        world.issuer.rotate(key);
        let world = &world;
        // Each rotation is seen because the cooldown is over.
        let now = UnixSeconds(NOW.0 + 31 * (1 + world.issuer.key_sets() as u64));
        let identity = world.bearer_at(&world.token(), now).await.unwrap();
        assert_eq!((identity.principal(), identity.client()), ("corp:alice", Some("app")));
        assert_eq!(identity.scopes().to_string(), "files:read");
        assert_eq!(identity.expires(), UnixSeconds(NOW.0 + 600));
    }
    let rsa = world.issuer.key();
    let header = json!({"alg": "PS256", "kid": "rsa", "typ": "JWT"});
    assert!(world.bearer(&rsa.sign(&header, &world.claims())).await.is_ok());
}

#[tokio::test]
async fn au2_each_bad_token_is_refused_and_says_why_in_the_log_alone() {
    let world = World::new().await;
    let key = world.issuer.key();
    let signed = |header: Value, claims: &Value| key.sign(&header, claims);
    let good = json!({"alg": "ES256", "kid": "first", "typ": "at+jwt"});
    let claims = |changes: Value| signed(good.clone(), &world.claims_with(&changes));
    let headed = |changes: Value| {
        let mut header = good.clone();
        for (name, value) in changes.as_object().unwrap() {
            header[name] = value.clone();
        }
        signed(header, &world.claims())
    };
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let unsigned = format!("{}.{}.", part(&json!({"alg": "none"})), part(&world.claims()));
    // The public key, taken for a shared secret.
    let message = format!("{}.{}", part(&json!({"alg": "HS256", "kid": "first"})), part(&world.claims()));
    let public = key.jwk().to_string();
    let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, public.as_bytes()), message.as_bytes());
    let confused = format!("{message}.{}", URL_SAFE_NO_PAD.encode(mac));
    let good_token = world.token();
    let (message, _) = good_token.rsplit_once('.').unwrap();
    let other_key = SigningKey::es256("first").sign(&good, &world.claims());
    let rows = [
        ("expired", claims(json!({"exp": NOW.0 - 31})), "expired"),
        ("not before", claims(json!({"nbf": NOW.0 + 31})), "not_yet"),
        ("issued in the future", claims(json!({"iat": NOW.0 + 31})), "not_yet"),
        ("other audience", claims(json!({"aud": "https://other.example/mcp"})), "audience"),
        ("no audience", claims(json!({"aud": null})), "audience"),
        ("other issuer", claims(json!({"iss": "https://other.example"})), "issuer"),
        ("no issuer", claims(json!({"iss": null})), "issuer"),
        ("issuer with a slash", claims(json!({"iss": format!("{}/", world.issuer.url)})), "issuer"),
        ("text as expiry", claims(json!({"exp": (NOW.0 + 600).to_string()})), "unreadable"),
        ("no expiry", claims(json!({"exp": null})), "expired"),
        ("no subject", claims(json!({"sub": null})), "subject"),
        ("alg none", unsigned, "algorithm"),
        ("public key as secret", confused, "algorithm"),
        ("algorithm of another key type", headed(json!({"alg": "RS256"})), "key"),
        ("foreign key id", headed(json!({"kid": "foreign"})), "key"),
        ("critical extension", headed(json!({"crit": ["exp"]})), "type"),
        ("no access token", headed(json!({"typ": "logout+jwt"})), "type"),
        ("other key with that id", other_key, "signature"),
        ("no signature", format!("{message}."), "signature"),
    ];
    for (what, token, expected) in rows {
        let refusal = world.bearer(&token).await.expect_err(what);
        assert_eq!(refusal.reason(), expected, "{what}");
        assert_eq!(refusal.status(), 401, "{what}");
        let challenge = refusal.challenge(&world.endpoint).unwrap();
        assert!(
            challenge.to_str().unwrap().starts_with(r#"Bearer error="invalid_token", "#),
            "{challenge:?}"
        );
    }
    // A login for the client, which its authorization server signed with the same key.
    let id_token = signed(
        json!({"alg": "ES256", "kid": "first", "typ": "JWT"}),
        &world.claims_with(&json!({"nonce": "n", "at_hash": "h"})),
    );
    assert_eq!(reason(world.bearer(&id_token).await), "type");
    assert!(world.bearer(&good_token).await.is_ok());
}

#[tokio::test]
async fn a_token_for_one_endpoint_is_none_for_another_although_it_was_seen() {
    let world = World::new().await;
    let token = world.token();
    assert!(world.bearer(&token).await.is_ok());
    let files = ProtectedResource::new("https://h.example", "/mcp/files").unwrap();
    let headers = [("authorization", format!("Bearer {token}"))];
    assert_eq!(reason(world.ask(&headers, None, &files, NOW).await), "audience");
}

#[tokio::test]
async fn a_verdict_ends_with_its_token() {
    let world = World::new().await;
    let token = world.issuer.token(&world.claims_with(&json!({"exp": NOW.0 + 5})));
    assert!(world.bearer_at(&token, NOW).await.is_ok());
    assert!(world.bearer_at(&token, UnixSeconds(NOW.0 + 34)).await.is_ok(), "clocks differ a little");
    assert_eq!(reason(world.bearer_at(&token, UnixSeconds(NOW.0 + 36)).await), "expired");
}

#[tokio::test]
async fn a_revoked_principal_is_refused_at_once_until_it_has_a_new_token() {
    let world = World::new().await;
    let token = world.token();
    assert!(world.bearer(&token).await.is_ok());
    world.auth.revoke("corp:alice", NOW);
    assert_eq!(reason(world.bearer(&token).await), "revoked");
    let ahead = world.issuer.token(&world.claims_with(&json!({"iat": NOW.0 + 20})));
    assert_eq!(reason(world.bearer(&ahead).await), "revoked", "its issuer's clock may be ahead");
    let newer = world.issuer.token(&world.claims_with(&json!({"iat": NOW.0 + 31})));
    assert!(world.bearer_at(&newer, UnixSeconds(NOW.0 + 31)).await.is_ok());
    let undated = world.issuer.token(&world.claims_with(&json!({"iat": null})));
    assert_eq!(reason(world.bearer(&undated).await), "revoked", "it may be old");
    let bob = world.issuer.token(&world.claims_with(&json!({"sub": "bob"})));
    assert!(world.bearer(&bob).await.is_ok());
    world.auth.reinstate("corp:alice");
    assert!(world.bearer(&token).await.is_ok());
}

#[tokio::test]
async fn only_access_tokens_count_where_an_issuer_says_so() {
    let world = World::with(|settings, _| settings.issuers[0].require_at_jwt = true).await;
    let key = world.issuer.key();
    for (typ, is_good) in [("at+jwt", true), ("application/at+jwt", true), ("JWT", false)] {
        let token = key.sign(&json!({"alg": "ES256", "kid": "first", "typ": typ}), &world.claims());
        assert_eq!(world.bearer(&token).await.is_ok(), is_good, "{typ}");
    }
}
