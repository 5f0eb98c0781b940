//! Checks of values against each other, once all are in place: contradictions, and warnings about odd combinations.

use std::time::Duration;

use tenure_transport::http::AllowedHosts;

use super::admin;
use super::auth::AuthMode;
use super::cluster;
use super::error::{Problem, Warning};
use super::layers::Layered;
use super::sources::ValueOrigin;
use super::upstream_auth::{child_problems, unused_setting, upstream_problems};
use super::value::units::{write_duration, write_size};

/// Values that contradict each other.
pub(super) fn problems(layered: &Layered) -> Vec<Problem> {
    let limits = &layered.draft.config.limits;
    let mut problems = Vec::new();
    let pair = match (&layered.draft.tls_cert, &layered.draft.tls_key) {
        (Some(_), None) => Some(("tls.cert", "tls.key")),
        (None, Some(_)) => Some(("tls.key", "tls.cert")),
        (Some(_), Some(_)) | (None, None) => None,
    };
    if let Some((set, missing)) = pair {
        problems.push(Problem {
            what: format!("{} is set and `{missing}` is not", layered.origin(set).subject(set)),
            hint: Some(format!("TLS needs both: set `{missing}` too, or remove `{set}`")),
        });
    }
    let config = &layered.draft.config;
    if config.upstream.url.is_some() && !config.child.command.is_empty() {
        problems.push(Problem {
            what: "`upstream.url` and `child.command` are both set".to_owned(),
            hint: Some("there can be one server behind: remove one of them".to_owned()),
        });
    }
    if limits.request_timeout > limits.max_request_time {
        let (request, most) = (limits.request_timeout, limits.max_request_time);
        problems.push(Problem {
            what: format!(
                "`timeouts.request` ({}) is longer than `timeouts.max_request` ({})",
                value(&write_duration(request), layered.origin("timeouts.request")),
                value(&write_duration(most), layered.origin("timeouts.max_request")),
            ),
            hint: Some(
                "a request ends at `timeouts.max_request` in any case: raise it, or lower the other"
                    .to_owned(),
            ),
        });
    }
    problems.extend(auth_problems(layered));
    problems.extend(admin::problem(layered));
    problems.extend(cluster::problems(layered));
    let has_issuers = !config.auth.issuers.is_empty() && config.auth.mode != AuthMode::None;
    let one = config.upstream.url.as_ref().map(|_| (None, upstream_problems(&config.upstream, has_issuers)));
    let program = (!config.child.command.is_empty()).then(|| (None, child_problems(&config.child)));
    let several = layered.backends.iter().map(|backend| &backend.behind).map(|behind| {
        let found = match &behind.upstream.url {
            Some(_) => upstream_problems(&behind.upstream, has_issuers),
            None => child_problems(&behind.child),
        };
        (Some(&behind.name), found)
    });
    for (name, found) in one.into_iter().chain(program).chain(several) {
        let named = |what: String| match name {
            // In a table, keys have no section.
            Some(name) => {
                let what = what.replace("`upstream.", "`").replace("`child.", "`");
                format!("backend `{name}`: {what}")
            }
            None => what,
        };
        problems.extend(
            found.into_iter().map(|(what, hint)| Problem { what: named(what), hint: Some(hint.to_owned()) }),
        );
    }
    problems.extend(unknown_backends(layered));
    problems
}

/// Limits for backends that there are not, probably because a name was mistyped: nothing would be limited.
fn unknown_backends(layered: &Layered) -> impl Iterator<Item = Problem> {
    let known: Vec<&str> = layered.backends.iter().map(|backend| backend.behind.name.as_str()).collect();
    let named = layered.draft.config.rates.calls.servers_concurrent.iter().map(|(name, _)| name.as_str());
    named.filter(move |name| *name != "*" && !known.contains(name)).map(|name| Problem {
        what: format!("`limits.backends` names `{name}`, and there is no such `[[backend]]`"),
        hint: Some("`*` stands for every backend that is not named, and for the only server".to_owned()),
    })
}

