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
