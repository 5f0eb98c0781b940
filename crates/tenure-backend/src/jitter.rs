//! Pauses that differ, so that many who failed together do not try again together.

use std::time::Duration;

/// Between half of the pause and all of it.
pub(crate) fn jitter(pause: Duration) -> Duration {
    let mut byte = [0];
    // Without randomness the pause is only less random.
    let _ = getrandom::fill(&mut byte);
    pause / 2 + pause * u32::from(byte[0]) / 512
}
