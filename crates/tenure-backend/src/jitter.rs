//! Random pauses, so that many clients that failed together do not retry together.

use std::time::Duration;

/// A random pause between half of `pause` and `pause`.
pub(crate) fn jitter(pause: Duration) -> Duration {
    let mut byte = [0];
    // If `fill` fails, the byte stays 0 and the pause is `pause / 2`.
    let _ = getrandom::fill(&mut byte);
    pause / 2 + pause * u32::from(byte[0]) / 512
}
