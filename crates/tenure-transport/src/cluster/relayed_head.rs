//! The form of a request between nodes: which headers go along, and who asks.
//!
//! The request keeps its method, its body and the headers that MCP reads. Everything that the first node has found out about
//! its sender stands in one header of our own. Only the peer port reads that header: on the public port a client may
//! send what it likes, and nothing of it reaches a peer, since the list below names what goes along.

use std::net::SocketAddr;

use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use serde::{Deserialize, Serialize};
use tenure_auth::{VouchedIdentity, VouchedToken};
use tenure_session::EventId;

use crate::correlation::{REQUEST_ID, TRACEPARENT, TRACESTATE};

/// Who asks, and how.
const HEAD: HeaderName = HeaderName::from_static("tenure-relayed");

/// The token of the one who asks, if a server behind gets another one in exchange for it. Not a part of [`HEAD`], because it is
/// a secret: it is marked as one, so that HTTP/2 keeps it in no table and never prints it.
const TOKEN: HeaderName = HeaderName::from_static("tenure-token");

/// The answer of a node that does not have the session.
const NOT_HERE: HeaderName = HeaderName::from_static("tenure-not-here");

/// The id of the event after which a stream begins that was opened without one.
const BEGINS_AFTER: HeaderName = HeaderName::from_static("tenure-begins-after");

/// The headers of a request that go along. Credentials are not among them: they were verified. What a server behind needs of them
/// is in [`RelayedHead::token`].
const GOING: [HeaderName; 10] = [
    ACCEPT,
    CONTENT_TYPE,
    HeaderName::from_static("mcp-session-id"),
    HeaderName::from_static("mcp-protocol-version"),
    HeaderName::from_static("last-event-id"),
    HeaderName::from_static("mcp-method"),
    HeaderName::from_static("mcp-name"),
    REQUEST_ID,
    TRACEPARENT,
    TRACESTATE,
];

/// The headers of the modern era that repeat what a call says, whatever its tool calls them.
const GOING_PREFIX: &str = "mcp-param-";

/// What the first node knows of a request. A later version may add members; this one ignores them.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct RelayedHead {
    /// The endpoint, if it has a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) endpoint: Option<String>,
    /// Whether the client speaks TLS.
    #[serde(default)]
    pub(crate) is_https: bool,
    /// The address of the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<SocketAddr>,
    /// Who asks; absent if the endpoint asks for no credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) identity: Option<VouchedIdentity>,
    /// Its token, if a server behind gets another one in exchange for it.
    #[serde(skip)]
    pub(crate) token: Option<VouchedToken>,
    /// The format of the answer.
    #[serde(default)]
    pub(crate) format: RelayedFormat,
    /// How often it was sent.
    #[serde(default)]
    pub(crate) attempt: RequestTry,
    /// What it is, if it is no request at the endpoint itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) wish: Option<RelayedWish>,
}

/// A request beside the endpoint.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RelayedWish {
    /// A message for the stream of `/sse` with this secret name.
    Message(String),
    /// The session in the headers is to be given back, because a connection at the other node carries it from now on.
    GiveBack,
    /// The body says which lists and resources of servers have changed.
    News,
}

/// The format of the answer to a POST.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Default, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RelayedFormat {
    /// As at `/mcp`.
    #[default]
    Streamable,
    /// As at `/rpc`.
    Json,
    /// As at POST `/sse`.
    Done,
}

/// Whether another node may have carried out a request already.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Default, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RequestTry {
    /// No node has begun it.
    #[default]
    First,
    /// It was sent to a node, and the connection broke before its answer came.
    Again,
}

impl RelayedHead {
    /// The head of a request that came to the peer port. `None` if it has none, or one that cannot be read.
    pub(crate) fn read(headers: &HeaderMap) -> Option<Self> {
        let head: Self = serde_json::from_slice(headers.get(HEAD)?.as_bytes()).ok()?;
        let token = headers.get(TOKEN).and_then(|token| serde_json::from_slice(token.as_bytes()).ok());
        Some(Self { token, ..head })
    }

    /// Writes it. `None` if it cannot be a header.
    pub(super) fn write(&self, headers: &mut HeaderMap) -> Option<()> {
        // JSON escapes control characters, and a header may have any other byte.
        let text = serde_json::to_vec(self).ok()?;
        headers.insert(HEAD, HeaderValue::from_bytes(&text).ok()?);
        if let Some(token) = &self.token {
            let mut value = HeaderValue::from_bytes(&serde_json::to_vec(token).ok()?).ok()?;
            value.set_sensitive(true);
            headers.insert(TOKEN, value);
        }
        Some(())
    }
}

