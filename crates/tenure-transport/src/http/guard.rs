//! Which hosts and origins may talk to us: the defence against DNS rebinding.
//!
//! A browser page of any site can make a browser connect to a loopback server by rebinding its name,
//! but it cannot make the browser lie about `Host` or `Origin`. Both are checked, each by itself.

use std::net::IpAddr;

use http::HeaderMap;
use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use tenure_session::{Error, Reason};

use super::cors::Page;

/// The `Host` values that are answered.
#[derive(Clone, Debug)]
pub enum AllowedHosts {
    /// Loopback names and addresses, any port.
    Loopback,
    /// Loopback and these, with or without port; without one, any port.
    List(Vec<String>),
    /// Everything; for servers behind a proxy that checks.
    Any,
}

/// The `Origin` values that are answered. A request without the header is no browser's and passes.
#[derive(Clone, Debug)]
pub enum AllowedOrigins {
    /// Loopback origins, any port.
    Loopback,
    /// Loopback and these.
    List(Vec<String>),
    /// Everything.
    Any,
}

/// Checks the host that a request is for.
pub(super) fn check_host(
    headers: &HeaderMap,
    authority: Option<&Authority>,
    hosts: &AllowedHosts,
) -> Result<(), Error> {
    let host = host(headers, authority);
    if !host.is_none_or(|host| hosts.allow(host)) {
        return Err(Error::new(Reason::HostNotAllowed, "This Host is not served here"));
    }
    Ok(())
}

/// Checks the page that sends a request, if a page does.
pub(super) fn check_origin(headers: &HeaderMap, origins: &AllowedOrigins) -> Result<Option<Page>, Error> {
    if !headers.contains_key(ORIGIN) {
        return Ok(None);
    }
    for origin in headers.get_all(ORIGIN) {
        if !origin.to_str().is_ok_and(|origin| origins.allow(origin)) {
            return Err(Error::new(Reason::OriginNotAllowed, "Requests from this Origin are not allowed"));
        }
    }
    Ok(Page::of(headers))
}

/// The host that a request is for. HTTP/2 carries it as the request's authority.
pub(super) fn host<'a>(headers: &'a HeaderMap, authority: Option<&'a Authority>) -> Option<&'a str> {
    match authority {
        Some(authority) => Some(authority.as_str()),
        None => headers.get(HOST).map(|host| host.to_str().unwrap_or("\u{fffd}")),
    }
}

impl AllowedHosts {
    fn allow(&self, host: &str) -> bool {
        let listed = match self {
            Self::Any => return true,
            Self::Loopback => &[][..],
            Self::List(hosts) => hosts,
        };
        let name = without_port(host);
        is_loopback(name)
            || listed
                .iter()
                .any(|allowed| allowed.eq_ignore_ascii_case(host) || allowed.eq_ignore_ascii_case(name))
    }
}

impl AllowedOrigins {
    fn allow(&self, origin: &str) -> bool {
        let listed = match self {
            Self::Any => return true,
            Self::Loopback => &[][..],
            Self::List(origins) => origins,
        };
        let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        host.is_some_and(|host| is_loopback(without_port(host)))
            || listed.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin))
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        // A colon inside brackets belongs to an IPv6 address.
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.is_empty() => name,
        _ => host,
    }
}

fn is_loopback(name: &str) -> bool {
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        let own = AllowedHosts::List(vec!["mcp.example.com".into(), "other.example.com:8443".into()]);
        let table = [
            ("localhost", true),
            ("LocalHost:8484", true),
            ("127.0.0.1:1", true),
            ("127.9.9.9", true),
            ("[::1]:8484", true),
            ("[::1]", true),
            ("mcp.example.com", true),
            ("MCP.example.com:443", true),
            ("other.example.com:8443", true),
            ("other.example.com", false),
            ("evil.example.com", false),
            ("localhost.evil.example.com", false),
            ("127.0.0.1.evil.example.com", false),
            ("10.0.0.1", false),
            ("", false),
        ];
        for (host, expected) in table {
            assert_eq!(own.allow(host), expected, "{host}");
        }
        assert!(!AllowedHosts::Loopback.allow("mcp.example.com"));
        assert!(AllowedHosts::Any.allow("evil.example.com"));
    }

    #[test]
    fn origins() {
        let own = AllowedOrigins::List(vec!["https://app.example.com".into()]);
        let table = [
            ("http://localhost:3000", true),
            ("https://127.0.0.1", true),
            ("http://[::1]:5173", true),
            ("https://app.example.com", true),
            ("http://app.example.com", false),
            ("https://evil.example.com", false),
            ("null", false),
            ("http://localhost.evil.example.com", false),
            ("", false),
        ];
        for (origin, expected) in table {
            assert_eq!(own.allow(origin), expected, "{origin}");
        }
    }
}
