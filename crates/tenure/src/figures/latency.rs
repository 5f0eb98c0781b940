//! How many answers took how long: a histogram that many threads add to without a lock.
//!
//! In: durations. Out: counts that only grow, of which a reader takes the difference over a time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_session::figures::quantile;

/// Upper bounds of the classes in ms; one more class has no bound.
const BOUNDS_MS: [f64; CLASSES - 1] = [
    0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 50.0, 75.0, 100.0, 150.0, 200.0,
    300.0, 500.0, 1_000.0, 2_000.0, 3_000.0, 5_000.0, 10_000.0, 30_000.0, 60_000.0,
];

const CLASSES: usize = 28;

/// Counts that only grow.
#[derive(Debug, Default)]
pub(super) struct Latency([AtomicU64; CLASSES]);

/// The counts at one moment, or between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LatencySnapshot([u64; CLASSES]);

/// The class of a duration.
fn class(took: Duration) -> usize {
    let ms = took.as_secs_f64() * 1000.0;
    BOUNDS_MS.partition_point(|bound| *bound < ms)
}

impl Latency {
    pub(super) fn add(&self, took: Duration) {
        self.0[class(took)].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self) -> LatencySnapshot {
        LatencySnapshot(std::array::from_fn(|at| self.0[at].load(Ordering::Relaxed)))
    }
}

impl LatencySnapshot {
    pub(super) fn add(&mut self, took: Duration) {
        self.0[class(took)] += 1;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (mine, others) in self.0.iter_mut().zip(other.0) {
            *mine += others;
        }
    }

    /// What came after an earlier snapshot.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at].saturating_sub(earlier.0[at])))
    }

    /// The time in ms that this share of the answers did not exceed.
    pub(super) fn quantile(&self, share: f64) -> Option<f64> {
        quantile(self.0.iter().copied(), &BOUNDS_MS, share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_of_two_moments_is_what_came_between() {
        let latency = Latency::default();
        latency.add(Duration::from_micros(50));
        let before = latency.snapshot();
        for _ in 0..10 {
            latency.add(Duration::from_millis(40));
        }
        latency.add(Duration::from_hours(1));
        let between = latency.snapshot().since(&before);
        let median = between.quantile(0.5).unwrap();
        assert!((30.0..=50.0).contains(&median), "{median}");
        assert_eq!(between.quantile(1.0), Some(60_000.0), "beyond the last bound");
        assert_eq!(before.since(&before).quantile(0.5), None);
    }
}