/// The headers of a client's request that go along to a peer.
pub(crate) fn request_headers(of_client: &HeaderMap) -> HeaderMap {
    let mut going = HeaderMap::with_capacity(GOING.len());
    for name in GOING {
        for value in of_client.get_all(&name) {
            going.append(name.clone(), value.clone());
        }
    }
    for (name, value) in of_client.iter().filter(|(name, _)| name.as_str().starts_with(GOING_PREFIX)) {
        going.append(name.clone(), value.clone());
    }
    going
}

/// The headers of a peer's answer that go to the client. The length and the date are written anew.
pub(crate) fn answer_headers(mut of_peer: HeaderMap) -> HeaderMap {
    for name in [CONTENT_LENGTH, DATE, NOT_HERE, BEGINS_AFTER] {
        of_peer.remove(name);
    }
    of_peer
}

/// Makes a response with a stream say after which event it begins.
pub(crate) fn beginning_after<B>(mut response: Response<B>, id: &EventId) -> Response<B> {
    if let Ok(id) = HeaderValue::from_str(&id.to_string()) {
        response.headers_mut().insert(BEGINS_AFTER, id);
    }
    response
}

/// After which event a peer's stream begins, if the peer says so.
pub(crate) fn begins_after(of_peer: &HeaderMap) -> Option<&[u8]> {
    of_peer.get(BEGINS_AFTER).map(HeaderValue::as_bytes)
}

/// Makes a response say that this node does not have the session.
pub(crate) fn not_here<B>(mut response: Response<B>) -> Response<B> {
    *response.status_mut() = StatusCode::MISDIRECTED_REQUEST;
    response.headers_mut().insert(NOT_HERE, HeaderValue::from_static("1"));
    response
}

/// Whether a peer says that it does not have the session.
pub(crate) fn is_not_here<B>(response: &Response<B>) -> bool {
    response.status() == StatusCode::MISDIRECTED_REQUEST && response.headers().contains_key(NOT_HERE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> RelayedHead {
        RelayedHead {
            endpoint: Some("nötes".to_owned()),
            is_https: true,
            address: Some(([10, 0, 0, 1], 4000).into()),
            identity: serde_json::from_str(
                r#"{"principal":"corp:Zo\u00eb\n","kind":"token","scopes":["a"],"expires":5}"#,
            )
            .unwrap(),
            token: serde_json::from_str(r#"{"token":"ey.secret.x","expires":5}"#).unwrap(),
            format: RelayedFormat::Done,
            attempt: RequestTry::Again,
            wish: Some(RelayedWish::Message("0a".to_owned())),
        }
    }

    #[test]
    fn a_head_is_read_as_it_was_written_whatever_letters_names_have() {
        let mut headers = HeaderMap::new();
        head().write(&mut headers).unwrap();
        assert_eq!(RelayedHead::read(&headers), Some(head()));
        assert_eq!(RelayedHead::read(&HeaderMap::new()), None);
    }

    #[test]
    fn a_token_is_not_shown() {
        let mut headers = HeaderMap::new();
        head().write(&mut headers).unwrap();
        assert!(head().token.is_some() && headers[TOKEN].is_sensitive());
        let shown = format!("{headers:?} {:?} {}", head(), String::from_utf8_lossy(headers[HEAD].as_bytes()));
        assert!(!shown.contains("secret"), "{shown}");
    }

    #[test]
    fn a_head_of_another_version_is_read_as_far_as_it_is_known() {
        let mut headers = HeaderMap::new();
        headers.insert(HEAD, HeaderValue::from_static(r#"{"is_https":true,"lamp":"green"}"#));
        let read = RelayedHead::read(&headers).unwrap();
        assert!(read.is_https && read.attempt == RequestTry::First && read.identity.is_none());
    }

    #[test]
    fn nothing_of_a_client_reaches_a_peer_but_what_is_listed() {
        let mut sent = HeaderMap::new();
        let names = [
            "authorization",
            "cookie",
            "host",
            "tenure-relayed",
            "tenure-token",
            "x-forwarded-for",
            "mcp-session-id",
            "mcp-param-a",
        ];
        for name in names {
            sent.insert(HeaderName::from_static(name), HeaderValue::from_static("x"));
        }
        let going = request_headers(&sent);
        assert_eq!(
            going.keys().map(HeaderName::as_str).collect::<Vec<_>>(),
            ["mcp-session-id", "mcp-param-a"]
        );
    }
}
