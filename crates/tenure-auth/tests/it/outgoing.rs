//! Our own tokens at servers behind: how they are asked for, how long they count, and what a hostile server cannot do.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_auth::UnixSeconds;
use tenure_auth::outgoing::{
    CallerName, ClientKey, ClientProof, OAuthClient, OutgoingClients, OutgoingGrant, OutgoingRefusal,
    OutgoingSettings, OutgoingTokens, SubjectTokens, TokenServer,
};
use tenure_auth::scope::ScopeSet;
use tenure_testkit::token_server::FakeTokenServer;

use crate::world::{NOW, World};

const SECRET: &str = "geheim-of-the-gateway";

fn settings(upstream: &str, server: TokenServer) -> OutgoingSettings {
    OutgoingSettings {
        upstream: upstream.to_owned(),
        grant: OutgoingGrant::ClientCredentials,
        server,
        client: OAuthClient { id: "gateway".to_owned(), proof: ClientProof::Secret(SECRET.to_owned()) },
        resource: None,
        scope: None,
    }
}

fn tokens(settings: OutgoingSettings) -> OutgoingTokens {
    OutgoingTokens::new(settings, &OutgoingClients::with_system_trust().unwrap()).unwrap()
}

/// Tokens for a server whose authorization server is the one that its metadata name. Both are at the same port here.
fn discovered(server: &FakeTokenServer) -> OutgoingTokens {
    tokens(settings(&format!("{}/mcp", server.url), TokenServer::NamedByServer))
}

fn describe(server: &FakeTokenServer, metadata: &Value) {
    server.page("/.well-known/oauth-protected-resource/mcp", 200, &metadata.to_string());
}

fn at(seconds: u64) -> UnixSeconds {
    UnixSeconds(1_800_000_000 + seconds)
}

