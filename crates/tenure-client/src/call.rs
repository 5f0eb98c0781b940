//! Requests with a time limit and, if asked for, a correlation id; and groups of them.
//!
//! A group is made of single requests: an array of JSON-RPC messages is not part of the protocol any more.

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

/// The key in a request's `_meta` under which its correlation id goes.
pub const CORRELATION_KEY: &str = "dev.tenure/correlation";

/// How long a request may take if nobody says otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// How many requests of a batch are in flight at once if nobody says otherwise.
pub const DEFAULT_CONCURRENCY: usize = 8;

/// Says which requests belong together, for logs and traces. No secret, and no key to any state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Correlation(String);

/// How one request is sent.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CallOptions {
    /// How long it may take; else the caller's default.
    pub timeout: Option<Duration>,
    /// Sent along if there is one.
    pub correlation: Option<Correlation>,
    /// Sent along in `_meta`.
    pub meta: Map<String, Value>,
    /// Says while a user is being asked, which is no time that the server takes. Heeded by [`Client::request`].
    ///
    /// [`Client::request`]: crate::Client::request
    pub answering: Option<watch::Receiver<bool>>,
}

/// Sends requests with a time limit.
#[derive(Clone, Debug)]
pub struct Caller {
    peer: Peer<RoleClient>,
    timeout: Duration,
}

/// Requests that belong together.
#[derive(Debug)]
#[non_exhaustive]
pub struct Batch {
    /// The requests.
    pub requests: Vec<ClientRequest>,
    /// What they share.
    pub correlation: Correlation,
    /// How many are in flight at once, at least one.
    pub concurrency: usize,
    /// How long each of them may take; else the caller's default.
    pub timeout: Option<Duration>,
}

impl Correlation {
    /// A new one, of 128 random bits.
    ///
    /// # Panics
    ///
    /// If the operating system has no randomness.
    pub fn random() -> Self {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the operating system has randomness");
        Self(hex(&bytes))
    }

    /// One that comes from elsewhere.
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
    /// With a time limit of its own.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// With this in `_meta`.
    #[must_use]
    pub fn with_meta(mut self, key: impl Into<String>, value: Value) -> Self {
        self.meta.insert(key.into(), value);
        self
    }

    /// With time that stands still while this is true.
    #[must_use]
    pub fn with_answering(self, answering: watch::Receiver<bool>) -> Self {
        Self { answering: Some(answering), ..self }
    }

    pub(crate) fn is_answering(&self) -> bool {
        self.answering.as_ref().is_some_and(|answering| *answering.borrow())
    }

    /// With a correlation id.
    #[must_use]
    pub fn with_correlation(self, correlation: Correlation) -> Self {
        Self { correlation: Some(correlation), ..self }
    }
}

impl Batch {
    /// These requests, under a correlation id of their own.
    pub fn new(requests: impl IntoIterator<Item = ClientRequest>) -> Self {
        Self {
            requests: requests.into_iter().collect(),
            correlation: Correlation::random(),
            concurrency: DEFAULT_CONCURRENCY,
            timeout: None,
        }
    }
}

impl Caller {
    /// Sends over this connection, with the usual time limit.
    pub fn new(peer: Peer<RoleClient>) -> Self {
        Self { peer, timeout: DEFAULT_TIMEOUT }
    }

    /// With another time limit for requests that have none of their own.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sends a request and waits for its answer. When the time is over the server is told that it is not
    /// wanted any more; an answer that comes later is ignored.
    ///
    /// # Errors
    ///
    /// rmcp's own, among them `ServiceError::Timeout` and `ServiceError::McpError`.
    ///
    /// # Cancel safety
    ///
    /// The request stays with the server, and its answer is ignored.
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

    /// Sends the requests of a batch one by one, some at a time, and returns their answers in their order.
    /// One that fails does not keep the others from being sent.
    ///
    /// # Cancel safety
    ///
    /// As `request`; those that were not sent yet are not.
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
