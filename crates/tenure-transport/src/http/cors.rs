//! CORS: tells a browser whether a page may send a request, and whether the page may read the answer.
//!
//! In: the `Origin` that the guard has allowed. Out: the answer to a preflight request, and the `Access-Control-*`
//! headers of every other answer. A request without `Origin` does not come from a page, so its answer gets no such
//! header, and no `Vary` either, because a cache may not keep these answers.
//!
//! Pages carry their credentials in headers that they set themselves, so `Access-Control-Allow-Credentials` is never
//! sent.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderName, HeaderValue, ORIGIN, VARY,
};
use http::{HeaderMap, Method, Response, StatusCode};

use super::body::Body;
use super::reject::empty;

/// Request headers that every page may set. Always listed together, so that a browser asks once and not for each
/// header.
const ALLOWED_HEADERS: &str = "accept, authorization, baggage, content-type, last-event-id, mcp-method, mcp-name, \
     mcp-protocol-version, mcp-session-id, traceparent, tracestate";

/// Response headers that a page may read, besides those that every page may read.
const EXPOSED_HEADERS: HeaderValue =
    HeaderValue::from_static("Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After, Allow");

/// Two hours: the longest that Chromium remembers the answer to a preflight request.
const MAX_AGE: HeaderValue = HeaderValue::from_static("7200");

const REQUEST_PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-request-private-network");
const ALLOW_PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-allow-private-network");

/// The origin of a page that may use this server.
#[derive(Clone, Debug)]
pub(super) struct BrowserPage(HeaderValue);

impl BrowserPage {
    /// The page that sent a request whose `Origin` was allowed. A browser sends one origin, so two do not come from a
    /// page.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut origins = headers.get_all(ORIGIN).iter();
        match (origins.next(), origins.next()) {
            (Some(origin), None) => Some(Self(origin.clone())),
            _ => None,
        }
    }

    /// The answer to a preflight request for a path with these methods; `None` if the request is not a preflight.
    pub(super) fn preflight(
        &self,
        method: &Method,
        headers: &HeaderMap,
        methods: &'static str,
    ) -> Option<Response<Body>> {
        if method != Method::OPTIONS || !headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
            return None;
        }
        let mut response = empty(StatusCode::NO_CONTENT);
        let answered = response.headers_mut();
        answered.insert(ACCESS_CONTROL_ALLOW_ORIGIN, self.0.clone());
        answered.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(methods));
        answered.insert(ACCESS_CONTROL_ALLOW_HEADERS, allowed_headers(headers));
        answered.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        if headers.get(REQUEST_PRIVATE_NETWORK).is_some_and(|asked| asked == "true") {
            // A page from the internet asks whether it may use a server in a private network, or on this machine.
            answered.insert(ALLOW_PRIVATE_NETWORK, HeaderValue::from_static("true"));
        }
        answered.insert(
            VARY,
            HeaderValue::from_static(
                "Origin, Access-Control-Request-Headers, Access-Control-Request-Private-Network",
            ),
        );
        Some(response)
    }

    /// Lets the page read a response.
    pub(super) fn may_read(self, mut response: Response<Body>) -> Response<Body> {
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, self.0);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED_HEADERS);
        headers.append(VARY, HeaderValue::from_static("Origin"));
        response
    }
}

/// Lets the page read a response, if a page sent the request.
pub(super) fn readable(response: Response<Body>, page: Option<BrowserPage>) -> Response<Body> {
    match page {
        None => response,
        Some(page) => page.may_read(response),
    }
}

/// The request headers that are allowed: the fixed list, and the harmless ones that the browser asks for.
fn allowed_headers(headers: &HeaderMap) -> HeaderValue {
    let ours = |name: &str| ALLOWED_HEADERS.split(", ").any(|ours| ours.eq_ignore_ascii_case(name));
    let mut allowed = String::new();
    for value in headers.get_all(ACCESS_CONTROL_REQUEST_HEADERS) {
        for name in value.to_str().unwrap_or_default().split(',').map(str::trim) {
            if !ours(name) && is_harmless(name) {
                allowed.push_str(", ");
                allowed.push_str(name);
            }
        }
    }
    if allowed.is_empty() {
        return HeaderValue::from_static(ALLOWED_HEADERS);
    }
    allowed.insert_str(0, ALLOWED_HEADERS);
    HeaderValue::try_from(allowed).unwrap_or(HeaderValue::from_static(ALLOWED_HEADERS))
}

/// Whether a page may set this header. It may not set a header that tells a request's origin or its real method,
/// because proxies set those and servers trust them.
fn is_harmless(name: &str) -> bool {
    let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else { return false };
    let name = name.as_str();
    let is_of_proxies = ["x-forwarded-", "proxy-", "sec-", "x-original-", "x-rewrite-", "cf-", "x-envoy-"]
        .iter()
        .any(|prefix| name.starts_with(prefix));
    let is_trusted = matches!(
        name,
        "connection"
            | "content-length"
            | "cookie"
            | "forwarded"
            | "host"
            | "keep-alive"
            | "origin"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "true-client-ip"
            | "upgrade"
            | "via"
            | "x-client-ip"
            | "x-cluster-client-ip"
            | "x-forwarded"
            | "x-http-method"
            | "x-http-method-override"
            | "x-method-override"
            | "x-real-ip"
    );
    !is_of_proxies && !is_trusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_may_set_what_no_proxy_sets() {
        for (name, harmless) in [
            ("mcp-param-city", true),
            ("Mcp-Param-Region", true),
            ("x-api-key", true),
            ("x-b3-traceid", true),
            ("x-request-id", true),
            ("X-Forwarded-For", false),
            ("x-forwarded-host", false),
            ("forwarded", false),
            ("x-real-ip", false),
            ("x-http-method-override", false),
            ("proxy-authorization", false),
            ("sec-fetch-site", false),
            ("cookie", false),
            ("host", false),
            ("", false),
            ("not a name", false),
            ("*", true),
        ] {
            assert_eq!(is_harmless(name), harmless, "{name}");
        }
    }

    #[test]
    fn headers_that_are_allowed_anyway_are_not_repeated() {
        let mut headers = HeaderMap::new();
        headers.insert(
            ACCESS_CONTROL_REQUEST_HEADERS,
            "Content-Type,mcp-session-id, mcp-param-a".parse().unwrap(),
        );
        assert_eq!(allowed_headers(&headers), format!("{ALLOWED_HEADERS}, mcp-param-a"));
        assert_eq!(allowed_headers(&HeaderMap::new()), ALLOWED_HEADERS);
    }
}
