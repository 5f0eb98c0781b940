//! A gateway in a process of its own that asks for credentials, and commands about it.

use serde_json::{Value, json};
use tenure_auth::keys::{ApiKeyFile, NewKey};
use tenure_testkit::issuer::{FakeIssuer, SigningKey};

use super::world::{Bearing, PUBLIC, now};
use crate::cli::process::{Said, finish, tenure};
use crate::gateway::running::Gateway;
use crate::support::client::{Ask, Response};
use crate::support::events::Events;
use crate::support::session::{Session, initialize, notification};

/// A server in a process of its own.
pub(crate) struct Office {
    pub(crate) gateway: Gateway,
    pub(crate) issuer: FakeIssuer,
    pub(crate) keys: tempfile::TempDir,
}

impl Office {
    /// A gateway, with the demo in a process behind it for each session.
    pub(crate) async fn gateway() -> Self {
        let demo = env!("CARGO_BIN_EXE_tenure");
        let command = format!("\"{demo}\", \"stdio\", \"--store\", \"memory:\", \"--log-level\", \"warn\"");
        Self::with("", &format!("[child]\nwarm = 0\ncommand = [{command}]\n")).await
    }

    /// The demo itself, with more lines in `[auth]`, and with sections.
    pub(crate) async fn with(auth: &str, sections: &str) -> Self {
        Self::with_issuer(auth, sections, "").await
    }

    /// The same with more lines in `[[issuer]]`.
    pub(crate) async fn with_issuer(auth: &str, sections: &str, lines: &str) -> Self {
        let issuer = FakeIssuer::start(SigningKey::es256("first")).await;
        let keys = tempfile::tempdir().unwrap();
        let file = keys.path().join("keys.toml");
        let config = format!(
            "[streams]\njson_wait = \"0s\"\n\
             [data_sessions]\noffer = \"always\"\n\
             [auth]\npublic_url = \"{PUBLIC}\"\nkeys_file = \"{}\"\n{auth}{sections}\
             [[issuer]]\nname = \"corp\"\nurl = \"{}\"\n{lines}",
            file.display(),
            issuer.url
        );
        let gateway = Gateway::configured(&config).await;
        Self { gateway, issuer, keys }
    }

    pub(crate) fn token(&self, user: &str, issued: u64) -> String {
        let claims = json!({
            "iss": self.issuer.url, "sub": user, "aud": format!("{PUBLIC}/mcp"), "client_id": "app",
            "iat": issued, "exp": now().0 + 600,
        });
        self.issuer.token(&claims)
    }

    pub(crate) async fn send(&self, ask: Ask) -> Response {
        ask.send(self.gateway.address).await
    }

    pub(crate) async fn session(&self, token: &str) -> Session {
        let response = self.send(initialize("2025-11-25").bearer(token)).await;
        let session = Session::of(self.gateway.address, "/mcp", &response);
        let ready = session.post(&notification("notifications/initialized")).bearer(token);
        assert_eq!(self.send(ready).await.status(), 202);
        session
    }

    pub(crate) async fn open_stream(&self, ask: Ask, token: &str) -> Events {
        ask.bearer(token).open(self.gateway.address).await
    }

    pub(crate) async fn command(&self, arguments: &[&str]) -> Said {
        let mut command = tenure(arguments);
        command.env("TENURE_STORE", format!("disk:{}", self.gateway.folder.path().join("store").display()));
        finish(command).await
    }

    pub(crate) async fn told(&self, arguments: &[&str]) -> String {
        let said = self.command(arguments).await;
        assert_eq!(said.code, Some(0), "{arguments:?}: {}", said.err);
        said.out
    }

    /// The row of `principals list` about this one.
    pub(crate) async fn row(&self, principal: &str) -> Option<Value> {
        let text = self.told(&["principals", "list", "--json"]).await;
        let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        rows.into_iter().find(|row| row["principal"] == principal)
    }

    pub(crate) fn key_file(&self) -> ApiKeyFile {
        ApiKeyFile::at(self.keys.path().join("keys.toml"))
    }

    /// A new static key that the gateway knows.
    pub(crate) async fn key(&self, name: &str) -> String {
        let new = NewKey { name: name.to_owned(), ..NewKey::default() };
        let key = self.key_file().add(new, now()).unwrap().expose().to_owned();
        // The file is looked at every second.
        crate::support::wait::within("the key is known", async {
            while self.send(Ask::get().bearer(&key)).await.status() == 401 {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        })
        .await;
        key
    }
}
