//! Every bound and timeout of exchanges, in one place.

use std::time::Duration;

use crate::limits::{Jitter, Limits, OtherServer};

/// Every bound and timeout of exchanges.
#[derive(Clone, Debug)]
pub struct ExchangeLimits {
    /// Exchanges that run at once, listens not among them.
    pub max_running: usize,
    /// Listens at once.
    pub max_listens: usize,
    /// Calls that wait for a client to come back with answers.
    pub max_parked: usize,
    /// Messages of one exchange that wait for its reader; beyond it the server has to wait.
    pub max_waiting: usize,
    /// Bytes of such messages. One message may always wait, however large.
    pub max_waiting_bytes: usize,
    /// Resources that one listen may watch.
    pub max_subscriptions: usize,
    /// The largest message to a client.
    pub max_event_bytes: usize,
    /// How long an answer may take before it becomes a stream, of which then at least comments come. Not soon: the
    /// status of a stream is fixed, so it cannot say any more that a method is not found.
    pub stream_after: Duration,
    /// The longest a server may take without reporting progress.
    pub request_timeout: Duration,
    /// The longest a server may take even if it reports progress.
    pub max_request_time: Duration,
    /// The longest a client may take to come back with answers, and a state in its hands is good for.
    pub ask_timeout: Duration,
    /// How long to wait for further questions after one, so that a client gets them at once.
    pub gather: Duration,
    /// How long to wait for further questions in all.
    pub gather_at_most: Duration,
    /// Calls that are noted at once, so that their clients can come back for them; 0: none.
    pub max_kept: usize,
    /// How long a client should wait before it comes back for a stream that broke.
    pub retry: Duration,
    /// The same when the process stops, and no other has its socket.
    pub stop_retry: Duration,
    /// By how much both are longer for some calls than for others.
    pub retry_jitter: Jitter,
    /// What becomes of a call whose client comes back when another server has taken the place of its own.
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