#[tokio::test]
async fn a_token_counts_as_long_as_it_lives_and_is_renewed_before() {
    let server = FakeTokenServer::start().await;
    server.tokens_live(100);
    let tokens = tokens(settings("https://mcp.example/mcp", TokenServer::Url(server.token_url())));
    let first = tokens.token(None, at(0)).await.unwrap();
    assert_eq!(first.header(), "Bearer upstream-token-1-gateway");
    assert_eq!(tokens.token(None, at(79)).await.unwrap(), first);
    assert_eq!(server.asked().len(), 1);
    // In the background: no request waits for it.
    assert_eq!(tokens.token(None, at(80)).await.unwrap(), first);
    server.was_asked(2).await;
    let second = loop {
        let token = tokens.token(None, at(81)).await.unwrap();
        if token != first {
            break token;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(second.header(), "Bearer upstream-token-2-gateway");
    assert_eq!(tokens.token(None, at(181)).await.unwrap().number(), 3, "an expired one is waited for");
    assert_eq!(server.asked().len(), 3);
    // A clock that was set back does not make a token live for ever.
    assert_eq!(tokens.token(None, at(0)).await.unwrap().number(), 4);
}

#[tokio::test]
async fn a_renewal_that_fails_leaves_the_token_as_long_as_it_lives() {
    let server = FakeTokenServer::start().await;
    server.tokens_live(100);
    let tokens = tokens(settings("https://mcp.example/mcp", TokenServer::Url(server.token_url())));
    let first = tokens.token(None, at(0)).await.unwrap();
    server.refuses(Some((503, Value::Null)));
    for second in 80..95 {
        assert_eq!(tokens.token(None, at(second)).await.unwrap(), first);
        // So that the attempt in the background ends before the next look.
        server.was_asked(2).await;
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let asked = server.asked().len();
    assert!((2..=3).contains(&asked), "at most every ten seconds: {asked}");
    assert_eq!(tokens.token(None, at(101)).await, Err(OutgoingRefusal::Unavailable));
}

#[tokio::test]
async fn a_refusal_counts_for_ten_seconds() {
    let server = FakeTokenServer::start().await;
    let tokens = tokens(settings("https://mcp.example/mcp", TokenServer::Url(server.token_url())));
    server.refuses(Some((401, json!({"error": "invalid_client"}))));
    for second in [0, 5, 9] {
        assert_eq!(tokens.token(None, at(second)).await, Err(OutgoingRefusal::Refused));
    }
    assert_eq!(server.asked().len(), 1);
    server.refuses(None);
    assert_eq!(tokens.token(None, at(10)).await.unwrap().number(), 2);
}

#[tokio::test]
async fn a_refused_token_is_renewed_once_for_all_and_not_twice_within_a_moment() {
    let server = FakeTokenServer::start().await;
    let tokens = tokens(settings("https://mcp.example/mcp", TokenServer::Url(server.token_url())));
    let first = tokens.token(None, at(0)).await.unwrap();
    let renewals = (0..50).map(|_| tokens.renewed(None, first.number(), at(1)));
    for renewed in futures_util::future::join_all(renewals).await {
        assert_eq!(renewed.unwrap().unwrap().number(), 2);
    }
    assert_eq!(tokens.renewed(None, 2, at(5)).await, Ok(None), "no use in a third one");
    assert_eq!(server.asked().len(), 2);
    assert_eq!(tokens.renewed(None, 2, at(11)).await.unwrap().unwrap().number(), 3, "a while later there is");
}

#[tokio::test]
async fn a_key_proves_who_we_are_without_a_secret() {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let server = FakeTokenServer::start().await;
    let key = Arc::new(ClientKey::from_pem(ClientKey::generate_pem().as_bytes(), Some("k1")).unwrap());
    let client = OAuthClient { id: "gateway".to_owned(), proof: ClientProof::Key(Arc::clone(&key)) };
    let by_key =
        |server| OutgoingSettings { client: client.clone(), ..settings("https://mcp.example/mcp", server) };
    for (place, audience) in [
        (TokenServer::Url(server.token_url()), server.token_url()),
        (TokenServer::Issuer(server.url.clone()), server.url.clone()),
    ] {
        tokens(by_key(place)).token(None, at(0)).await.unwrap();
        let ask = server.asked().pop().unwrap();
        assert_eq!((ask.basic.as_deref(), ask.field("client_secret")), (None, ""));
        assert_eq!(
            ask.field("client_assertion_type"),
            "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        );
        let part = |number: usize| -> Value {
            let part = ask.field("client_assertion").split('.').nth(number).unwrap().to_owned();
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
        };
        assert_eq!((&part(0)["alg"], &part(0)["kid"]), (&json!("EdDSA"), &json!("k1")));
        let claims = part(1);
        assert_eq!((&claims["iss"], &claims["sub"]), (&json!("gateway"), &json!("gateway")));
        assert_eq!(claims["aud"], audience);
    }
}

#[tokio::test]
async fn the_server_behind_is_asked_for_its_authorization_server() {
    let server = FakeTokenServer::start().await;
    let resource = format!("{}/mcp", server.url);
    describe(&server, &json!({"resource": resource, "authorization_servers": [server.url]}));
    let token = discovered(&server).token(None, at(0)).await.unwrap();
    assert_eq!(token.number(), 1);
    assert_eq!(server.asked()[0].field("resource"), resource);

    // At the root, and for the whole origin.
    let server = FakeTokenServer::start().await;
    let metadata = json!({"resource": server.url, "authorization_servers": [server.url]});
    server.page("/.well-known/oauth-protected-resource", 200, &metadata.to_string());
    discovered(&server).token(None, at(0)).await.unwrap();
    assert_eq!(server.asked()[0].field("resource"), server.url, "what it says of itself");
}

#[tokio::test]
async fn a_hostile_server_behind_gets_no_secret_and_leads_nowhere() {
    let trap = FakeTokenServer::start().await;
    let server = FakeTokenServer::start().await;
    let resource = format!("{}/mcp", server.url);
    let well_known = "/.well-known/oauth-protected-resource/mcp";
    let issuer_page = "/.well-known/oauth-authorization-server";
    let good = json!({"resource": resource, "authorization_servers": [server.url]}).to_string();
    let long =
        format!(r#"{{"resource":"{resource}","authorization_servers":[],"x":"{}"}}"#, "x".repeat(300 << 10));
    let issuer =
        |token_endpoint: &str| json!({"issuer": server.url, "token_endpoint": token_endpoint}).to_string();
    let other = json!({"issuer": trap.url, "token_endpoint": trap.token_url()}).to_string();
    let of_other =
        json!({"resource": "http://127.0.0.1:1/mcp", "authorization_servers": [trap.url]}).to_string();
    let inside = json!({"resource": resource, "authorization_servers": ["http://10.0.0.1:1"]}).to_string();
    let file = json!({"resource": resource, "authorization_servers": ["file:///etc/passwd"]}).to_string();
    let redirect = trap.token_url();
    for (what, metadata, of_issuer) in [
        ("another resource", (200, of_other.as_str()), None),
        ("a private network without TLS", (200, &inside), None),
        ("a file", (200, &file), None),
        ("too long", (200, &long), None),
        ("no JSON", (200, "<html>"), None),
        ("a redirect of the metadata", (302, &redirect), None),
        ("another issuer", (200, &good), Some((200, other.as_str()))),
        ("a redirect of the issuer", (200, &good), Some((302, redirect.as_str()))),
        ("a token endpoint without TLS", (200, &good), Some((200, &*issuer("http://id.example/token")))),
        ("no token endpoint", (200, &good), Some((200, &*json!({"issuer": server.url}).to_string()))),
    ] {
        server.page(well_known, metadata.0, metadata.1);
        let (status, text) =
            of_issuer.map_or((404, String::new()), |(status, text)| (status, text.to_owned()));
        server.page(issuer_page, status, &text);
        let got = discovered(&server).token(None, at(0)).await;
        assert_eq!(got, Err(OutgoingRefusal::Unavailable), "{what}");
        assert!(server.asked().is_empty() && trap.asked().is_empty(), "{what}: it got our secret");
    }
    // A redirect of the request for a token would take the secret along.
    server.page(well_known, 200, &good);
    server.page(issuer_page, 200, &issuer(&format!("{}/moved", server.url)));
    server.page("/moved", 307, &trap.token_url());
    assert!(discovered(&server).token(None, at(0)).await.is_err());
    assert!(trap.asked().is_empty());
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up() {
    let server = FakeTokenServer::start().await;
    server.hold(true);
    let tokens = tokens(settings("https://mcp.example/mcp", TokenServer::Url(server.token_url())));
    let (waiting, asked) = (tokens.clone(), server.was_asked(1));
    #[expect(clippy::disallowed_methods, reason = "the test waits for it")]
    let waiting = tokio::spawn(async move { waiting.token(None, at(0)).await });
    asked.await;
    // The answer is held, so only the clock can go on.
    tokio::time::pause();
    assert_eq!(waiting.await.unwrap(), Err(OutgoingRefusal::Unavailable));
}

#[tokio::test]
async fn a_caller_whose_token_is_not_there_is_refused_at_once() {
    let server = FakeTokenServer::start().await;
    let grant = OutgoingGrant::TokenExchange { subjects: SubjectTokens::default(), audience: None };
    let settings = settings("https://mcp.example/mcp", TokenServer::Url(server.token_url()));
    let tokens = tokens(OutgoingSettings { grant, ..settings });
    let ann = CallerName { principal: "corp:ann".into(), client: None, scopes: None };
    for caller in [None, Some(&ann)] {
        assert_eq!(tokens.token(caller, at(0)).await, Err(OutgoingRefusal::NoSubject));
        assert_eq!(tokens.renewed(caller, 1, at(0)).await, Err(OutgoingRefusal::NoSubject));
    }
    assert!(server.asked().is_empty());
}

/// An authenticator that lends tokens, and tokens got with them.
async fn exchange(server: &FakeTokenServer) -> (World, OutgoingTokens) {
    let subjects = SubjectTokens::default();
    let world = World::with(|settings, _| settings.subjects = Some(subjects.clone())).await;
    let grant = OutgoingGrant::TokenExchange { subjects, audience: None };
    let settings = settings("https://mcp.example/mcp", TokenServer::Url(server.token_url()));
    (world, tokens(OutgoingSettings { grant, ..settings }))
}

fn alice(scopes: Option<&str>) -> CallerName {
    let scopes = scopes.map(|scopes| ScopeSet::parse(scopes).unwrap());
    CallerName { principal: "corp:alice".into(), client: Some("app".into()), scopes }
}

#[tokio::test]
async fn a_token_of_a_revoked_principal_is_good_for_the_last_messages_alone() {
    let server = FakeTokenServer::start().await;
    server.tokens_live(300);
    let (world, tokens) = exchange(&server).await;
    let (request, client) = (alice(Some("files:read")), alice(None));
    world.bearer(&world.token()).await.unwrap();
    let token = tokens.token(Some(&request), NOW).await.unwrap();
    assert_eq!(tokens.token(Some(&client), NOW).await.unwrap(), token, "the newest");

    world.auth.revoke("corp:bob", NOW);
    assert_eq!(tokens.token(Some(&request), NOW).await.unwrap(), token, "another principal's revocation");
    world.auth.revoke("corp:alice", NOW);
    for caller in [&request, &client] {
        assert_eq!(tokens.token(Some(caller), NOW).await, Err(OutgoingRefusal::NoSubject));
        assert_eq!(tokens.renewed(Some(caller), 1, NOW).await, Err(OutgoingRefusal::NoSubject));
        assert_eq!(tokens.last_token(caller, NOW).unwrap(), token);
    }
    assert_eq!(tokens.last_token(&CallerName { client: None, ..alice(None) }, NOW), None, "another client");
    assert_eq!(tokens.last_token(&client, UnixSeconds(NOW.0 + 300)), None, "it has ended by itself");
    assert_eq!(server.asked().len(), 1);
}

#[tokio::test]
async fn a_token_outlives_the_callers_own_for_the_last_messages_alone() {
    let server = FakeTokenServer::start().await;
    server.tokens_live(300);
    let (world, tokens) = exchange(&server).await;
    let short = world.claims_with(&json!({"exp": NOW.0 + 20}));
    world.bearer(&world.issuer.token(&short)).await.unwrap();
    let token = tokens.token(Some(&alice(None)), NOW).await.unwrap();
    let later = UnixSeconds(NOW.0 + 20);
    assert_eq!(tokens.token(Some(&alice(None)), later).await, Err(OutgoingRefusal::NoSubject));
    assert_eq!(tokens.last_token(&alice(None), later), Some(token));
}

#[tokio::test]
async fn nothing_that_is_printed_has_a_secret() {
    let server = FakeTokenServer::start().await;
    let settings =
        settings("https://user:pass-word@mcp.example/mcp?key=key-word", TokenServer::Url(server.token_url()));
    let printed = format!("{settings:?}");
    let tokens = tokens(settings);
    let token = tokens.token(None, at(0)).await.unwrap();
    let printed = format!("{printed} {tokens:?} {token:?} {:?}", token.header());
    for secret in [SECRET, "pass-word", "key-word", "upstream-token"] {
        assert!(!printed.contains(secret), "{printed}");
    }
    assert_eq!(server.asked()[0].field("resource"), "https://mcp.example/mcp");
}
