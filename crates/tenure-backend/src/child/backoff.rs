//! A server that keeps failing is not started again at once: the pauses grow, and differ from try to try.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(30);

/// A child that lived this long did not fail at once.
const LIVED: Duration = Duration::from_secs(10);

/// When a child began, and a word from it when it ends by itself.
pub(super) struct Life {
    pub(super) began: Instant,
    pub(super) ended: tokio::sync::oneshot::Receiver<()>,
}

#[derive(Default, Clone)]
pub(super) struct Backoff(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    failures: u32,
    not_before: Option<Instant>,
}

impl Backoff {
    /// How long not to try.
    pub(super) fn wait(&self) -> Option<Duration> {
        let state = self.0.lock();
        let wait = state.not_before?.saturating_duration_since(Instant::now());
        (!wait.is_zero()).then_some(wait)
    }

    /// It failed; returns how long not to try.
    pub(super) fn failed(&self) -> Duration {
        let mut state = self.0.lock();
        // The first failure may be a mishap.
        let grown = FIRST * 2_u32.saturating_pow(state.failures.min(10)) / 2;
        state.failures += 1;
        let pause = if state.failures == 1 { Duration::ZERO } else { jitter(grown.min(LONGEST)) };
        state.not_before = Some(Instant::now() + pause);
        pause
    }

    fn went_well(&self) {
        *self.0.lock() = State::default();
    }

    /// Learns from how long a child lives.
    pub(super) fn watch(&self, life: Life) {
        let backoff = self.clone();
        #[expect(clippy::disallowed_methods, reason = "ends with the child, or after a few seconds")]
        tokio::spawn(async move {
            let lived = tokio::time::timeout_at(life.began + LIVED, life.ended).await;
            match lived {
                Ok(Ok(())) => drop(backoff.failed()),
                // It lives on, or was told to go.
                Ok(Err(_)) | Err(_) => backoff.went_well(),
            }
        });
    }
}

/// Between half of it and all of it, so that many who failed together do not try together.
fn jitter(pause: Duration) -> Duration {
    let mut byte = [0];
    // Without randomness the pause is only less random.
    let _ = getrandom::fill(&mut byte);
    pause / 2 + pause * u32::from(byte[0]) / 512
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_up_to_a_limit_and_begin_anew() {
        let backoff = Backoff::default();
        assert_eq!((backoff.wait(), backoff.failed()), (None, Duration::ZERO), "once may be a mishap");
        let pauses: Vec<_> = (0..12).map(|_| backoff.failed()).collect();
        assert!(pauses[0] >= FIRST / 2 && pauses[0] <= FIRST * 2, "{pauses:?}");
        assert!(pauses[11] >= LONGEST / 2 && pauses[11] <= LONGEST, "{pauses:?}");
        assert!(backoff.wait().is_some());
        tokio::time::advance(LONGEST).await;
        assert_eq!(backoff.wait(), None);
        let (ended, life) = tokio::sync::oneshot::channel();
        backoff.watch(Life { began: Instant::now(), ended: life });
        tokio::time::sleep(LIVED + FIRST).await;
        drop(ended);
        assert_eq!(backoff.failed(), Duration::ZERO, "one that lived has made up for it");
    }
}
