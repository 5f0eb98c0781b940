//! Checks `Host` and `Origin`: the defence against DNS rebinding.
//!
//! A page of any site can make a browser connect to a loopback server by rebinding its name, but it cannot make the
//! browser send a wrong `Host` or `Origin`. Both are checked, each by itself. Any other client can send any value, so a
//! loopback name counts only for a peer on this machine.

use std::net::IpAddr;

use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, Version, request};
use tenure_protocol::{Error, Reason};

use super::cors::BrowserPage;
use super::endpoint::Remote;

/// The `Host` values that are allowed.
#[derive(Clone, Debug)]
pub enum AllowedHosts {
    /// Loopback names and addresses, any port, from peers on this machine.
    Loopback,
    /// The same, and these from any peer. An entry without a port allows any port.
    List(Vec<String>),
    /// Every host; for servers behind a proxy that checks.
    Any,
}

/// The `Origin` values that are allowed. A request without the header does not come from a page, and passes.
#[derive(Clone, Debug)]
pub enum AllowedOrigins {
    /// Loopback origins, any port.
    Loopback,
    /// Loopback and these.
    List(Vec<String>),
    /// Every origin.
    Any,
}

/// Where a request comes from, as far as known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Peer {
    /// From this machine, or unknown because an embedder's server accepted it.
    Near,
    /// From another machine.
    Far,
}

impl Peer {
    fn of(remote: Option<&Remote>) -> Self {
        // A socket for both IPv4 and IPv6 shows 127.0.0.1 as an IPv6 address.
        // The peer of the connection: the Host that a proxy sends is its own.
        let is_near = remote.is_none_or(|remote| remote.peer().ip().to_canonical().is_loopback());
        if is_near { Self::Near } else { Self::Far }
    }
}

/// Checks the host that a request is for.
pub(super) fn check_host(
    parts: &request::Parts,
    remote: Option<&Remote>,
    hosts: &AllowedHosts,
) -> Result<(), Error> {
    // An embedder's server checks HTTP by its own rules.
    if remote.is_some() {
        check_one_host(parts.version, &parts.headers)?;
    }
    if !hosts.allow(host(&parts.headers, parts.uri.authority()), Peer::of(remote)) {
        return Err(Error::new(Reason::HostNotAllowed, "This Host is not served here"));
    }
    Ok(())
}

/// Checks that a request has exactly one `Host`: with two, a proxy in front of this server might use the other one.
pub(super) fn check_one_host(version: Version, headers: &HeaderMap) -> Result<(), Error> {
    let mut hosts = headers.get_all(HOST).iter();
    // HTTP/2 names the host in the request itself, and HTTP/1.0 need not name it.
    let is_missing = hosts.next().is_none() && version == Version::HTTP_11;
    if is_missing || hosts.next().is_some() {
        return Err(Error::new(Reason::InvalidRequest, "A request has one Host header, no more and no less"));
    }
    Ok(())
}

/// Checks the page that sends a request, if a page does.
pub(super) fn check_origin(
    headers: &HeaderMap,
    origins: &AllowedOrigins,
) -> Result<Option<BrowserPage>, Error> {
    if !headers.contains_key(ORIGIN) {
        return Ok(None);
    }
    for origin in headers.get_all(ORIGIN) {
        if !origin.to_str().is_ok_and(|origin| origins.allow(origin)) {
            return Err(Error::new(Reason::OriginNotAllowed, "Requests from this Origin are not allowed"));
        }
    }
    Ok(BrowserPage::of(headers))
}

/// The host that a request is for. HTTP/2 carries it as the request's authority.
pub(super) fn host<'a>(headers: &'a HeaderMap, authority: Option<&'a Authority>) -> Option<&'a str> {
    match authority {
        Some(authority) => Some(authority.as_str()),
        None => headers.get(HOST).map(|host| host.to_str().unwrap_or("\u{fffd}")),
    }
}

impl AllowedHosts {
    /// A request of HTTP/1.0 may name no host; from another machine it might be meant for any.
    fn allow(&self, host: Option<&str>, peer: Peer) -> bool {
        let listed = match self {
            Self::Any => return true,
            Self::Loopback => &[][..],
            Self::List(hosts) => hosts,
        };
        let Some(host) = host else { return peer == Peer::Near };
        let name = without_port(host);
        (peer == Peer::Near && is_loopback(name))
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
            assert_eq!(own.allow(Some(host), Peer::Near), expected, "{host}");
        }
        assert!(!AllowedHosts::Loopback.allow(Some("mcp.example.com"), Peer::Near));
        assert!(AllowedHosts::Any.allow(Some("evil.example.com"), Peer::Far));
    }

    #[test]
    fn a_name_of_this_machine_counts_only_for_peers_on_it() {
        let request = |host: &str| {
            let request = http::Request::post("/mcp").header(HOST, host).body(()).unwrap();
            request.into_parts().0
        };
        let from = |peer: &str| Some(Remote::new(format!("{peer}:5000").parse().unwrap(), "http"));
        let listed = AllowedHosts::List(vec!["mcp.example.com".into()]);
        let named = AllowedHosts::List(vec!["localhost".into()]);
        let table = [
            ("localhost", "127.0.0.1", &AllowedHosts::Loopback, true),
            ("localhost", "[::1]", &AllowedHosts::Loopback, true),
            ("localhost", "[::ffff:127.0.0.1]", &AllowedHosts::Loopback, true),
            ("localhost", "192.0.2.7", &AllowedHosts::Loopback, false),
            ("127.0.0.1:8484", "192.0.2.7", &AllowedHosts::Loopback, false),
            ("[::1]", "[2001:db8::7]", &AllowedHosts::Loopback, false),
            ("localhost", "[::ffff:192.0.2.7]", &AllowedHosts::Loopback, false),
            ("localhost", "192.0.2.7", &listed, false),
            ("mcp.example.com", "192.0.2.7", &listed, true),
            ("localhost", "192.0.2.7", &named, true),
            ("localhost", "192.0.2.7", &AllowedHosts::Any, true),
        ];
        for (host, peer, hosts, expected) in table {
            let checked = check_host(&request(host), from(peer).as_ref(), hosts);
            assert_eq!(checked.is_ok(), expected, "{host} from {peer} where {hosts:?} may");
        }
        assert!(check_host(&request("localhost"), None, &AllowedHosts::Loopback).is_ok(), "it is not said");
    }

    #[test]
    fn a_request_that_names_no_host_is_served_only_to_peers_on_this_machine() {
        let (mut parts, ()) = http::Request::post("/mcp").body(()).unwrap().into_parts();
        parts.version = Version::HTTP_10;
        let from = |peer: &str| Some(Remote::new(format!("{peer}:5000").parse().unwrap(), "http"));
        let listed = AllowedHosts::List(vec!["mcp.example.com".into()]);
        for (peer, hosts, expected) in [
            ("127.0.0.1", &AllowedHosts::Loopback, true),
            ("127.0.0.1", &listed, true),
            ("192.0.2.7", &AllowedHosts::Loopback, false),
            ("192.0.2.7", &listed, false),
            ("192.0.2.7", &AllowedHosts::Any, true),
        ] {
            let checked = check_host(&parts, from(peer).as_ref(), hosts);
            assert_eq!(checked.is_ok(), expected, "from {peer} where {hosts:?} may");
        }
        assert!(check_host(&parts, None, &AllowedHosts::Loopback).is_ok(), "the peer is not known");
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
