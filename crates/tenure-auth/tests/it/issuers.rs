//! Issuers that rotate keys, hang, fail and lie.

use std::time::Duration;

use serde_json::json;
use tenure_auth::issuer::{IssuerSettings, KeySource};
use tenure_auth::{AuthSettings, AuthSettingsError, Authenticator, UnixSeconds};
use tenure_testkit::issuer::SigningKey;

use crate::world::{NOW, World, reason};

fn later(seconds: u64) -> UnixSeconds {
    UnixSeconds(NOW.0 + seconds)
}

#[tokio::test]
async fn au3_the_first_call_with_a_rotated_key_succeeds() {
    let world = World::new().await;
    world.bearer(&world.token()).await.unwrap();
    world.issuer.rotate(SigningKey::es256("second"));
    let token = world.token();
    assert!(world.bearer_at(&token, later(31)).await.is_ok());
    assert_eq!(world.issuer.key_sets(), 2);
}

#[tokio::test]
async fn au3_ten_thousand_made_up_key_ids_cause_two_fetches() {
    let world = World::new().await;
    world.bearer(&world.token()).await.unwrap();
    let key = world.issuer.key();
    let made_up = |number: u64| {
        let header = json!({"alg": "ES256", "kid": format!("k{number}"), "typ": "at+jwt"});
        key.sign(&header, &world.claims())
    };
    for number in 0..10_000 {
        // Half a minute passes meanwhile.
        assert_eq!(reason(world.bearer_at(&made_up(number), later(31 + number / 400)).await), "key");
    }
    assert_eq!(world.issuer.key_sets(), 2, "the first one, and one for all of these");
    assert!(world.bearer_at(&world.token(), later(60)).await.is_ok());
}

#[tokio::test]
async fn many_requests_at_once_wait_for_one_fetch() {
    let world = World::new().await;
    let tokens: Vec<String> =
        (0..100).map(|n| world.issuer.token(&world.claims_with(&json!({"sub": format!("u{n}")})))).collect();
    let asked = tokens.iter().map(|token| world.bearer(token));
    let outcomes = futures_util::future::join_all(asked).await;
    assert!(outcomes.iter().all(Result::is_ok));
    assert_eq!(world.issuer.key_sets(), 1);
}

#[tokio::test]
async fn au4_an_issuer_that_is_away_costs_nothing_while_its_keys_are_not_too_old() {
    let world = World::new().await;
    world.bearer(&world.token()).await.unwrap();
    world.issuer.fail(true);
    let token = |now: UnixSeconds| {
        let times = json!({"iat": now.0, "exp": now.0 + 600});
        world.issuer.token(&world.claims_with(&times))
    };
    for now in [later(3600), later(23 * 3600)] {
        world.auth.refresh(now).await;
        assert!(world.bearer_at(&token(now), now).await.is_ok());
    }
    let day = later(24 * 3600 + 1);
    let refusal = world.bearer_at(&token(day), day).await.unwrap_err();
    assert_eq!(refusal.status(), 503);
    world.issuer.fail(false);
    let day = later(24 * 3600 + 62);
    assert!(world.bearer_at(&token(day), day).await.is_ok());
}

#[tokio::test]
async fn au4_tokens_of_an_issuer_that_was_never_there_wait_for_it() {
    let world = World::new().await;
    world.issuer.fail(true);
    let refusal = world.bearer(&world.token()).await.unwrap_err();
    assert_eq!((refusal.status().as_u16(), refusal.reason()), (503, "unavailable"));
    assert_eq!(refusal.challenge(&world.endpoint), None);
    world.issuer.fail(false);
    assert!(world.bearer_at(&world.token(), later(3)).await.is_ok());
}

#[tokio::test]
async fn a_client_that_hangs_up_does_not_take_the_fetch_along() {
    let world = World::new().await;
    let token = world.token();
    {
        let asked = std::pin::pin!(world.bearer(&token));
        let nothing_yet = futures_util::poll!(asked);
        assert!(nothing_yet.is_pending());
    }
    // The same moment, so another fetch would be too soon.
    assert!(world.bearer(&token).await.is_ok());
    assert_eq!(world.issuer.key_sets(), 1);
}

