//! Pauses after failures: each is about twice as long as the last one, up to a limit, and random, so that many clients
//! that failed together do not retry together.

use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, failures: 0 }
    }

    /// Notes a failure. Returns the pause before the next try.
    pub(crate) fn failed(&mut self) -> Duration {
        let grown = self.first.saturating_mul(2_u32.saturating_pow(self.failures)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        jitter(grown)
    }

    /// A try succeeded: the next failure is the first one again.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

/// A random pause between half of `pause` and `pause`.
pub(crate) fn jitter(pause: Duration) -> Duration {
    let mut byte = [0];
    // If `fill` fails, the byte stays 0 and the pause is `pause / 2`.
    let _ = getrandom::fill(&mut byte);
    pause / 2 + pause * u32::from(byte[0]) / 512
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_with_failures_up_to_a_limit_and_begin_anew() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
        for round in 0..2 {
            for grown in [1, 2, 4, 8, 16, 30, 30].map(Duration::from_secs) {
                let pause = backoff.failed();
                assert!(pause >= grown / 2 && pause <= grown, "{pause:?} for {grown:?} in round {round}");
            }
            backoff.reset();
        }
        backoff.failures = u32::MAX;
        assert!(backoff.failed() <= backoff.longest);
    }
}
