//! Opaque tokens, about which the issuer is asked.

use serde_json::json;
use tenure_auth::issuer::{IntrospectionSettings, IssuerSettings, KeySource};
use tenure_auth::{AuthSettings, AuthSettingsError, Authenticator, UnixSeconds};

use crate::world::{NOW, World, reason};

async fn world() -> World {
    World::with(|settings, _| {
        let issuer = &mut settings.issuers[0];
        issuer.keys = KeySource::None;
        issuer.introspection = Some(IntrospectionSettings {
            url: None,
            client_id: "tenure".to_owned(),
            client_secret: "s3cret".to_owned(),
        });
    })
    .await
}

#[tokio::test]
async fn an_active_token_is_an_identity_and_is_asked_about_once_a_minute() {
    let world = world().await;
    let mut answer = world.claims();
    answer["active"] = json!(true);
    world.issuer.introspects("opaque1", answer);
    for seconds in [0, 10, 59] {
        let identity = world.bearer_at("opaque1", UnixSeconds(NOW.0 + seconds)).await.unwrap();
        assert_eq!(identity.principal(), "corp:alice");
    }
    assert_eq!(world.issuer.introspections(), 1);
    world.issuer.introspects("opaque1", json!({"active": false}));
    assert_eq!(reason(world.bearer_at("opaque1", UnixSeconds(NOW.0 + 61)).await), "inactive");
}

#[tokio::test]
async fn what_the_issuer_does_not_vouch_for_is_refused() {
    let world = world().await;
    assert_eq!(reason(world.bearer("made-up").await), "inactive");
    let rows = [
        (json!({"iss": "https://other.example"}), "issuer"),
        (json!({"aud": "https://other.example"}), "audience"),
        (json!({"exp": NOW.0 - 60}), "expired"),
        (json!({"sub": null}), "subject"),
    ];
    for (number, (changes, expected)) in rows.into_iter().enumerate() {
        let mut answer = world.claims_with(&changes);
        answer["active"] = json!(true);
        let token = format!("opaque{number}");
        world.issuer.introspects(&token, answer);
        assert_eq!(reason(world.bearer(&token).await), expected, "{changes}");
    }
}

#[tokio::test]
async fn a_key_of_another_service_is_not_shown_to_the_issuer() {
    let world = world().await;
    let headers = [("x-api-key", "sk-of-another-service".to_owned())];
    assert_eq!(reason(world.ask(&headers, None, &world.endpoint, NOW).await), "unknown");
    assert_eq!(world.issuer.introspections(), 0);
}

#[test]
fn opaque_tokens_have_one_issuer_that_can_be_asked() {
    let issuer = |name: &str, keys: KeySource| IssuerSettings {
        keys,
        introspection: Some(IntrospectionSettings {
            url: None,
            client_id: "tenure".to_owned(),
            client_secret: "s".to_owned(),
        }),
        ..IssuerSettings::new(name, &format!("https://{name}.example"))
    };
    let made = |issuers| {
        Authenticator::new(AuthSettings { issuers, ..AuthSettings::default() }, reqwest::Client::builder())
    };
    let two = made(vec![issuer("a", KeySource::None), issuer("b", KeySource::None)]);
    assert!(matches!(two, Err(AuthSettingsError::Introspection(name)) if name == "b"));
    let nowhere = made(vec![issuer("a", KeySource::Url("https://a.example/keys".to_owned()))]);
    assert!(matches!(nowhere, Err(AuthSettingsError::IntrospectionUrl(_))));
}

#[tokio::test]
async fn an_issuer_that_is_away_lets_no_token_in() {
    let world = world().await;
    world.auth.refresh(NOW).await;
    world.issuer.fail(true);
    let refusal = world.bearer("opaque").await.unwrap_err();
    assert_eq!((refusal.status().as_u16(), refusal.reason()), (503, "unavailable"));
}

#[tokio::test]
async fn without_introspection_an_opaque_token_is_unknown() {
    let world = World::new().await;
    assert_eq!(reason(world.bearer("opaque").await), "unknown");
    assert_eq!(world.issuer.introspections(), 0);
}
