//! What may come from a browser: the host that a request is for, and the page that sends it.
//!
//! A page of another site can make a browser send requests here, and a rebound name can make them look like our own. Neither
//! can make it send another `Host`, another `Sec-Fetch-Site`, or a header that needs our permission, which no page is given.

use std::net::SocketAddr;

use hyper::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue, ORIGIN};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method};

use super::error::AdminError;
use crate::page::HEADERS;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const X_TENURE: HeaderName = HeaderName::from_static("x-tenure");

/// Knows at which names the port is.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    address: SocketAddr,
    /// Names that are configured, in lower case, with or without a port.
    hosts: Vec<String>,
}

impl Guard {
    pub(super) fn new(address: SocketAddr, hosts: &[String]) -> Self {
        Self { address, hosts: hosts.iter().map(|host| host.to_ascii_lowercase()).collect() }
    }

    /// Checks the host that a request is for.
    pub(super) fn check_host(&self, head: &Parts, peer: SocketAddr) -> Result<(), AdminError> {
        let mut hosts = head.headers.get_all(HOST).iter();
        let host = match (hosts.next(), hosts.next()) {
            (Some(host), None) => host.to_str().unwrap_or_default(),
            _ => return Err(AdminError::cross_site("A request has one Host header")),
        };
        if self.allows(host, peer) {
            return Ok(());
        }
        Err(AdminError::cross_site("This Host is not served here").hint(
            "open the page at the address that the server listens on, or add the name to `admin.hosts`",
        ))
    }

    fn allows(&self, host: &str, peer: SocketAddr) -> bool {
        let host = host.to_ascii_lowercase();
        let port = self.address.port();
        let bare = host.strip_suffix(&format!(":{port}"));
        if self.hosts.iter().any(|own| *own == host || Some(own.as_str()) == bare) {
            return true;
        }
        // The port has to be the right one: another one is another server.
        let default_port = if matches!(port, 80 | 443) { Some(host.as_str()) } else { None };
        let Some(name) = bare.or(default_port) else { return false };
        let ip = self.address.ip();
        let is_near = ip.is_loopback() || (ip.is_unspecified() && peer.ip().to_canonical().is_loopback());
        let own = match ip {
            std::net::IpAddr::V4(ip) => ip.to_string(),
            std::net::IpAddr::V6(ip) => format!("[{ip}]"),
        };
        (is_near && matches!(name, "localhost" | "127.0.0.1" | "[::1]"))
            || (!ip.is_unspecified() && name == own)
    }
}

/// Checks that a request with a cookie was sent by our own page.
pub(super) fn check_page(head: &Parts) -> Result<(), AdminError> {
    let site = text(&head.headers, &SEC_FETCH_SITE);
    if matches!(head.method, Method::GET | Method::HEAD) {
        // A browser without the header is old, and keeps the cookie from other sites by itself.
        return match site {
            None | Some("same-origin" | "none") => Ok(()),
            Some(_) => Err(AdminError::cross_site("Pages of other sites may not ask")),
        };
    }
    let is_json = text(&head.headers, &CONTENT_TYPE)
        .and_then(|kind| kind.split(';').next())
        .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"));
    if site != Some("same-origin") || !is_json || text(&head.headers, &X_TENURE) != Some("1") {
        return Err(AdminError::cross_site("A change with a cookie has to come from our own page").hint(
            "it needs `Sec-Fetch-Site: same-origin`, which browsers send, `Content-Type: application/json` and `X-Tenure: 1`; \
             scripts send a key in place of the cookie",
        ));
    }
    let origin = text(&head.headers, &ORIGIN).and_then(|origin| origin.split_once("://"));
    match (origin, text(&head.headers, &HOST)) {
        (Some((_, origin)), Some(host)) if !origin.eq_ignore_ascii_case(host) => {
            Err(AdminError::cross_site("Pages of other sites may not ask"))
        }
        _ => Ok(()),
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}

/// Adds the headers of every answer.
pub(super) fn add_headers(headers: &mut HeaderMap) {
    for (name, value) in HEADERS.iter().chain(&[("x-frame-options", "DENY")]) {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    #[test]
    fn a_host_is_ours_with_our_port_alone() {
        let near: SocketAddr = "127.0.0.1:5000".parse().unwrap();
        let far: SocketAddr = "192.0.2.7:5000".parse().unwrap();
        let guard = |address: &str, hosts: &[&str]| {
            let hosts: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
            Guard::new(address.parse().unwrap(), &hosts)
        };
        let own = guard("127.0.0.1:8485", &["Tenure.example.com"]);
        for (host, expected) in [
            ("127.0.0.1:8485", true),
            ("LOCALHOST:8485", true),
            ("[::1]:8485", true),
            ("tenure.example.com", true),
            ("tenure.example.com:8485", true),
            ("tenure.example.com:8484", false),
            ("127.0.0.1:8484", false),
            ("127.0.0.1", false),
            ("evil.example:8485", false),
            ("localhost.evil.example:8485", false),
            ("127.0.0.1.evil.example:8485", false),
            ("", false),
        ] {
            assert_eq!(own.allows(host, near), expected, "{host}");
        }
        let everywhere = guard("0.0.0.0:8485", &["tenure.example.com"]);
        assert!(everywhere.allows("127.0.0.1:8485", near), "through a tunnel");
        assert!(!everywhere.allows("127.0.0.1:8485", far));
        assert!(!everywhere.allows("0.0.0.0:8485", far));
        let one = guard("192.0.2.1:443", &[]);
        assert!(one.allows("192.0.2.1", far) && one.allows("192.0.2.1:443", far));
        assert!(!one.allows("localhost", near));
        let six = guard("[2001:db8::1]:8485", &[]);
        assert!(six.allows("[2001:db8::1]:8485", far));
    }

    #[test]
    fn a_change_with_a_cookie_comes_from_our_own_page() {
        let good = [
            ("host", "127.0.0.1:8485"),
            ("sec-fetch-site", "same-origin"),
            ("content-type", "application/json; charset=utf-8"),
            ("x-tenure", "1"),
            ("origin", "http://127.0.0.1:8485"),
        ];
        let check = |method: &str, left_out: &str, changed: Option<(&str, &str)>| {
            let mut request = Request::builder().method(method);
            for (name, value) in good.iter().filter(|(name, _)| *name != left_out) {
                let value = changed.filter(|(other, _)| other == name).map_or(*value, |(_, value)| value);
                request = request.header(*name, value);
            }
            check_page(&request.body(()).unwrap().into_parts().0).is_ok()
        };
        assert!(check("POST", "", None) && check("PATCH", "", None) && check("GET", "", None));
        assert!(check("POST", "origin", None), "not every browser sends it");
        for header in ["sec-fetch-site", "content-type", "x-tenure"] {
            assert!(!check("POST", header, None), "without {header}");
        }
        for changed in [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("sec-fetch-site", "none"),
            ("content-type", "text/plain"),
            ("content-type", "application/x-www-form-urlencoded"),
            ("x-tenure", "0"),
            ("origin", "http://evil.example"),
            ("origin", "http://127.0.0.1:8484"),
        ] {
            assert!(!check("POST", "", Some(changed)), "{changed:?}");
        }
        for site in ["cross-site", "same-site"] {
            assert!(!check("GET", "", Some(("sec-fetch-site", site))), "{site}");
        }
        assert!(check("GET", "sec-fetch-site", None));
    }
}
