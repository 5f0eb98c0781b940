//! The settings of counters, and of `/metrics`.

use std::net::SocketAddr;
use std::time::Duration;

/// Metrics.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetricsConfig {
    /// Whether anything is counted.
    pub collect: bool,
    /// Where `/metrics` is served; nowhere without an address.
    pub listen: Option<SocketAddr>,
    /// How often the totals are written to the log; never without a time.
    pub report: Option<Duration>,
}

impl Default for MetricsConfig {
    fn default() -> Self {
        Self { collect: true, listen: None, report: None }
    }
}
