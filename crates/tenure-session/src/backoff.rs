//! The pauses between retries: each is twice as long as the one before, up to a longest one.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// The pauses of one retried operation.
pub(crate) struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Backoff {
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first, longest }
    }

    /// The next pause.
    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        pause
    }

    /// Waits for the next pause. False if the process stops meanwhile.
    #[must_use = "a process that stops does not retry"]
    pub(crate) async fn wait(&mut self, stop: &CancellationToken) -> bool {
        stop.run_until_cancelled(tokio::time::sleep(self.next())).await.is_some()
    }
}
