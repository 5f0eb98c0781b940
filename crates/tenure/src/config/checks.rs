//! Checks of values against each other, once all are in place: contradictions, and warnings about odd combinations.

use std::time::Duration;

use tenure_transport::http::AllowedHosts;

use super::error::{Problem, Warning};
use super::layers::Layered;
use super::sources::ValueOrigin;
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
    problems
}

/// Values that are allowed, but probably a mistake.
pub(super) fn warnings(layered: &Layered) -> Vec<Warning> {
    let config = &layered.draft.config;
    let limits = &config.limits;
    let mut warnings = Vec::new();
    if !config.listen.ip().is_loopback() && matches!(config.rules.hosts, AllowedHosts::Loopback) {
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
    warnings.into_iter().map(Warning::new).collect()
}

/// A value with its place.
fn value(text: &str, origin: &ValueOrigin) -> String {
    format!("{text}, {}", origin.place())
}
