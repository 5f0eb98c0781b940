//! Where traces go, and of how many requests.

/// Traces.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TracesConfig {
    /// The collector; the variables of OpenTelemetry may name one instead.
    pub endpoint: Option<String>,
    /// The share of requests without a parent that are traced, in percent; the variables of OpenTelemetry decide without one, and 1 %
    /// without those.
    pub sample: Option<u32>,
}
