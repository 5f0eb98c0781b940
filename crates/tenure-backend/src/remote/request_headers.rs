//! The headers of a request to a server: the one place where they are put together, and where what belongs to clients is
//! kept out.
//!
//! Some headers repeat what a client has sent: its revision, names of tools, arguments, its trace. They pass only by name, so that
//! no credentials of a client reach a server, whatever a later change hands in. Credentials come from the configuration
//! alone, and are added after that.

use http::{HeaderMap, HeaderName};

/// Names that never pass, beside all that are not meant to: those of a client's credentials, and our own word about it.
#[cfg(test)]
const NEVER: [&str; 9] = [
    "authorization",
    "cookie",
    "x-api-key",
    "proxy-authorization",
    "dpop",
    "x-tenure-principal",
    "forwarded",
    "x-forwarded-for",
    "host",
];

/// Adds headers that repeat what a client has sent.
pub(super) fn add_from_client(headers: &mut HeaderMap, from_client: HeaderMap) {
    let mut name = None;
    for (next, value) in from_client {
        // The iterator names a header once, and then gives its other values.
        name = next.or(name);
        if let Some(name) = name.as_ref().filter(|name| passes(name)) {
            headers.insert(name.clone(), value);
        }
    }
}

/// Whether a header may repeat what a client has sent.
fn passes(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "mcp-session-id"
            | "mcp-protocol-version"
            | "mcp-method"
            | "mcp-name"
            | "last-event-id"
            | "traceparent"
    ) || name.as_str().starts_with("mcp-param-")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn up1_no_credentials_of_a_client_pass() {
        let mut from_client = HeaderMap::new();
        for name in NEVER.into_iter().chain(["mcp-method", "mcp-param-region", "traceparent"]) {
            from_client.append(name, HeaderValue::from_static("of the client"));
            from_client.append(name, HeaderValue::from_static("twice"));
        }
        let mut headers = HeaderMap::new();
        headers.insert("authorization", HeaderValue::from_static("ours"));
        add_from_client(&mut headers, from_client);
        let mut left: Vec<_> =
            headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        left.sort_unstable();
        let expected = [
            ("authorization", "ours"),
            ("mcp-method", "twice"),
            ("mcp-param-region", "twice"),
            ("traceparent", "twice"),
        ];
        assert_eq!(left, expected);
    }
}
