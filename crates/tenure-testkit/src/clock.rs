//! Clocks for tests: one that follows tokio's clock, so that paused time advances both, and one that the test advances.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tenure_session::port::clock::{Clock, Time};
use tokio::time::Instant;

/// Where the clocks start.
const START: Time = Time(1_700_000_000_000);

/// Starts at a fixed date and moves with `tokio::time`. A test can set it ahead or back, like the time of day.
#[derive(Debug)]
pub struct TurnableClock {
    start: Instant,
    /// The date at `start`, in milliseconds.
    date: AtomicU64,
    /// For how long the machine was suspended, in milliseconds.
    suspended: AtomicU64,
    panics: AtomicBool,
}

impl TurnableClock {
    /// A clock that starts now, within a tokio runtime.
    pub fn start() -> Self {
        let (date, suspended) = (AtomicU64::new(START.0), AtomicU64::new(0));
        Self { start: Instant::now(), date, suspended, panics: AtomicBool::new(false) }
    }

    /// Makes the next `now` panic, once.
    pub fn panic_once(&self) {
        self.panics.store(true, Ordering::SeqCst);
    }

    /// Sets the time of day back; tokio's time is not changed.
    pub fn set_back(&self, by: Duration) {
        let date = Time(self.date.load(Ordering::SeqCst));
        self.date.store(date.before(by).0, Ordering::SeqCst);
    }

    /// Sets the time of day ahead; tokio's time is not changed.
    pub fn set_ahead(&self, by: Duration) {
        let date = Time(self.date.load(Ordering::SeqCst));
        self.date.store(date.after(by).0, Ordering::SeqCst);
    }

    /// The machine was suspended for so long: the time of day and the uptime went on, tokio's time did not.
    pub fn suspend(&self, by: Duration) {
        self.set_ahead(by);
        let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.suspended.fetch_add(by, Ordering::SeqCst);
    }
}

impl Clock for TurnableClock {
    fn now(&self) -> Time {
        assert!(!self.panics.swap(false, Ordering::SeqCst), "a panic for testing");
        Time(self.date.load(Ordering::SeqCst)).after(self.start.elapsed())
    }

    fn uptime(&self) -> Duration {
        self.start.elapsed() + Duration::from_millis(self.suspended.load(Ordering::SeqCst))
    }
}

/// Stands still until the test advances it, whatever tokio's time does. Paused time jumps ahead while an engine works
/// on its own thread; this clock does not.
#[derive(Debug)]
pub struct HandClock(AtomicU64);

impl HandClock {
    /// A clock that stands still.
    pub fn start() -> Self {
        Self(AtomicU64::new(START.0))
    }

    /// Advances it.
    pub fn turn(&self, by: Duration) {
        self.0.store(self.now().after(by).0, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Time {
        Time(self.0.load(Ordering::SeqCst))
    }

    fn uptime(&self) -> Duration {
        self.now().since(START)
    }
}
