//! A node that asks for credentials: tokens of a fake issuer, and static keys.

use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tempfile::TempDir;
use tenure::Node;
use tenure::config::{Config, Sources};
use tenure_auth::UnixSeconds;
use tenure_auth::keys::{ApiKeyFile, NewKey};
use tenure_auth::scope::ScopeSet;
use tenure_testkit::issuer::{FakeIssuer, SigningKey};

use crate::support::client::{Ask, Response};
use crate::support::session::{Session, initialize, notification};

/// What tokens are issued for.
pub(crate) const PUBLIC: &str = "https://mcp.example.com";

pub(crate) struct World {
    pub(crate) node: Node,
    pub(crate) issuer: FakeIssuer,
    folder: TempDir,
}

impl World {
    /// A node with the demo.
    pub(crate) async fn start() -> Self {
        Self::with("").await
    }

    /// The same with more lines in `[auth]`, and sections after them.
    pub(crate) async fn with(lines: &str) -> Self {
        Self::with_settings(lines, &[]).await
    }

    pub(crate) async fn with_settings(lines: &str, settings: &[(&str, &str)]) -> Self {
        let (issuer, folder) =
            (FakeIssuer::start(SigningKey::es256("first")).await, tempfile::tempdir().unwrap());
        let config = config(&issuer.url, &folder, lines, settings);
        let node = Node::start(&config).await.expect("a node");
        Self { node, issuer, folder }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.node.address()
    }

    /// A new static key.
    pub(crate) fn key(&self, name: &str, scopes: &str) -> String {
        let scopes = ScopeSet::parse(scopes).unwrap();
        let new = NewKey { name: name.to_owned(), scopes, ..NewKey::default() };
        self.key_file().add(new, now()).unwrap().expose().to_owned()
    }

    /// Waits until the node has read the file of keys as it is now.
    pub(crate) async fn node_reads_keys(&self) {
        let probe = self.key(&format!("probe-{}", self.key_file().list().unwrap().len()), "");
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
        while self.send(Ask::get().bearer(&probe)).await.status() == 401 {
            assert!(tokio::time::Instant::now() < deadline, "it does not read them");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }

    pub(crate) fn key_file(&self) -> ApiKeyFile {
        ApiKeyFile::at(self.folder.path().join("keys.toml"))
    }

    /// A token for this user of the client `app`.
    pub(crate) fn token(&self, user: &str) -> String {
        self.token_with(user, &json!({}))
    }

    /// A token for `/mcp` with other claims; `null` leaves one out.
    pub(crate) fn token_with(&self, user: &str, changes: &Value) -> String {
        let now = now().0;
        let mut claims = json!({
            "iss": self.issuer.url, "sub": user, "aud": format!("{PUBLIC}/mcp"), "client_id": "app",
            "scope": "", "iat": now - 5, "exp": now + 600,
        });
        for (name, value) in changes.as_object().unwrap() {
            match value {
                Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
                value => claims[name] = value.clone(),
            }
        }
        self.issuer.token(&claims)
    }

    /// A session with this token.
    pub(crate) async fn session(&self, token: &str) -> Session {
        let response = initialize("2025-11-25").bearer(token).send(self.address()).await;
        let session = Session::of(self.address(), "/mcp", &response);
        let ready = session.post(&notification("notifications/initialized")).bearer(token);
        assert_eq!(ready.send(self.address()).await.status(), 202);
        session
    }

    pub(crate) async fn send(&self, ask: Ask) -> Response {
        ask.send(self.address()).await
    }
}

pub(crate) fn config(issuer: &str, folder: &TempDir, lines: &str, settings: &[(&str, &str)]) -> Config {
    let keys = folder.path().join("keys.toml").display().to_string();
    let file = format!(
        "store = \"memory:\"\nlisten = \"127.0.0.1:0\"\n[streams]\njson_wait = \"0s\"\n\
         [[issuer]]\nname = \"corp\"\nurl = \"{issuer}\"\n\
         [auth]\npublic_url = \"{PUBLIC}\"\nkeys_file = \"{keys}\"\n{lines}"
    );
    let flags = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let sources = Sources { file: Some(("tenure.toml".into(), file)), flags, ..Sources::default() };
    Config::load(&sources).expect("a configuration that can be used").0
}

/// Requests with credentials.
pub(crate) trait Bearing {
    fn bearer(self, token: &str) -> Self;
}

impl Bearing for Ask {
    fn bearer(self, token: &str) -> Self {
        self.header("Authorization", &format!("Bearer {token}"))
    }
}

pub(crate) fn now() -> UnixSeconds {
    UnixSeconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs())
}

/// The status and `WWW-Authenticate`.
pub(crate) fn challenge(response: &Response) -> (u16, String) {
    (response.status(), response.header("www-authenticate").unwrap_or_default().to_owned())
}
