//! Who may use the server: the `[auth]` section, and the `[[issuer]]` tables of a file.

use std::path::PathBuf;
use std::time::Duration;

use super::error::Problem;
use super::lookup::similar;
use super::sources::{SettingEntry, SettingTable};
use super::value::web::Secret;
use super::value::{SettingValue, ValueForm, quoted, quoted_list};
use crate::url_text::marked;

/// Who may use the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuthConfig {
    /// Whether credentials are needed.
    pub mode: AuthMode,
    /// The URL of this server as its clients know it, without the path of an endpoint.
    pub public_url: Option<String>,
    /// The file with the static keys.
    pub keys_file: Option<PathBuf>,
    /// Whether a client certificate alone is an identity.
    pub certificates: bool,
    /// Whether tokens that are bound to a key of the client are accepted.
    pub dpop: bool,
    /// What tools need, as `PATTERN = SCOPE SCOPE`.
    pub scopes: Vec<String>,
    /// What scopes include, as `SCOPE = SCOPE SCOPE`.
    pub includes: Vec<String>,
    /// How long streams go on after the credentials of their owner have expired.
    pub stream_grace: Duration,
    /// The issuers of tokens.
    pub issuers: Vec<IssuerConfig>,
}

impl Default for AuthConfig {
    fn default() -> Self {
        Self {
            mode: AuthMode::Auto,
            public_url: None,
            keys_file: None,
            certificates: false,
            dpop: false,
            scopes: Vec::new(),
            includes: Vec::new(),
            stream_grace: Duration::from_secs(60),
            issuers: Vec::new(),
        }
    }
}

/// Whether credentials are needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AuthMode {
    /// If any kind of credentials is configured.
    #[default]
    Auto,
    /// No: every caller is anonymous, wherever the server listens.
    None,
}

/// An issuer of tokens.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct IssuerConfig {
    /// The name that its principals begin with.
    pub name: String,
    /// What its tokens have as `iss`.
    pub url: String,
    /// Where its keys are: a URL, `file:PATH` or `none`; without it, its metadata says it.
    pub keys: Option<String>,
    /// The algorithms of its tokens; empty for the usual ones.
    pub algorithms: Vec<String>,
    /// Audiences that are accepted beside the URL of the endpoint.
    pub audiences: Vec<String>,
    /// Whether only tokens of the type `at+jwt` are accepted.
    pub require_at_jwt: bool,
    /// A prefix of its scopes that is left out.
    pub scope_prefix: Option<String>,
    /// The URL at which it is asked about opaque tokens; without it, its metadata says it.
    pub introspection_url: Option<String>,
    /// Our name when we ask about opaque tokens. Without it, opaque tokens are refused.
    pub client_id: Option<String>,
    /// Our secret for that, as `env:VARIABLE` or `file:PATH`.
    pub client_secret: Option<String>,
}

/// It would show the secret, which may stand here itself.
impl std::fmt::Debug for IssuerConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("IssuerConfig");
        shown.field("name", &self.name).field("url", &self.url).finish_non_exhaustive()
    }
}

impl AuthConfig {
    /// Whether callers need credentials.
    pub fn is_on(&self) -> bool {
        self.mode != AuthMode::None && self.has_credentials()
    }

    /// Whether any kind of credentials is configured.
    pub(super) fn has_credentials(&self) -> bool {
        self.keys_file.is_some() || self.certificates || !self.issuers.is_empty()
    }
}

/// What a table may hold.
const KEYS: [&str; 10] = [
    "name",
    "url",
    "keys",
    "algorithms",
    "audiences",
    "require_at_jwt",
    "scope_prefix",
    "introspection_url",
    "client_id",
    "client_secret",
];

