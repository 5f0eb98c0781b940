//! The one place that reads the clock.

use std::time::Instant;

/// Now, from the monotonic clock.
#[expect(
    clippy::disallowed_methods,
    reason = "a benchmark measures real time; nothing here is replayed in a test"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Seconds since 1970, for what expires.
#[expect(clippy::disallowed_methods, reason = "a server that is measured compares it with the real time")]
pub(crate) fn unix_now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}
