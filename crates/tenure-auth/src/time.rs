//! Time as tokens tell it.

use std::time::Duration;

/// How far two clocks may differ.
pub(crate) const LEEWAY: Duration = Duration::from_secs(30);

/// Seconds since 1970, as the claims of tokens have them. Time is an argument everywhere in this crate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct UnixSeconds(pub u64);

impl UnixSeconds {
    /// Later than any token lives.
    pub const NEVER: Self = Self(u64::MAX);

    pub(crate) fn plus(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time.as_secs()))
    }

    pub(crate) fn minus(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(time.as_secs()))
    }
}
