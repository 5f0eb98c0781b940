//! A few figures of many latencies: what a table shows, and what a worker tells the harness.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) samples: u64,
    pub(crate) mean_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) max_us: f64,
}

impl Latency {
    pub(crate) fn of(histogram: &Histogram) -> Latency {
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        Latency {
            samples: histogram.total(),
            mean_us: micros(histogram.mean()),
            p50_us: micros(histogram.quantile(0.50)),
            p99_us: micros(histogram.quantile(0.99)),
            max_us: micros(histogram.max()),
        }
    }
}

/// Microseconds with as many digits as tell something.
pub(crate) fn micros(value: f64) -> String {
    match value {
        value if value < 10.0 => format!("{value:.2}"),
        value if value < 1_000.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}
