//! Sends requests with a time limit and an optional correlation id, one by one or as a batch.
//!
//! A batch is sent as single requests, because newer revisions have no arrays of JSON-RPC messages.

use std::{fmt, time::Duration};

use futures_util::{StreamExt as _, stream};
use rmcp::{
    Peer, RoleClient, ServiceError,
    model::{ClientRequest, RequestMetaObject, ServerResult},
    service::PeerRequestOptions,
};
use serde_json::{Map, Value};
use tokio::sync::watch;

use crate::cookie::hex;

/// The key of the correlation id in a request's `_meta`.
pub const CORRELATION_KEY: &str = "dev.tenure/correlation";

/// The default time limit of a request.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// The default number of requests of a batch that are in flight at once.
pub const DEFAULT_CONCURRENCY: usize = 8;

/// An id that requests share which belong together, for logs and traces. It is not a secret and gives access to
/// nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Correlation(String);

/// How one request is sent.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CallOptions {
    /// Its time limit; else the sender's default.
    pub timeout: Option<Duration>,
    /// The correlation id to send, if any.
    pub correlation: Option<Correlation>,
    /// Further members of `_meta`.
    pub meta: Map<String, Value>,
    /// True while a user is being asked: that time does not count for the time limit. Used by
    /// [`ConnectedClient::request`].
    ///
    /// [`ConnectedClient::request`]: crate::ConnectedClient::request
    pub answering: Option<watch::Receiver<bool>>,
}

/// Sends requests with a time limit.
#[derive(Clone, Debug)]
pub struct RequestSender {
    peer: Peer<RoleClient>,
    timeout: Duration,
}

/// Requests that belong together.
#[derive(Debug)]
#[non_exhaustive]
pub struct Batch {
    /// The requests.
    pub requests: Vec<ClientRequest>,
    /// The correlation id of all of them.
    pub correlation: Correlation,
    /// How many are in flight at once, at least one.
    pub concurrency: usize,
    /// The time limit of each of them; else the sender's default.
    pub timeout: Option<Duration>,
}

impl Correlation {
    /// A new id of 128 random bits.
    ///
    /// # Panics
    ///
    /// If the operating system has no randomness.
    pub fn random() -> Self {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the operating system has randomness");
        Self(hex(&bytes))
    }

    /// An id from elsewhere.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Correlation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl CallOptions {
    /// Sets the time limit.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Adds a member to `_meta`.
    #[must_use]
    pub fn with_meta(mut self, key: impl Into<String>, value: Value) -> Self {
        self.meta.insert(key.into(), value);
        self
    }

    /// Stops the time limit while `answering` is true.
    #[must_use]
    pub fn with_answering(self, answering: watch::Receiver<bool>) -> Self {
        Self { answering: Some(answering), ..self }
    }

    pub(crate) fn is_answering(&self) -> bool {
        self.answering.as_ref().is_some_and(|answering| *answering.borrow())
    }

    /// Sets the correlation id.
    #[must_use]
    pub fn with_correlation(self, correlation: Correlation) -> Self {
        Self { correlation: Some(correlation), ..self }
    }
}

impl Batch {
    /// A batch of these requests with a new correlation id.
    pub fn new(requests: impl IntoIterator<Item = ClientRequest>) -> Self {
        Self {
            requests: requests.into_iter().collect(),
            correlation: Correlation::random(),
            concurrency: DEFAULT_CONCURRENCY,
            timeout: None,
        }
    }
}

impl RequestSender {
    /// A sender over this connection, with the default time limit.
    pub fn new(peer: Peer<RoleClient>) -> Self {
        Self { peer, timeout: DEFAULT_TIMEOUT }
    }

    /// Sets the time limit of requests that have none of their own.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sends a request and waits for its answer. At the time limit the request is cancelled at the server; a later
    /// answer is ignored.
    ///
    /// # Errors
    ///
    /// rmcp's own, among them `ServiceError::Timeout` and `ServiceError::McpError`.
    ///
    /// # Cancel safety
    ///
    /// The server still handles the request, and its answer is ignored.
    pub async fn request(
        &self,
        request: impl Into<ClientRequest>,
        options: &CallOptions,
    ) -> Result<ServerResult, ServiceError> {
        let mut sending = PeerRequestOptions::with_timeout(options.timeout.unwrap_or(self.timeout));
        let mut meta = RequestMetaObject::default();
        meta.0.0.extend(options.meta.clone());
        if let Some(correlation) = &options.correlation {
            meta.0.0.insert(CORRELATION_KEY.to_owned(), Value::from(correlation.as_str()));
        }
        sending.meta = Some(meta);
        self.peer.send_request_with_option(request.into(), sending).await?.await_response().await
    }

    /// Sends the requests of a batch, several at a time, and returns the answers in the order of the requests. After a
    /// failure the other requests are still sent.
    ///
    /// # Cancel safety
    ///
    /// As `request`; requests that were not sent yet are dropped.
    pub async fn batch(&self, batch: Batch) -> Vec<Result<ServerResult, ServiceError>> {
        let options = CallOptions {
            timeout: batch.timeout,
            correlation: Some(batch.correlation),
            ..CallOptions::default()
        };
        let answers = batch.requests.into_iter().map(|request| self.request(request, &options));
        stream::iter(answers).buffered(batch.concurrency.max(1)).collect().await
    }
}
