//! Until when the owner of something may use it: as long as the newest credentials that were shown for it are good.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::port::clock::Time;

/// The expiry of the newest credentials that were shown, if they expire.
#[derive(Debug, Default)]
pub struct UsableUntil(
    /// Milliseconds since 1970. 0: no credentials were needed so far.
    AtomicU64,
);

impl UsableUntil {
    /// Notes credentials that expire then, or never. Earlier ones do not shorten it: a client may still use an old token
    /// for a request while it has a new one.
    pub fn extend(&self, expires: Option<Time>) {
        let expires = expires.map_or(u64::MAX, |expires| expires.0);
        // Nearly every request shows the same credentials as the one before.
        if self.0.load(Ordering::Relaxed) < expires {
            self.0.fetch_max(expires, Ordering::Relaxed);
        }
    }

    /// When it ends; `None` if it does not.
    pub fn get(&self) -> Option<Time> {
        match self.0.load(Ordering::Relaxed) {
            0 | u64::MAX => None,
            expires => Some(Time(expires)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_credentials_count() {
        let until = UsableUntil::default();
        assert_eq!(until.get(), None, "none were needed");
        for (shown, expected) in [(Some(5), Some(5)), (Some(3), Some(5)), (Some(9), Some(9)), (None, None)] {
            until.extend(shown.map(Time));
            assert_eq!(until.get(), expected.map(Time), "{shown:?}");
        }
    }
}
