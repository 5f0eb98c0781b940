//! Every bound and timeout of the session runtime, in one place.

use std::time::Duration;

use crate::id::{SessionKey, StreamId};

/// What to do with a `Last-Event-ID` that does not parse or belongs to another session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum UnknownEventId {
    /// Open the standalone stream as if no id had been sent, and log it.
    #[default]
    Fresh,
    /// Answer 400.
    Error,
    /// Replay all kept events of the standalone stream.
    ReplayAll,
}

/// What to do when events that a client asks for are no longer kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnGap {
    /// Go on from the oldest kept event and say so in a comment on the stream.
    #[default]
    Report,
    /// As `Report`, and send a `notifications/message` warning too.
    Warn,
    /// Answer 400: the session goes on without this stream. A 404 would make the client give up the session.
    Error,
}

/// What to do with a stored session whose endpoint now has another server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OtherServer {
    /// Answer as for a session that has ended, so that the client begins a new one. The session stays in the store.
    #[default]
    Refuse,
    /// Wake the session with the new server, and log a warning.
    Warn,
}

/// How much longer a retry time is for some streams than for others, so that clients do not all come back at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Jitter {
    percent: u32,
}

impl Jitter {
    /// Every stream has the same time.
    pub const NONE: Self = Self { percent: 0 };

    /// Adds up to this many percent, at most 100. It never makes a time shorter: clients retry only twice, so the time
    /// decides how long an outage may last.
    pub const fn percent(percent: u32) -> Self {
        Self { percent: if percent > 100 { 100 } else { percent } }
    }

    /// How many percent.
    pub fn as_percent(self) -> u32 {
        self.percent
    }

    /// The time for one stream. It is the same on every call.
    pub(crate) fn of(self, time: Duration, session: SessionKey, stream: StreamId) -> Duration {
        // Keys are hashes of random ids: their bytes are as good as random.
        let key = session.as_bytes();
        let lot = u32::from(key[0]) ^ (stream.number().wrapping_mul(0x9e37_79b9) >> 24);
        let (lot, percent) = (f64::from(lot & 0xff) / 255.0, f64::from(self.percent) / 100.0);
        let millis = time.as_secs_f64() * 1000.0 * (1.0 + percent * lot);
        Duration::from_millis(millis.round() as u64)
    }
}

