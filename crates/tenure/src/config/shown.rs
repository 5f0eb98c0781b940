//! The configuration in force as operators see it over the API: each setting, and where it comes from, without secrets.

use serde::Serialize;

use super::effective::Behind;
use super::keys::KEYS;
use super::layers::Layered;
use crate::url_text::{marked, marked_in};

/// In place of what may be a secret.
const SET: &str = "(set)";

/// One setting.
#[derive(Serialize, Clone, PartialEq, Eq, Debug)]
pub struct ShownSetting {
    /// Its name.
    pub key: String,
    /// Its value as TOML; `None` if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Where the value comes from.
    pub source: String,
}

/// Settings whose values may hold secrets of servers behind, written out.
const SECRET: [&str; 8] = [
    "child.command",
    "upstream.headers",
    "upstream.client_secret",
    "nats.nkey",
    "nats.token",
    "nats.password",
    "nats.credentials_file",
    "store_key_file",
];

/// Every setting.
pub(super) fn settings(layered: &Layered) -> Vec<ShownSetting> {
    let mut shown: Vec<_> = KEYS
        .iter()
        .map(|key| {
            let value = (key.show)(&layered.draft).map(|value| public(key.path, &value));
            ShownSetting { key: key.path.to_owned(), value, source: layered.origin(key.path).to_string() }
        })
        .collect();
    let file = "the file".to_owned();
    for issuer in &layered.draft.config.auth.issuers {
        let key = format!("issuer.{}", issuer.name);
        shown.push(ShownSetting { key, value: Some(marked(&issuer.url)), source: file.clone() });
    }
    for Behind { name, child, upstream, .. } in layered.backends.iter().map(|backend| &backend.behind) {
        let value = match &upstream.url {
            Some(url) => marked(url),
            None => child.command.first().cloned().unwrap_or_default(),
        };
        shown.push(ShownSetting { key: format!("backend.{name}"), value: Some(value), source: file.clone() });
    }
    shown
}

fn public(path: &str, value: &str) -> String {
    if SECRET.contains(&path) || path.ends_with("secret") { SET.to_owned() } else { marked_in(value) }
}
