//! The number of times that verdicts which were right may have become wrong: keys or revocations changed.
//!
//! Requests compare the number with the one of their verdict; connections that outlive their request wait for the next one.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// Grows whenever a verdict that was right may be wrong.
#[derive(Debug, Default)]
pub(crate) struct Generation {
    number: AtomicU64,
    grown: Notify,
}

impl Generation {
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Ends all verdicts, and wakes those who wait.
    pub(crate) fn grow(&self) {
        self.number.fetch_add(1, Ordering::AcqRel);
        self.grown.notify_waiters();
    }

    /// Waits until `is_over` is true, which is asked now and whenever the number has grown.
    pub(crate) async fn until(&self, is_over: impl Fn() -> bool) {
        loop {
            let grown = self.grown.notified();
            tokio::pin!(grown);
            // Registered before the question, so that no change between the two is missed.
            grown.as_mut().enable();
            if is_over() {
                return;
            }
            grown.await;
        }
    }
}