/// Reads all `[[issuer]]` tables.
pub(super) fn read(tables: &[SettingTable], problems: &mut Vec<Problem>) -> Vec<IssuerConfig> {
    let mut issuers: Vec<IssuerConfig> = Vec::new();
    for table in tables {
        let mut issuer = IssuerConfig::default();
        let found = problems.len();
        for entry in &table.entries {
            if let Err(problem) = set(&mut issuer, entry) {
                problems.push(problem);
            }
        }
        let mut refuse = |what: String, hint: &str| {
            let what = format!("{}: {what}", table.origin.place());
            problems.push(Problem { what, hint: Some(hint.to_owned()) });
        };
        let has = |name: &str| table.entries.iter().any(|entry| entry.name == name);
        if !has("name") {
            refuse(
                "the `[[issuer]]` has no `name`".to_owned(),
                "give it one: its users are called NAME:SUBJECT",
            );
        }
        if !has("url") {
            let hint = "set it to what its tokens have as `iss`, such as \"https://id.example.com\"";
            refuse("the `[[issuer]]` has no `url`".to_owned(), hint);
        }
        if issuer.client_id.is_some() != issuer.client_secret.is_some() {
            let what = "`client_id` and `client_secret` are set together or not at all".to_owned();
            refuse(what, "we need both to ask the issuer about opaque tokens");
        }
        if problems.len() == found {
            issuers.push(issuer);
        }
    }
    issuers
}

fn set(issuer: &mut IssuerConfig, entry: &SettingEntry) -> Result<(), Problem> {
    let place = match entry.name.as_str() {
        "name" => &mut issuer.name,
        "url" => &mut issuer.url,
        "keys" => issuer.keys.get_or_insert_default(),
        "scope_prefix" => issuer.scope_prefix.get_or_insert_default(),
        "introspection_url" => issuer.introspection_url.get_or_insert_default(),
        "client_id" => issuer.client_id.get_or_insert_default(),
        "client_secret" => issuer.client_secret.get_or_insert_default(),
        "algorithms" => return list(entry).map(|words| issuer.algorithms = words),
        "audiences" => return list(entry).map(|words| issuer.audiences = words),
        "require_at_jwt" => {
            return match entry.raw {
                SettingValue::Flag(flag) => {
                    issuer.require_at_jwt = flag;
                    Ok(())
                }
                _ => Err(wrong(entry, "true or false")),
            };
        }
        unknown => {
            let hint = match similar(unknown, KEYS.into_iter()) {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!("it takes {}", KEYS.map(|key| format!("`{key}`")).join(", ")),
            };
            let what = format!("{}: unknown key `{unknown}` in an `[[issuer]]`", entry.origin.place());
            return Err(Problem { what, hint: Some(hint) });
        }
    };
    match &entry.raw {
        SettingValue::Text(text) if !text.is_empty() => {
            *place = text.clone();
            Ok(())
        }
        _ => Err(wrong(entry, "a text")),
    }
}

fn list(entry: &SettingEntry) -> Result<Vec<String>, Problem> {
    match &entry.raw {
        SettingValue::List(words) => Ok(words.clone()),
        _ => Err(wrong(entry, "a list of texts in brackets")),
    }
}

fn wrong(entry: &SettingEntry, expected: &str) -> Problem {
    let subject = entry.origin.subject(&entry.name);
    // A secret that was written in place of its source must not be repeated.
    let found = if entry.name == "client_secret" { "something else" } else { &entry.found };
    Problem { what: format!("{subject} is {found}, expected {expected}"), hint: None }
}

impl IssuerConfig {
    /// The table as TOML.
    pub(super) fn show(&self) -> String {
        let mut text =
            format!("\n[[issuer]]\nname = {}\nurl = {}\n", quoted(&self.name), quoted(&marked(&self.url)));
        let texts = [
            ("keys", &self.keys),
            ("scope_prefix", &self.scope_prefix),
            ("introspection_url", &self.introspection_url),
            ("client_id", &self.client_id),
        ];
        for (name, value) in texts {
            if let Some(value) = value {
                text.push_str(&format!("{name} = {}\n", quoted(&marked(value))));
            }
        }
        if let Some(secret) = self.client_secret.as_ref().and_then(Secret::show) {
            text.push_str(&format!("client_secret = {secret}\n"));
        }
        for (name, words) in [("algorithms", &self.algorithms), ("audiences", &self.audiences)] {
            if !words.is_empty() {
                text.push_str(&format!("{name} = {}\n", quoted_list(words)));
            }
        }
        if self.require_at_jwt {
            text.push_str("require_at_jwt = true\n");
        }
        text
    }
}
