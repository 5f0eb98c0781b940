//! Clocks for tests: one that follows tokio's, so that paused time turns both at once, and one that is turned by
//! hand.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tenure_session::port::clock::{Clock, Time};
use tokio::time::Instant;

/// Where the clocks start.
const START: Time = Time(1_700_000_000_000);

/// Starts at some date and moves with `tokio::time`, and can be set, as the time of day can.
#[derive(Debug)]
pub struct TurnableClock {
    start: Instant,
    /// The date at `start`, in milliseconds.
    date: AtomicU64,
    panics: AtomicBool,
}

impl TurnableClock {
    /// A clock that starts now, within a tokio runtime.
    pub fn start() -> Self {
        Self { start: Instant::now(), date: AtomicU64::new(START.0), panics: AtomicBool::new(false) }
    }

    /// Makes it panic when the time is asked for next, once.
    pub fn panic_once(&self) {
        self.panics.store(true, Ordering::SeqCst);
    }

    /// Sets the time of day back; the time that passes is the same.
    pub fn set_back(&self, by: Duration) {
        let date = Time(self.date.load(Ordering::SeqCst));
        self.date.store(date.before(by).0, Ordering::SeqCst);
    }

    /// Sets the time of day ahead; the time that passes is the same.
    pub fn set_ahead(&self, by: Duration) {
        let date = Time(self.date.load(Ordering::SeqCst));
        self.date.store(date.after(by).0, Ordering::SeqCst);
    }
}

impl Clock for TurnableClock {
    fn now(&self) -> Time {
        assert!(!self.panics.swap(false, Ordering::SeqCst), "a panic for testing");
        Time(self.date.load(Ordering::SeqCst)).after(self.start.elapsed())
    }
}

/// Stands still until it is turned, whatever tokio's time does. Paused time leaps ahead while an engine works on
/// a thread of its own; this clock does not.
#[derive(Debug)]
pub struct HandClock(AtomicU64);

impl HandClock {
    /// A clock that stands still.
    pub fn start() -> Self {
        Self(AtomicU64::new(START.0))
    }

    /// Turns it ahead.
    pub fn turn(&self, by: Duration) {
        self.0.store(self.now().after(by).0, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Time {
        Time(self.0.load(Ordering::SeqCst))
    }
}
