//! Latencies in logarithmic buckets: a fixed size, a few nanoseconds per sample, and at most
//! three per cent off, which is far below the noise of a shared machine.

use std::time::Duration;

/// Buckets per power of two.
const STEPS: usize = 32;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// Enough for 2^40 ns, about 18 minutes; anything longer lands in the last bucket.
const BUCKETS: usize = (41 - STEP_BITS as usize) * STEPS;

#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    counts: Box<[u64]>,
    total: u64,
    sum: Duration,
    max: Duration,
}

impl Histogram {
    pub(crate) fn new() -> Histogram {
        Histogram {
            counts: vec![0; BUCKETS].into_boxed_slice(),
            total: 0,
            sum: Duration::ZERO,
            max: Duration::ZERO,
        }
    }

    pub(crate) fn record(&mut self, sample: Duration) {
        let nanos = u64::try_from(sample.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(nanos).min(BUCKETS - 1)] += 1;
        self.total += 1;
        self.sum = self.sum.saturating_add(sample);
        self.max = self.max.max(sample);
    }

    pub(crate) fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The longest sample, exactly.
    pub(crate) fn max(&self) -> Duration {
        self.max
    }

    /// The average, exactly; zero without samples.
    pub(crate) fn mean(&self) -> Duration {
        self.sum.div_f64(self.total.max(1) as f64)
    }

    /// The sample below which `share` (0 to 1) of all samples lie; zero without samples.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        let wanted = (share * self.total as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Duration::from_nanos(middle(index));
            }
        }
        Duration::ZERO
    }
}

/// Values below `STEPS` have a bucket each; above, the top bits after the leading one choose it.
fn bucket(nanos: u64) -> usize {
    if nanos < STEPS as u64 {
        return nanos as usize;
    }
    let exponent = nanos.ilog2() - STEP_BITS;
    exponent as usize * STEPS + (nanos >> exponent) as usize
}

/// The value in the middle of a bucket: the inverse of `bucket`.
fn middle(index: usize) -> u64 {
    if index < 2 * STEPS {
        return index as u64;
    }
    let exponent = (index / STEPS - 1) as u32;
    let low = ((index - exponent as usize * STEPS) as u64) << exponent;
    low + (1 << exponent) / 2
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Histogram, bucket, middle};

    #[test]
    fn a_bucket_holds_its_own_middle_and_buckets_grow() {
        for nanos in [0, 1, 31, 32, 33, 63, 64, 65, 1_000, 123_456, 1 << 33] {
            let index = bucket(nanos);
            assert_eq!(bucket(middle(index)), index, "{nanos}");
            let error = middle(index).abs_diff(nanos) as f64;
            assert!(error <= nanos as f64 * 0.032, "{nanos} is shown as {}", middle(index));
        }
    }

    #[test]
    fn quantiles_of_a_thousand_even_samples_are_close() {
        let mut histogram = Histogram::new();
        for micros in 1..=1_000 {
            histogram.record(Duration::from_micros(micros));
        }
        let median = histogram.quantile(0.5).as_secs_f64() * 1e6;
        let tail = histogram.quantile(0.99).as_secs_f64() * 1e6;
        assert!((485.0..=515.0).contains(&median), "{median}");
        assert!((960.0..=1020.0).contains(&tail), "{tail}");
        assert_eq!(histogram.total, 1_000);
        assert_eq!(histogram.max(), Duration::from_millis(1));
        assert_eq!(histogram.mean(), Duration::from_nanos(500_500));
    }

    #[test]
    fn an_absurd_sample_lands_in_the_last_bucket() {
        let mut histogram = Histogram::new();
        histogram.record(Duration::MAX);
        assert_eq!(histogram.total, 1);
    }
}