#[tokio::test]
async fn an_issuer_that_hangs_is_given_up_after_its_time() {
    let world = World::new().await;
    world.issuer.hang(true);
    let token = world.token();
    let asked = tokio::time::timeout(Duration::from_secs(30), world.bearer(&token));
    let refusal = asked.await.expect("an answer").unwrap_err();
    assert_eq!(refusal.status(), 503);
}

#[tokio::test]
async fn keys_are_fetched_again_in_the_background_before_they_are_old() {
    let world = World::new().await;
    world.auth.refresh(NOW).await;
    world.auth.refresh(later(11 * 60)).await;
    assert_eq!(world.issuer.key_sets(), 1);
    world.auth.refresh(later(12 * 60 + 1)).await;
    assert_eq!(world.issuer.key_sets(), 2);
}

#[tokio::test]
async fn a_key_that_the_issuer_took_back_counts_no_more_when_a_newer_one_was_seen() {
    let world = World::new().await;
    let token = world.issuer.token(&world.claims_with(&json!({"exp": NOW.0 + 3600})));
    world.bearer(&token).await.unwrap();
    world.issuer.rotate(SigningKey::es256("second"));
    world.bearer_at(&world.token(), later(31)).await.unwrap();
    assert_eq!(reason(world.bearer_at(&token, later(31)).await), "key");
}

#[tokio::test]
async fn a_key_that_the_issuer_took_back_counts_no_more_after_the_next_look() {
    let world = World::new().await;
    let token = world.issuer.token(&world.claims_with(&json!({"exp": NOW.0 + 3600})));
    world.bearer(&token).await.unwrap();
    world.issuer.rotate(SigningKey::es256("second"));
    let now = later(12 * 60 + 1);
    world.auth.refresh(now).await;
    assert_eq!(reason(world.bearer_at(&token, now).await), "key");
}

#[tokio::test]
async fn metadata_that_names_another_issuer_is_not_believed() {
    let world = World::new().await;
    let keys = format!("{}/jwks", world.issuer.url);
    world.issuer.lies(Some(json!({"issuer": "https://other.example", "jwks_uri": keys})));
    assert_eq!(world.bearer(&world.token()).await.unwrap_err().status(), 503);
    assert_eq!(world.issuer.key_sets(), 0);
}

#[tokio::test]
async fn keys_can_come_from_a_url_or_a_file() {
    let world = World::with(|settings, url| {
        settings.issuers[0].keys = KeySource::Url(format!("{url}/jwks"));
    })
    .await;
    assert!(world.bearer(&world.token()).await.is_ok());

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.json");
    let world = World::with(|settings, _| settings.issuers[0].keys = KeySource::File(path.clone())).await;
    std::fs::write(&path, json!({"keys": [world.issuer.key().jwk()]}).to_string()).unwrap();
    assert!(world.bearer(&world.token()).await.is_ok());
    assert_eq!(world.issuer.key_sets(), 0);
}

#[test]
fn names_of_issuers_cannot_be_mistaken() {
    let made = |names: &[(&str, &str)]| {
        let issuers = names.iter().map(|(name, url)| IssuerSettings::new(name, url)).collect();
        Authenticator::new(AuthSettings { issuers, ..AuthSettings::default() }, reqwest::Client::builder())
    };
    for bad in ["", "a:b", "key", "cert", "ä"] {
        assert!(matches!(made(&[(bad, "https://a")]), Err(AuthSettingsError::Name(_))), "{bad}");
    }
    assert!(matches!(made(&[("a", "https://a"), ("a", "https://b")]), Err(AuthSettingsError::Twice(_))));
    assert!(matches!(made(&[("a", "https://a"), ("b", "https://a")]), Err(AuthSettingsError::Twice(_))));
    assert!(made(&[("a", "https://a"), ("b", "https://b")]).is_ok());
}
