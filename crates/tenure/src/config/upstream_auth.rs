//! How this gateway proves to a server at a URL who it is: the keys of `[upstream]` about tokens, and the checks between them.

use std::path::PathBuf;

use super::effective::{ChildConfig, Speaks, UpstreamConfig};

/// How the gateway proves who it is.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct UpstreamAuthConfig {
    /// How tokens for the server are got.
    pub mode: UpstreamAuthMode,
    /// The URL at which tokens are requested.
    pub token_url: Option<String>,
    /// The authorization server that says where tokens are requested.
    pub issuer: Option<String>,
    /// Our name there.
    pub client_id: Option<String>,
    /// Our secret there, as `env:VARIABLE` or `file:PATH`.
    pub client_secret: Option<String>,
    /// The file with our private key, in place of a secret.
    pub client_key: Option<PathBuf>,
    /// What the authorization server calls that key.
    pub client_key_id: Option<String>,
    /// The scope to ask for.
    pub scope: Option<String>,
    /// What the tokens are for; without it, the URL of the server.
    pub resource: Option<String>,
    /// The audience to ask for in a token exchange.
    pub audience: Option<String>,
    /// The file with the key that signs `X-Tenure-Principal`.
    pub identity_key: Option<PathBuf>,
}

/// It would show the secret, which may stand here itself.
impl std::fmt::Debug for UpstreamAuthConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("UpstreamAuthConfig");
        shown.field("mode", &self.mode).field("client_id", &self.client_id).finish_non_exhaustive()
    }
}

/// How tokens for a server are got.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum UpstreamAuthMode {
    /// No tokens; fixed headers may do.
    #[default]
    None,
    /// By our own credentials, one for all callers.
    ClientCredentials,
    /// By the caller's token, one for each (RFC 8693).
    TokenExchange,
}

/// What does not fit together in the settings of a server at a URL, with a hint. `has_issuers`: whether callers can have tokens.
pub(super) fn upstream_problems(upstream: &UpstreamConfig, has_issuers: bool) -> Vec<(String, &'static str)> {
    let auth = &upstream.auth;
    let mut problems = Vec::new();
    let mut refuse = |what: &str, hint| problems.push((what.to_owned(), hint));
    let is_on = auth.mode != UpstreamAuthMode::None;
    if is_on && auth.client_secret.is_some() && auth.client_key.is_some() {
        refuse("`upstream.client_secret` and `upstream.client_key` are both set", "remove one of them");
    }
    if is_on && auth.client_id.is_none() {
        refuse(
            "`upstream.auth` needs `upstream.client_id`",
            "set it to the name of this gateway at the authorization server",
        );
    }
    match auth.mode {
        UpstreamAuthMode::None => {}
        UpstreamAuthMode::ClientCredentials => {
            if auth.client_secret.is_none() && auth.client_key.is_none() {
                refuse(
                    "`upstream.auth` is \"client_credentials\", and no credentials are set",
                    "set `upstream.client_secret` to \"env:VARIABLE\" or \"file:PATH\", or `upstream.client_key` to a file",
                );
            }
            if auth.audience.is_some() {
                refuse(
                    "`upstream.audience` is for \"token_exchange\" alone",
                    "use `upstream.resource`, or remove it",
                );
            }
        }
        UpstreamAuthMode::TokenExchange => {
            if auth.token_url.is_none() && auth.issuer.is_none() {
                refuse(
                    "`upstream.auth` is \"token_exchange\", and no token server is set",
                    "set `upstream.token_url` or `upstream.issuer`: the server behind must not choose who gets the tokens of callers",
                );
            }
            if !has_issuers {
                refuse(
                    "`upstream.auth` is \"token_exchange\", and callers have no tokens",
                    "add an `[[issuer]]` whose tokens callers use",
                );
            }
        }
    }
    let sets_header = upstream.headers.iter().any(|header| is_named(header, "authorization"));
    if is_on && sets_header {
        refuse(
            "`upstream.headers` has an `Authorization`, and `upstream.auth` makes one",
            "remove one of them",
        );
    }
    if auth.identity_key.is_some()
        && upstream.headers.iter().any(|header| is_named(header, "x-tenure-principal"))
    {
        refuse(
            "`upstream.headers` has an `X-Tenure-Principal`, and `upstream.identity_key` makes one",
            "remove one of them",
        );
    }
    problems
}

/// A setting about tokens that has no effect, since none are asked for.
pub(super) fn unused_setting(upstream: &UpstreamConfig) -> Option<&'static str> {
    let auth = &upstream.auth;
    let of_tokens = [
        ("upstream.token_url", auth.token_url.is_some()),
        ("upstream.issuer", auth.issuer.is_some()),
        ("upstream.client_id", auth.client_id.is_some()),
        ("upstream.client_secret", auth.client_secret.is_some()),
        ("upstream.client_key", auth.client_key.is_some()),
        ("upstream.scope", auth.scope.is_some()),
        ("upstream.audience", auth.audience.is_some()),
    ];
    let found = of_tokens.into_iter().find(|(_, is_set)| *is_set);
    found.filter(|_| auth.mode == UpstreamAuthMode::None).map(|(key, _)| key)
}

/// What does not fit together in the settings of a server that is a program.
pub(super) fn child_problems(child: &ChildConfig) -> Vec<(String, &'static str)> {
    let mut problems = Vec::new();
    if child.identity && child.share {
        problems.push((
            "`child.identity` and `child.share` are both true".to_owned(),
            "a process that all share has no owner: remove one of them",
        ));
    }
    if child.identity && child.era == Speaks::Modern {
        problems.push((
            "`child.identity` is true, and `child.era` is \"modern\"".to_owned(),
            "a server without sessions has one process for all callers: remove one of them",
        ));
    }
    problems
}

fn is_named(header: &str, name: &str) -> bool {
    header.split_once(':').is_some_and(|(found, _)| found.trim().eq_ignore_ascii_case(name))
}
