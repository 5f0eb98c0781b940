//! MCP servers elsewhere, reached over Streamable HTTP, or over the HTTP+SSE that came before it (`detect`).
//!
//! A session of ours has a session there. Requests are posted one by one; an answer is JSON or a stream of events,
//! which is read as the HTML standard says (`sse`, `events`) and resumed if it breaks off (`follow`). What belongs to
//! no request comes on a stream of its own (`listen`). A server that has forgotten the session says 404: the link is then lost, and the runtime opens
//! another and repeats what was refused. Notifications keep their place among the requests (`notifications`), what the
//! server asks of the client is bounded (`questions`), and whatever becomes of a session here, the one there is ended
//! (`session_guard`). A server that is away is waited for (`outage`). Nothing of the client's own credentials is passed on.
//! Over HTTP+SSE a session there is one stream, and lives as long as that (`http_sse`).
//!
//! All that is for servers with sessions. Requests without one, of the modern era, are posted as they are ([`modern`]).

mod detect;
mod events;
mod follow;
mod http_client;
mod http_sse;
mod link;
mod listen;
pub mod modern;
mod notifications;
mod outage;
mod questions;
mod session_guard;
mod sse;

use std::sync::Arc;
use std::time::Duration;

use tenure_protocol::RpcError;
use tenure_session::backend::{Backend, Open, Opened};
use tenure_session::port::BoxFuture;

pub use self::modern::RemoteResponder;

use crate::remote::detect::Manner;
use crate::remote::http_client::Door;

/// Where the server is, and how it is talked to.
#[derive(Clone)]
pub struct Upstream {
    /// Its endpoint.
    pub url: String,
    /// Headers that go with every request, such as its own credentials.
    pub headers: Vec<(String, String)>,
    /// How long a connection may take.
    pub connect_timeout: Duration,
    /// The largest message from it.
    pub max_message_bytes: usize,
    /// How long it is waited for while it is away. Should be less than the session waits for its link, which otherwise does
    /// not hear why it failed. Zero: requests fail at once.
    pub patience: Duration,
}

impl Upstream {
    /// A server at this endpoint.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            headers: Vec::new(),
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

/// A backend that opens a session at a server elsewhere for every session of ours.
pub struct RemoteBackend {
    door: Arc<Door>,
    manner: Arc<Manner>,
}

impl RemoteBackend {
    /// A backend in front of this server.
    ///
    /// # Errors
    /// When the URL or a header makes no sense.
    pub fn new(upstream: &Upstream) -> Result<Self, String> {
        Ok(Self { door: Arc::new(Door::new(upstream)?), manner: Arc::new(Manner::unknown()) })
    }

    /// The other half of the same server, for requests without a session. Both share their connections. Whether the
    /// server is of that era is for the server to say; see [`tenure_session::backend::probe`].
    pub fn modern(&self) -> RemoteResponder {
        RemoteResponder::at(Arc::clone(&self.door))
    }
}

impl Backend for RemoteBackend {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let (door, manner) = (Arc::clone(&self.door), Arc::clone(&self.manner));
        Box::pin(async move { manner.open(&door, open).await })
    }
}

impl std::fmt::Debug for RemoteBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RemoteBackend").field(&self.door.place()).finish()
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
