//! A node that asks its callers for tokens, in front of a recorder in front of the demo, and a server that gives tokens.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tenure::Node;
use tenure::config::{Config, Sources};
use tenure_testkit::issuer::{FakeIssuer, SigningKey};
use tenure_testkit::token_server::FakeTokenServer;

use super::recorder::{Recorder, Seen};
use crate::auth::world::{Bearing, PUBLIC, now};
use crate::support::client::{Ask, Response};
use crate::support::node::demo_with;
use crate::support::session::{Session, initialize, notification};

pub(super) const DOORS: &str =
    "[doors]\nsse = true\nrpc = true\npost_sse = true\nmcp_sse = true\nwebsocket = true\n";

pub(super) struct World {
    pub(super) node: Node,
    pub(super) recorder: Recorder,
    pub(super) issuer: FakeIssuer,
    pub(super) server: FakeTokenServer,
    _behind: Node,
}

impl World {
    /// Lines for `[upstream]`, in which `TOKEN_URL` and `ISSUER` are those of the token server.
    pub(super) async fn with(upstream: &str) -> Self {
        Self::with_path("/mcp", upstream).await
    }

    /// The same with another endpoint of the server behind.
    pub(super) async fn with_path(path: &str, upstream: &str) -> Self {
        let behind = demo_with(&[("doors.sse", "true")]).await;
        let recorder = Recorder::before(behind.address()).await;
        let (issuer, server) =
            (FakeIssuer::start(SigningKey::es256("first")).await, FakeTokenServer::start().await);
        let config = config(&issuer, &server, &recorder, path, upstream);
        let node = Node::start(&config).await.expect("a node");
        Self { node, recorder, issuer, server, _behind: behind }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.node.address()
    }

    /// A token for this user of the client `app`.
    pub(super) fn token(&self, user: &str) -> String {
        self.token_with(user, &json!({}))
    }

    pub(super) fn token_with(&self, user: &str, changes: &Value) -> String {
        token(&self.issuer, user, changes)
    }

    pub(super) async fn session(&self, token: &str) -> Session {
        session(self.address(), token).await
    }

    pub(super) async fn send(&self, ask: Ask) -> Response {
        ask.send(self.address()).await
    }

    /// What reached the server behind: requests for it, not for its metadata.
    pub(super) fn seen(&self) -> Vec<Seen> {
        let all = self.recorder.seen().into_iter();
        all.filter(|seen| !seen.path.starts_with("/.well-known")).collect()
    }

    /// The values of a header, of all requests, without repeats.
    pub(super) fn seen_values(&self, name: &str) -> Vec<String> {
        let mut values: Vec<_> =
            self.seen().iter().map(|seen| seen.header(name).unwrap_or("-").to_owned()).collect();
        values.sort_unstable();
        values.dedup();
        values
    }
}

pub(super) fn token(issuer: &FakeIssuer, user: &str, changes: &Value) -> String {
    let now = now().0;
    let mut claims = json!({
        "iss": issuer.url, "sub": user, "aud": format!("{PUBLIC}/mcp"), "client_id": "app",
        "scope": "", "iat": now - 5, "exp": now + 600,
    });
    for (name, value) in changes.as_object().unwrap() {
        claims[name] = value.clone();
    }
    issuer.token(&claims)
}

pub(super) async fn session(address: SocketAddr, token: &str) -> Session {
    let response = initialize("2025-11-25").bearer(token).send(address).await;
    let session = Session::of(address, "/mcp", &response);
    let ready = session.post(&notification("notifications/initialized")).bearer(token);
    assert_eq!(ready.send(address).await.status(), 202);
    session
}

/// The call of a tool that answers at once.
pub(super) fn echo(session: &Session, id: u64, text: &str) -> Ask {
    let params = json!({ "name": "public_echo", "arguments": { "text": text } });
    session.request(id, "tools/call", &params)
}

pub(super) fn config(
    issuer: &FakeIssuer,
    server: &FakeTokenServer,
    recorder: &Recorder,
    path: &str,
    upstream: &str,
) -> Config {
    config_at("memory:", issuer, server, recorder, path, upstream)
}

pub(super) fn config_at(
    store: &str,
    issuer: &FakeIssuer,
    server: &FakeTokenServer,
    recorder: &Recorder,
    path: &str,
    upstream: &str,
) -> Config {
    let upstream = upstream.replace("TOKEN_URL", &server.token_url()).replace("ISSUER", &server.url);
    let file = format!(
        "store = \"{store}\"\nlisten = \"127.0.0.1:0\"\n[streams]\njson_wait = \"0s\"\n[exchanges]\nstream_after = \"1h\"\n\
         {DOORS}[[issuer]]\nname = \"corp\"\nurl = \"{}\"\n[auth]\npublic_url = \"{PUBLIC}\"\n\
         [upstream]\nurl = \"{}\"\npatience = \"0s\"\n{upstream}",
        issuer.url,
        recorder.url(path),
    );
    let sources = Sources { file: Some(("tenure.toml".into(), file)), ..Sources::default() };
    Config::load(&sources).expect("a configuration that can be used").0
}

/// The settings of client credentials by a secret.
pub(super) const BY_SECRET: &str = "auth = \"client_credentials\"\ntoken_url = \"TOKEN_URL\"\nclient_id = \"gate way\"\n\
     client_secret = \"s3cret&of the gateway\"\nscope = \"tools:use\"\n";

/// The settings of token exchange.
pub(super) const EXCHANGE: &str = "auth = \"token_exchange\"\ntoken_url = \"TOKEN_URL\"\nclient_id = \"gateway\"\n\
     client_secret = \"gateway-s3cret\"\naudience = \"behind\"\n";
