//! Every bound and timeout of exchanges, in one place.

use std::time::Duration;

use crate::limits::{Jitter, Limits, OtherServer};

/// Every bound and timeout of exchanges.
#[derive(Clone, Debug)]
pub struct ExchangeLimits {
    /// The most exchanges that run at once, without listens.
    pub max_running: usize,
    /// The most listens at once.
    pub max_listens: usize,
    /// The most calls that wait for their client to come back with answers.
    pub max_parked: usize,
    /// The most unread messages of one exchange; beyond that the server has to wait.
    pub max_waiting: usize,
    /// The most bytes of such messages. One message is always queued, however large it is.
    pub max_waiting_bytes: usize,
    /// Resources that one listen may watch.
    pub max_subscriptions: usize,
    /// The largest message to a client.
    pub max_event_bytes: usize,
    /// How long an answer may take before it becomes a stream, which at least sends comments. It should be long: the
    /// status of a stream is sent at its start, and can no longer report an error such as an unknown method.
    pub stream_after: Duration,
    /// The longest a server may take without reporting progress.
    pub request_timeout: Duration,
    /// The longest a server may take even if it reports progress.
    pub max_request_time: Duration,
    /// The longest a client may take to come back with answers. A `requestState` is valid for as long.
    pub ask_timeout: Duration,
    /// How long to wait after a question for further ones, so that the client gets them together.
    pub gather: Duration,
    /// The longest wait for further questions in all.
    pub gather_at_most: Duration,
    /// The most calls with a note in the store, so that their clients can come back for them; 0: none.
    pub max_kept: usize,
    /// How long a client should wait before it comes back for a broken stream.
    pub retry: Duration,
    /// The same when the process stops, and no other process has its socket.
    pub stop_retry: Duration,
    /// How much both times vary from call to call.
    pub retry_jitter: Jitter,
    /// What to do with a call whose client comes back while its endpoint has another server.
    pub other_server: OtherServer,
}

impl Default for ExchangeLimits {
    fn default() -> Self {
        Self::of(&Limits::default())
    }
}

impl ExchangeLimits {
    /// The bounds that sessions have, where exchanges have the same.
    pub fn of(limits: &Limits) -> Self {
        Self {
            max_running: 10_000,
            max_listens: 10_000,
            max_parked: 1000,
            max_waiting: limits.max_tail_events,
            max_waiting_bytes: limits.max_unstored_bytes,
            max_subscriptions: limits.max_subscriptions,
            max_event_bytes: limits.max_event_bytes,
            stream_after: Duration::from_secs(10),
            request_timeout: limits.request_timeout,
            max_request_time: limits.max_request_time,
            ask_timeout: limits.ask_timeout,
            gather: Duration::from_millis(30),
            gather_at_most: Duration::from_millis(200),
            max_kept: 10_000,
            retry: limits.retry,
            stop_retry: limits.stop_retry,
            retry_jitter: limits.retry_jitter,
            other_server: limits.other_server,
        }
    }
}
