//! The page and the API for operators: where they listen, and who may use them.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::auth::AuthMode;
use super::effective::Config;
use super::error::Problem;
use super::layers::Layered;

/// The page and the API for operators.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct AdminConfig {
    /// The address to listen on; without it they are on the control socket alone.
    pub listen: Option<SocketAddr>,
    /// Names that requests may be for, besides loopback and the address itself.
    pub hosts: Vec<String>,
    /// The file with keys for operators; without it those of clients count, if they have such scopes.
    pub keys_file: Option<PathBuf>,
    /// The beginning of the scopes with which tokens of issuers let operators in.
    pub scope: Option<String>,
    /// Whether operators may call tools through the server.
    pub can_try: bool,
}

impl AdminConfig {
    /// Why the address cannot be listened on with this configuration, and what to do about it.
    pub(crate) fn refusal(&self, config: &Config, has_tls: bool) -> Option<(String, &'static str)> {
        let listen = self.listen?;
        let auth = &config.auth;
        let has_keys = self.keys_file.is_some() || auth.keys_file.is_some();
        let has_issuers = !auth.issuers.is_empty() && auth.mode != AuthMode::None;
        if listen.ip().is_loopback() {
            return None;
        }
        let what = |lacks: &str| {
            format!("`admin.listen` is {listen}, so that other machines can connect, and {lacks}")
        };
        if !has_tls {
            let hint = "set `tls.cert` and `tls.key`, or listen on 127.0.0.1 and reach it through `ssh -L`";
            return Some((what("there is no TLS"), hint));
        }
        if !(has_keys || has_issuers && self.scope.is_some()) {
            let hint = "make a key with `tenure keys new NAME --scope admin:operator --file KEYS` and set `admin.keys_file`, or set \
                        `admin.scope` for the tokens of an issuer";
            return Some((what("nobody could log in from there"), hint));
        }
        if listen.ip().is_unspecified() && self.hosts.is_empty() {
            let hint = "set `admin.hosts` to the names that operators use, such as [\"tenure.example.com\"]";
            return Some((what("`admin.hosts` does not say at which name"), hint));
        }
        None
    }
}

/// A value that has no effect.
pub(super) fn warning(config: &Config) -> Option<String> {
    let has_issuers = !config.auth.issuers.is_empty() && config.auth.mode != AuthMode::None;
    (config.admin.scope.is_some() && !has_issuers)
        .then(|| "`admin.scope` is set, and no `[[issuer]]` is, so no token lets an operator in".to_owned())
}

/// Values that cannot work together.
pub(super) fn problem(layered: &Layered) -> Option<Problem> {
    let config = &layered.draft.config;
    let has_tls = layered.draft.tls_cert.is_some() && layered.draft.tls_key.is_some();
    let (what, hint) = config.admin.refusal(config, has_tls)?;
    Some(Problem { what, hint: Some(hint.to_owned()) })
}
