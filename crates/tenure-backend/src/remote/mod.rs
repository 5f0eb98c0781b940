//! Remote MCP servers, reached over Streamable HTTP or over its predecessor HTTP+SSE (`detect`).
//!
//! Each of our sessions has a session at the server (`link`). Every request is a POST. Its answer is JSON or a stream
//! of events, which we parse as the HTML standard says (`sse`, `events`) and resume if it breaks (`follow`). Messages
//! that belong to no request come on a stream of their own (`listen`). A server that has forgotten the session answers
//! 404: the link is then lost, and the runtime opens another one and repeats the refused requests. Notifications keep
//! their order among the requests (`notifications`), the server's questions to the client are bounded (`crate::questions`),
//! and the session at the server always ends with ours (`session_guard`). While a server is away, requests wait for it
//! (`outage`). The client's own credentials are never passed on (`request_headers`); ours come from the configuration, or from
//! an [`UpstreamCredentials`] (`credentials`). Over HTTP+SSE the session at the server is one
//! stream, and lives as long as that stream (`http_sse`).
//!
//! All this is for servers with sessions. Requests without a session, of the modern era, are posted as they are
//! (`modern`).

mod detect;

mod link;

mod follow;
mod listen;
mod notifications;
mod session_guard;

mod http_sse;

mod modern;

mod http_client;
mod outage;
mod credentials;
mod request_headers;

mod events;
mod sse;

use std::sync::Arc;
use std::time::Duration;

use tenure_protocol::RpcError;
use tenure_session::backend::{Backend, Open, Opened};
use tenure_session::port::BoxFuture;

pub use self::credentials::{CredentialHeaders, NoCredentials, OnBehalf, Purpose, UpstreamCredentials};
pub use self::modern::RemoteResponder;

use crate::remote::detect::TransportDetector;
use crate::remote::http_client::HttpClient;

/// The address of a remote server, and how to reach it.
#[derive(Clone)]
pub struct Upstream {
    /// Its endpoint.
    pub url: String,
    /// Headers that go with every request, such as its own credentials.
    pub headers: Vec<(String, String)>,
    /// Credentials that change, such as tokens.
    pub credentials: Option<Arc<dyn UpstreamCredentials>>,
    /// How long it may take to connect.
    pub connect_timeout: Duration,
    /// The largest message that we take from it.
    pub max_message_bytes: usize,
    /// How long requests wait for a server that is away. Should be less than the session's timeout for opening a link;
    /// otherwise the session times out before it gets the server's error. Zero: requests fail at once.
    pub patience: Duration,
}

impl Upstream {
    /// A server at this endpoint.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            headers: Vec::new(),
            credentials: None,
            connect_timeout: Duration::from_secs(5),
            max_message_bytes: 16 << 20,
            patience: Duration::from_secs(60),
        }
    }
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Headers may be secrets, and so may parts of the URL.
        let place = self.url.parse().map(|url| http_client::place(&url)).unwrap_or_default();
        f.debug_struct("Upstream").field("url", &place).finish_non_exhaustive()
    }
}

/// A backend that opens a session at a remote server for each of our sessions.
pub struct RemoteBackend {
    http: Arc<HttpClient>,
    detector: Arc<TransportDetector>,
}

impl RemoteBackend {
    /// A backend in front of this server.
    ///
    /// # Errors
    /// When the URL or a header is invalid.
    pub fn new(upstream: &Upstream) -> Result<Self, String> {
        Ok(Self {
            http: Arc::new(HttpClient::new(upstream)?),
            detector: Arc::new(TransportDetector::unknown()),
        })
    }

    /// The responder of the same server, for requests without a session. Both share their connections. Only the server
    /// itself can say whether it knows that era; see [`tenure_session::backend::probe`].
    pub fn modern(&self) -> RemoteResponder {
        RemoteResponder::at(Arc::clone(&self.http))
    }
}

impl Backend for RemoteBackend {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let (http, detector) = (Arc::clone(&self.http), Arc::clone(&self.detector));
        Box::pin(async move { detector.open(&http, open).await })
    }
}

impl std::fmt::Debug for RemoteBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RemoteBackend").field(&self.http.place()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_has_no_secrets() {
        let mut upstream = Upstream::new("https://user:key@example.com/mcp?key=key");
        upstream.headers.push(("authorization".to_owned(), "key".to_owned()));
        let backend = RemoteBackend::new(&upstream).unwrap();
        for printed in [format!("{upstream:?}"), format!("{backend:?}")] {
            assert!(printed.contains("https://example.com/mcp") && !printed.contains("key"), "{printed}");
        }
        assert!(!format!("{:?}", Upstream::new("key")).contains("key"));
    }
}
