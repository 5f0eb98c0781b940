//! Logs each refused host and origin once, with the setting that would allow it. A new client may be refused again and
//! again, and its user cannot know which setting is missing.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use http::HeaderMap;
use http::header::ORIGIN;
use tenure_protocol::{Error, Reason};

/// How many names are logged. A browser page can make up any number of names.
const MOST: usize = 64;
/// The longest name that is logged.
const LONGEST: usize = 100;

/// The hosts and origins that the log has named.
#[derive(Debug, Default)]
pub(super) struct Refused(Mutex<HashSet<String>>);

impl Refused {
    /// Logs a request that was refused for its host or its origin.
    pub(super) fn tell(&self, error: &Error, host: Option<&str>, headers: &HeaderMap) {
        let origin = || headers.get(ORIGIN).and_then(|origin| origin.to_str().ok());
        let (name, flag) = match error.reason() {
            Reason::HostNotAllowed => (host, "--allow-host"),
            Reason::OriginNotAllowed => (origin(), "--allow-origin"),
            _ => return,
        };
        let Some(name) = name.map(|name| name.chars().take(LONGEST).collect::<String>()) else { return };
        if !self.is_new(&name) {
            return;
        }
        // The caller chose the name, so it is logged in quotes, where it cannot be taken for anything else.
        let hint = format!("if it is yours, allow it with `{flag} {}`", without_port(&name, flag));
        match flag {
            "--allow-host" => {
                tracing::warn!(host = ?name, hint, "refused requests to a host that is not allowed")
            }
            _ => tracing::warn!(origin = ?name, hint, "refused requests from an origin that is not allowed"),
        }
    }

    fn is_new(&self, name: &str) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.len() < MOST && told.insert(name.to_owned())
    }
}

/// A host is allowed with any port, so its port is left out; an origin includes its port.
fn without_port<'a>(name: &'a str, flag: &str) -> &'a str {
    match name.rsplit_once(':') {
        Some((host, port)) if flag == "--allow-host" && port.bytes().all(|byte| byte.is_ascii_digit()) => {
            host
        }
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_of_once_and_not_without_end() {
        let refused = Refused::default();
        assert!(refused.is_new("a.example") && !refused.is_new("a.example"));
        let told = (0..1000).filter(|number| refused.is_new(&format!("{number}.example"))).count();
        assert_eq!(told, MOST - 1);
    }
}
