//! What the server of a row finds in its folder, and what its clients show: configurations, tokens and keys.
//!
//! In: a fresh folder. Out: the files in it, and the credentials, which are made for one run.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;
use tenure_auth::keys::{ApiKeyFile, NewKey};
use tenure_testkit::issuer::SigningKey;

use crate::clock::unix_now;

/// What the server of a row has in its folder, and what its clients show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Control {
    /// Its configuration, with `{folder}` where the folder is named.
    pub(crate) config: &'static str,
    pub(crate) shows: Credentials,
}

/// What clients show with each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Credentials {
    Nothing,
    /// A signed token.
    Token,
    /// A static key.
    Key,
}

/// The file that the arguments of a row name.
pub(crate) const CONFIG_FILE: &str = "tenure.toml";

const ISSUER: &str = "https://issuer.example";
const PUBLIC: &str = "https://mcp.example.com";

/// Prepares nothing but a configuration.
pub(crate) const fn configured(config: &'static str) -> Control {
    Control { config, shows: Credentials::Nothing }
}

/// The sections of the configurations.
macro_rules! section {
    (issuer) => {
        "[[issuer]]\nname = \"corp\"\nurl = \"https://issuer.example\"\nkeys = \"file:{folder}/jwks.json\"\n[auth]\npublic_url = \"https://mcp.example.com\"\n"
    };
    (keys) => {
        "[auth]\nkeys_file = \"{folder}/keys.toml\"\n"
    };
    // More than any client can reach.
    (limits) => {
        "[limits]\nprincipal = \"1000000/s burst 1000000\"\nsession = \"1000000/s burst 1000000\"\n"
    };
    (audit) => {
        "[audit]\nfile = \"{folder}/audit.jsonl\"\n"
    };
    // It is on by default.
    (no_access_log) => {
        "[log]\naccess = false\n"
    };
    // So are these.
    (no_metrics) => {
        "[metrics]\ncollect = false\n"
    };
    // Nothing listens there: spans are made, and dropped at the end.
    (traces) => {
        "[traces]\nendpoint = \"http://127.0.0.1:9\"\nsample = \"1%\"\n"
    };
}

/// The configurations of the rows.
pub(crate) mod config {
    pub(crate) const PLAIN: &str = concat!(section!(no_access_log), section!(no_metrics));
    pub(crate) const TOKEN: &str = concat!(section!(issuer), section!(no_access_log), section!(no_metrics));
    pub(crate) const KEY: &str = concat!(section!(keys), section!(no_access_log), section!(no_metrics));
    pub(crate) const LIMITS: &str = concat!(section!(limits), section!(no_access_log), section!(no_metrics));
    pub(crate) const ACCESS: &str = section!(no_metrics);
    pub(crate) const AUDIT: &str = concat!(section!(audit), section!(no_access_log), section!(no_metrics));
    pub(crate) const METRICS: &str = section!(no_access_log);
    pub(crate) const TRACES: &str = concat!(section!(no_access_log), section!(traces));
    pub(crate) const LOGGED_METRICS: &str = "";
    pub(crate) const LOGGED_TRACES: &str = section!(traces);
    pub(crate) const ALL: &str = concat!(section!(issuer), section!(limits), section!(traces));
}

impl Control {
    /// Prepares a folder. Returns what clients have to show in `Authorization`.
    pub(crate) fn prepare(&self, folder: &Path) -> Result<Option<String>> {
        let config = self.config.replace("{folder}", &folder.display().to_string());
        write(&folder.join(CONFIG_FILE), &config)?;
        let now = unix_now();
        Ok(match self.shows {
            Credentials::Nothing => None,
            Credentials::Token => {
                let key = SigningKey::es256("bench");
                write(&folder.join("jwks.json"), &json!({ "keys": [key.jwk()] }).to_string())?;
                let header = json!({ "alg": key.algorithm(), "kid": "bench", "typ": "at+jwt" });
                let claims = json!({
                    "iss": ISSUER, "sub": "alice", "aud": format!("{PUBLIC}/mcp"), "client_id": "bench",
                    "scope": "mcp:use", "iat": now - 5, "exp": now + 86_400,
                });
                Some(format!("Bearer {}", key.sign(&header, &claims)))
            }
            Credentials::Key => {
                let new = NewKey { name: "bench".to_owned(), ..NewKey::default() };
                let file = ApiKeyFile::at(folder.join("keys.toml"));
                let key = file.add(new, tenure_auth::UnixSeconds(now)).context("make a static key")?;
                Some(format!("Bearer {}", key.expose()))
            }
        })
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("write `{}`", path.display()))
}
