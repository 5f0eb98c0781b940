//! A clock that follows tokio's, so that a test with paused time turns both at once.

use tenure_session::port::clock::{Clock, Time};
use tokio::time::Instant;

/// Starts at some date and moves with `tokio::time`.
#[derive(Debug)]
pub struct TurnableClock {
    start: Instant,
}

impl TurnableClock {
    /// A clock that starts now, within a tokio runtime.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock for TurnableClock {
    fn now(&self) -> Time {
        Time(1_700_000_000_000).after(self.start.elapsed())
    }
}
