//! An authenticator with one issuer, and requests to it.

use std::sync::Arc;

use http::{HeaderMap, Uri};
use serde_json::{Value, json};
use tenure_auth::issuer::IssuerSettings;
use tenure_auth::{
    AuthRefusal, AuthSettings, Authenticator, ClientCertificate, Identity, LastShown, Presented,
    ProtectedResource, UnixSeconds,
};
use tenure_testkit::issuer::{FakeIssuer, SigningKey};

pub(crate) const NOW: UnixSeconds = UnixSeconds(1_800_000_000);

/// An authenticator, its issuer, and the endpoint that tokens are for.
pub(crate) struct World {
    pub(crate) issuer: FakeIssuer,
    pub(crate) auth: Authenticator,
    pub(crate) endpoint: ProtectedResource,
    /// All requests of a world come on one connection.
    last_shown: LastShown,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(|_, _| ()).await
    }

    /// A world whose settings a test changes.
    pub(crate) async fn with(change: impl FnOnce(&mut AuthSettings, &str)) -> Self {
        let issuer = FakeIssuer::start(SigningKey::es256("first")).await;
        let mut settings = AuthSettings {
            issuers: vec![IssuerSettings::new("corp", &issuer.url)],
            ..AuthSettings::default()
        };
        change(&mut settings, &issuer.url);
        let auth = Authenticator::new(settings, reqwest::Client::builder()).unwrap();
        let endpoint = ProtectedResource::new("https://h.example", "/mcp").unwrap();
        Self { issuer, auth, endpoint, last_shown: LastShown::default() }
    }

    /// The claims of a good token for alice.
    pub(crate) fn claims(&self) -> Value {
        json!({
            "iss": self.issuer.url,
            "sub": "alice",
            "aud": "https://h.example/mcp",
            "client_id": "app",
            "scope": "files:read",
            "iat": NOW.0 - 10,
            "exp": NOW.0 + 600,
        })
    }

    /// The same with changes; `null` removes a claim.
    pub(crate) fn claims_with(&self, changes: &Value) -> Value {
        let mut claims = self.claims();
        for (name, value) in changes.as_object().unwrap() {
            match value {
                Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
                value => claims[name] = value.clone(),
            }
        }
        claims
    }

    /// A good token for alice.
    pub(crate) fn token(&self) -> String {
        self.issuer.token(&self.claims())
    }

    pub(crate) async fn bearer(&self, token: &str) -> Result<Arc<Identity>, AuthRefusal> {
        self.bearer_at(token, NOW).await
    }

    pub(crate) async fn bearer_at(
        &self,
        token: &str,
        now: UnixSeconds,
    ) -> Result<Arc<Identity>, AuthRefusal> {
        let headers = [("authorization", format!("Bearer {token}"))];
        self.ask(&headers, None, &self.endpoint, now).await
    }

    pub(crate) async fn ask(
        &self,
        headers: &[(&'static str, String)],
        certificate: Option<&ClientCertificate>,
        endpoint: &ProtectedResource,
        now: UnixSeconds,
    ) -> Result<Arc<Identity>, AuthRefusal> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let uri = Uri::from_static("/mcp");
        let presented = Presented::read(&map, &uri, "POST")?.with_certificate(certificate);
        let presented = presented.with_last_shown(Some(&self.last_shown));
        self.auth.verify(&presented, endpoint, now).await
    }
}

/// The word for operators that tells why a request was refused.
pub(crate) fn reason(outcome: Result<Arc<Identity>, AuthRefusal>) -> &'static str {
    outcome.expect_err("a refusal").reason()
}