/// Every bound and timeout.
#[derive(Clone, Debug)]
pub struct Limits {
    /// A session that is not used for this long expires. `None`: never.
    pub idle_ttl: Option<Duration>,
    /// A session whose client sent nothing after `initialize` expires after this time, if `idle_ttl` is longer. `None`:
    /// `idle_ttl` applies to it too.
    pub handshake_ttl: Option<Duration>,
    /// A session expires at this age, used or not. `None`: never.
    pub max_lifetime: Option<Duration>,
    /// A session that is not used for this long closes its link to the server and frees its memory. Its next request
    /// wakes it. `None`: never.
    pub dormant_after: Option<Duration>,
    /// How long a tombstone is kept, so that the id of an ended session stays invalid and the error gives the cause.
    pub tombstone_ttl: Duration,
    /// The most tombstones that are kept; beyond that the oldest are removed first.
    pub max_tombstones: usize,
    /// Sessions in all.
    pub max_sessions: usize,
    /// Sessions of one principal.
    pub max_sessions_per_principal: usize,
    /// Dormant sessions that a node of a cluster wakes at the same time; others wait in order.
    pub max_parallel_wakes: usize,
    /// The largest params of `initialize`; they are kept as long as the session.
    pub max_initialize_bytes: usize,
    /// The largest metadata of a session, as JSON.
    pub max_metadata_bytes: usize,
    /// Resources one session may watch.
    pub max_subscriptions: usize,
    /// Streams of one session that are open at once.
    pub max_streams: usize,
    /// Requests in flight from the client, and as many the other way.
    pub max_pending: usize,
    /// The largest message to the client.
    pub max_event_bytes: usize,
    /// The most bytes of messages that a server may send for one request, without its response.
    pub max_call_event_bytes: usize,
    /// Events kept of one session.
    pub max_session_events: usize,
    /// Bytes of events kept of one session.
    pub max_session_event_bytes: usize,
    /// How long an event is kept.
    pub event_ttl: Duration,
    /// The most bytes of one session that wait for the store; beyond that the backend has to wait.
    pub max_unstored_bytes: usize,
    /// Events that a stream keeps in memory for its reader; a slower reader reads from the store.
    pub max_tail_events: usize,
    /// How long a response may take before the POST becomes a stream.
    pub json_wait: Duration,
    /// The longest a backend may take for `initialize`.
    pub initialize_timeout: Duration,
    /// The longest a backend may take for a request without reporting progress.
    pub request_timeout: Duration,
    /// The longest a request may take even if it reports progress.
    pub max_request_time: Duration,
    /// The longest a client may take to answer a request of the server.
    pub ask_timeout: Duration,
    /// How long a client should wait before it resumes a stream whose connection closed.
    pub retry: Duration,
    /// The same when the process closes the connection because it stops.
    pub stop_retry: Duration,
    /// How much both times vary from stream to stream.
    pub retry_jitter: Jitter,
    /// When requests may flow.
    pub gate: Gate,
    /// What to do with a `Last-Event-ID` of another session or of another program.
    pub unknown_event_id: UnknownEventId,
    /// What to do when events that a client asks for are gone.
    pub on_gap: OnGap,
    /// What to do with a stored session whose endpoint now has another server.
    pub other_server: OtherServer,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            idle_ttl: Some(Duration::from_secs(30 * 60)),
            handshake_ttl: Some(Duration::from_secs(30)),
            max_lifetime: Some(Duration::from_secs(24 * 60 * 60)),
            dormant_after: Some(Duration::from_secs(10 * 60)),
            tombstone_ttl: Duration::from_secs(60 * 60),
            max_tombstones: 100_000,
            max_sessions: 200_000,
            max_sessions_per_principal: 200_000,
            max_parallel_wakes: 64,
            max_initialize_bytes: 64 << 10,
            max_metadata_bytes: 16 << 10,
            max_subscriptions: 1000,
            max_streams: 256,
            max_pending: 128,
            max_event_bytes: 16 << 20,
            max_call_event_bytes: 64 << 20,
            max_session_events: 10_000,
            max_session_event_bytes: 64 << 20,
            event_ttl: Duration::from_secs(60 * 60),
            max_unstored_bytes: 4 << 20,
            max_tail_events: 64,
            json_wait: Duration::from_millis(250),
            initialize_timeout: Duration::from_secs(60),
            request_timeout: Duration::from_secs(5 * 60),
            max_request_time: Duration::from_secs(60 * 60),
            ask_timeout: Duration::from_secs(10 * 60),
            retry: Duration::from_secs(4),
            stop_retry: Duration::from_secs(10),
            retry_jitter: Jitter::percent(25),
            gate: Gate::Strict,
            unknown_event_id: UnknownEventId::Fresh,
            on_gap: OnGap::Report,
            other_server: OtherServer::Refuse,
        }
    }
}

/// When requests may flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Gate {
    /// After `notifications/initialized`, as the specification asks.
    #[default]
    Strict,
    /// As soon as `initialize` was answered, for clients that forget the notification.
    Lenient,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_differs_from_stream_to_stream_within_its_share() {
        let (second, jitter) = (Duration::from_secs(1), Jitter::percent(20));
        let of =
            |key: u8, stream| jitter.of(second, SessionKey::from_bytes([key; 16]), StreamId::new(stream));
        let all: Vec<Duration> = (0..=255).flat_map(|key| [of(key, 1), of(key, 2)]).collect();
        assert!(all.iter().all(|time| (1000..=1200).contains(&time.as_millis())), "{all:?}");
        let (least, most) = (all.iter().min().unwrap(), all.iter().max().unwrap());
        assert!(*most - *least > Duration::from_millis(180), "{least:?} to {most:?}");
        assert_ne!(of(7, 1), of(7, 2));
        assert_eq!(of(7, 1), of(7, 1));
        assert_eq!(Jitter::NONE.of(second, SessionKey::from_bytes([9; 16]), StreamId::new(3)), second);
    }
}