/// Authentication that cannot work, and a server that everybody could reach without any.
fn auth_problems(layered: &Layered) -> Vec<Problem> {
    let config = &layered.draft.config;
    let auth = &config.auth;
    let mut problems = Vec::new();
    let mut refuse = |what: String, hint: &str| problems.push(Problem { what, hint: Some(hint.to_owned()) });
    let is_public = !config.listen.ip().is_loopback();
    if auth.mode == AuthMode::None && auth.has_credentials() {
        let what = "`auth` is \"none\", and credentials are configured".to_owned();
        refuse(what, "remove one of them: with \"none\" nothing is checked");
    }
    if is_public && !auth.has_credentials() && auth.mode != AuthMode::None {
        refuse(
            format!(
                "`listen` is {}, so that other machines can connect, and callers need no credentials",
                config.listen
            ),
            "make a key with `tenure keys new NAME --file KEYS` and set `auth.keys_file`, or add an `[[issuer]]`; \
             write `auth = \"none\"` if a proxy in front of this server checks who is calling",
        );
    }
    if !auth.issuers.is_empty() && auth.public_url.is_none() && (is_public || config.listen.port() == 0) {
        let what = "there is an `[[issuer]]`, and `auth.public_url` is not set".to_owned();
        refuse(
            what,
            "tokens are issued for a URL: set it to the one that clients use, such as \"https://mcp.example.com\"",
        );
    }
    if (!auth.scopes.is_empty() || !auth.includes.is_empty()) && !auth.has_credentials() {
        let what = "`auth.scopes` or `auth.includes` is set, and no credentials are configured".to_owned();
        refuse(
            what,
            "callers without credentials have no scopes, so nothing would be checked: set `auth.keys_file`, or add an `[[issuer]]`",
        );
    }
    if auth.certificates && layered.draft.tls_client_ca.is_none() {
        let what = "`auth.certificates` is true, and `tls.client_ca` is not set".to_owned();
        refuse(what, "set it to the file with the authorities of your clients' certificates");
    }
    if layered.draft.tls_client_ca.is_some() && layered.draft.tls_cert.is_none() {
        let what = "`tls.client_ca` is set and `tls.cert` is not".to_owned();
        refuse(what, "clients present certificates over TLS only: set `tls.cert` and `tls.key` too");
    }
    problems
}

/// Values that are allowed, but probably a mistake.
pub(super) fn warnings(layered: &Layered) -> Vec<Warning> {
    let config = &layered.draft.config;
    let limits = &config.limits;
    let mut warnings = Vec::new();
    if !config.listen.ip().is_loopback()
        && matches!(config.rules.hosts, AllowedHosts::Loopback)
        && config.auth.public_url.is_none()
    {
        warnings.push(format!(
            "`listen` is {}, but only loopback hosts are answered, so remote clients are refused with 403; \
             set `http.allowed_hosts` to the names that clients use, such as [\"mcp.example.com\"]",
            config.listen,
        ));
    }
    if let Some(lifetime) = limits.max_lifetime
        && limits.idle_ttl.unwrap_or(Duration::MAX) > lifetime
    {
        warnings.push(format!(
            "`session.idle_ttl` ({}) is longer than `session.max_lifetime` ({}), so sessions end by age first",
            limits.idle_ttl.map_or_else(|| "infinity".to_owned(), write_duration),
            value(&write_duration(lifetime), layered.origin("session.max_lifetime")),
        ));
    }
    if limits.max_event_bytes > limits.max_session_event_bytes {
        warnings.push(format!(
            "`streams.max_event` ({}) is larger than `streams.max_session_bytes` ({}), \
             so the largest events cannot be replayed",
            write_size(limits.max_event_bytes),
            write_size(limits.max_session_event_bytes),
        ));
    }
    let behind = layered.backends.iter().map(|backend| &backend.behind.upstream);
    for upstream in behind.chain([&config.upstream]).filter(|upstream| upstream.url.is_some()) {
        if let Some(key) = unused_setting(upstream) {
            warnings.push(format!(
                "`{key}` is set, and has no effect while `upstream.auth` is \"none\"; \
                 set that to \"client_credentials\" or \"token_exchange\""
            ));
        }
    }
    warnings.extend(admin::warning(config));
    warnings.extend(cluster::warning(layered));
    warnings.into_iter().map(Warning::new).collect()
}

/// A value with its place.
fn value(text: &str, origin: &ValueOrigin) -> String {
    format!("{text}, {}", origin.place())
}
