//! The clock that rates are measured by: no correction of the wall clock changes it.

use tokio::time::Instant;

/// Nanoseconds since a [`Stopwatch`] was started.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Ticks(pub u64);

/// Measures time that no correction of the wall clock changes.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts one.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since its start.
    pub fn now(&self) -> Ticks {
        Ticks(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
