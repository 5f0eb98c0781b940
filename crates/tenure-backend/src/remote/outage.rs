//! How requests wait for a server that is away: how long, and with which pauses.
//!
//! An outage begins with the first request that finds the server away and ends with the first answer. All requests to
//! the server share this clock: once the outage has lasted longer than the patience, requests fail at once. Otherwise
//! a server that is down for good would delay every request.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_protocol::{Reason, RpcError};
use tokio::time::Instant;

use crate::backoff::Backoff;

/// The first pause, and the longest that it grows to.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(2);

/// How often a request is retried after its answer broke off. Not often: the request itself may crash the server.
const MAX_BROKEN_OFF: u32 = 3;

/// Whether the server is away, as seen by all requests to it.
pub(super) struct Outage {
    patience: Duration,
    /// Read with every answer, so it is outside of the lock.
    is_on: AtomicBool,
    seen: Mutex<Option<OutageSpan>>,
}

#[derive(Clone, Copy)]
struct OutageSpan {
    since: Instant,
    last: Instant,
}

/// Why a request has no answer, when a retry may have one.
#[derive(Clone, Debug)]
pub(super) struct Away {
    /// The error for a request that does not wait any longer.
    pub(super) error: RpcError,
    pub(super) reached: Reached,
    /// The HTTP status that came instead of an answer.
    pub(super) status: Option<u16>,
    /// The server itself sent the error.
    pub(super) is_own: bool,
    /// The pause that the server asks for.
    pub(super) retry_after: Option<Duration>,
}

/// How far a request got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reached {
    /// The request was not sent.
    NotSent,
    /// The server may have carried it out.
    Perhaps,
    /// The same, and the server had begun to answer.
    Server,
}

/// Why a request has no answer.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    Away(Away),
    /// Another attempt would end in the same way.
    Final(RpcError),
}

impl Fault {
    pub(super) fn into_error(self) -> RpcError {
        match self {
            Self::Away(away) => away.error,
            Self::Final(error) => error,
        }
    }
}

impl Away {
    /// The server broke off an answer that it had begun.
    pub(super) fn broke_off(words: &'static str) -> Self {
        let error = RpcError::of(Reason::BackendUnavailable, words);
        Self { error, reached: Reached::Server, status: None, is_own: false, retry_after: None }
    }

    /// The error of a request that must not be sent again.
    pub(super) fn unrepeated(self) -> RpcError {
        match self.reached {
            Reached::Perhaps | Reached::Server if !self.is_own => RpcError::server_lost(),
            _ => self.error,
        }
    }
}

impl Outage {
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, is_on: AtomicBool::new(false), seen: Mutex::default() }
    }

    /// The server has answered.
    pub(super) fn ends(&self, place: &str) {
        if !self.is_on.load(Ordering::Relaxed) {
            return;
        }
        let seen = self.seen.lock().take();
        self.is_on.store(false, Ordering::Relaxed);
        if let Some(seen) = seen {
            let away_ms = u64::try_from(seen.since.elapsed().as_millis()).unwrap_or(u64::MAX);
            tracing::info!(url = place, away_ms, "the server upstream is back");
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// A request has found the server away. Returns when requests stop waiting.
    fn goes_on(&self) -> Instant {
        let now = Instant::now();
        let mut seen = self.seen.lock();
        // If the last failure is long ago, the outage may have ended without a request that noticed. Start a new one.
        let forgotten = self.patience.max(2 * LONGEST);
        let since = seen.filter(|seen| now - seen.last <= forgotten).map_or(now, |seen| seen.since);
        *seen = Some(OutageSpan { since, last: now });
        self.is_on.store(true, Ordering::Relaxed);
        since + self.patience
    }

    /// The retry state of one request.
    pub(super) fn waits(&self) -> Waits<'_> {
        Waits { outage: self, until: None, pauses: Backoff::new(FIRST, LONGEST), broken_off: 0 }
    }
}

/// The retry state of one request.
pub(super) struct Waits<'a> {
    outage: &'a Outage,
    until: Option<Instant>,
    pauses: Backoff,
    broken_off: u32,
}

impl Waits<'_> {
    /// How long to wait before the retry; `None` if there is no retry.
    pub(super) fn pause(&mut self, away: &Away) -> Option<Duration> {
        if away.reached == Reached::Server {
            self.broken_off += 1;
            if self.broken_off > MAX_BROKEN_OFF {
                return None;
            }
            // The server had answered, so the earlier outage is over. Start counting again.
            self.until = None;
            self.pauses.reset();
        }
        let until = self.outage.goes_on();
        let until = *self.until.get_or_insert(until);
        let left = until.saturating_duration_since(Instant::now());
        let asked = away.retry_after.unwrap_or_default();
        if left.is_zero() || asked > left {
            return None;
        }
        // The last attempt is made when the patience ends.
        Some(self.pauses.failed().max(asked).min(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn away(reached: Reached) -> Away {
        let error = RpcError::of(Reason::BackendUnavailable, "away");
        Away { error, reached, status: None, is_own: false, retry_after: None }
    }

    async fn waited(outage: &Outage) -> Duration {
        let (began, mut waits) = (Instant::now(), outage.waits());
        while let Some(pause) = waits.pause(&away(Reached::NotSent)) {
            assert!(!pause.is_zero() && pause <= LONGEST, "{pause:?}");
            tokio::time::sleep(pause).await;
        }
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_is_waited_for_once_by_all_and_anew_when_the_server_was_back() {
        let outage = Outage::new(PATIENCE);
        assert_eq!(waited(&outage).await.as_secs(), 30);
        assert_eq!(waited(&outage).await, Duration::ZERO, "it is known to be away");
        outage.ends("here");
        assert!(!outage.is_on());
        assert_eq!(waited(&outage).await.as_secs(), 30);
        tokio::time::advance(2 * PATIENCE).await;
        assert_eq!(waited(&outage).await.as_secs(), 30, "it may have been back meanwhile");
        assert_eq!(waited(&Outage::new(Duration::ZERO)).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_says_how_long_it_wants_to_be_left_alone() {
        let outage = Outage::new(PATIENCE);
        let asking =
            |seconds| Away { retry_after: Some(Duration::from_secs(seconds)), ..away(Reached::Perhaps) };
        let mut waits = outage.waits();
        assert_eq!(waits.pause(&asking(7)), Some(Duration::from_secs(7)));
        assert_eq!(waits.pause(&asking(31)), None, "longer than the patience");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_breaks_off_again_and_again_is_given_up() {
        let outage = Outage::new(PATIENCE);
        let mut waits = outage.waits();
        for _ in 0..MAX_BROKEN_OFF {
            // The time that the server works on a request does not count.
            tokio::time::advance(2 * PATIENCE).await;
            outage.ends("here");
            assert!(waits.pause(&away(Reached::Server)).is_some());
        }
        outage.ends("here");
        assert_eq!(waits.pause(&away(Reached::Server)), None);
    }

    #[test]
    fn an_error_says_whether_a_request_may_have_been_carried_out() {
        for (reached, reason) in [
            (Reached::NotSent, Reason::BackendUnavailable),
            (Reached::Perhaps, Reason::Interrupted),
            (Reached::Server, Reason::Interrupted),
        ] {
            assert!(away(reached).unrepeated().is(reason), "{reached:?}");
        }
        let own = Away { is_own: true, ..away(Reached::Perhaps) };
        assert!(own.unrepeated().is(Reason::BackendUnavailable), "it said so itself");
    }
}
