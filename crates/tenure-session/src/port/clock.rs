//! The time of day, and the time for which the machine is up, as a port, so that tests can set them.

use std::time::{Duration, SystemTime};

/// Milliseconds since 1970, UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(pub u64);

impl Time {
    /// Later by `duration`; never overflows.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Earlier by `duration`; never before 1970.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    /// How long from `earlier` until now; zero if the clock went backwards.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Tells the time.
pub trait Clock: Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Time;

    /// The time since some moment before this process began. It never goes back, cannot be set, and goes on while
    /// the machine is suspended. Rights that others may take after a while are counted by it: tokio's clock stands still
    /// during a suspension.
    fn uptime(&self) -> Duration;
}

/// The operating system's clock.
#[derive(Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock port's one real implementation")]
    fn now(&self) -> Time {
        let elapsed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Time(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn uptime(&self) -> Duration {
        use rustix::time::{ClockId, clock_gettime};
        let up = clock_gettime(ClockId::Boottime);
        Duration::new(u64::try_from(up.tv_sec).unwrap_or(0), u32::try_from(up.tv_nsec).unwrap_or(0))
    }

    /// Elsewhere it may stand still while the machine is suspended.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn uptime(&self) -> Duration {
        static BEGAN: std::sync::OnceLock<tokio::time::Instant> = std::sync::OnceLock::new();
        BEGAN.get_or_init(tokio::time::Instant::now).elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uptime_goes_on() {
        let before = SystemClock.uptime();
        std::thread::sleep(Duration::from_millis(2));
        let passed = SystemClock.uptime() - before;
        assert!(passed >= Duration::from_millis(2) && passed < Duration::from_secs(60), "{passed:?}");
    }
}
