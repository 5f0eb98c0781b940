//! When a failing server may be started again.
//!
//! A command that does not start delays all sessions. A server that starts and then dies delays only its own session,
//! because that session's requests may have killed it.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::backoff::Backoff;

const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(30);

/// A child that lived this long did not fail at once.
const LIVED: Duration = Duration::from_secs(10);

/// Above this many sessions, entries of sessions whose last failure is long ago are removed.
const REMEMBERED: usize = 256;

/// When a child started, and a signal if it ends by itself.
pub(super) struct Life {
    pub(super) began: Instant,
    pub(super) ended: tokio::sync::oneshot::Receiver<()>,
}

#[derive(Default, Clone)]
pub(super) struct Restarts(Arc<Mutex<Failures>>);

#[derive(Default)]
struct Failures {
    /// Failures to start the command.
    start: RestartPause,
    /// Servers that started and died soon, by their session's label.
    sessions: HashMap<String, RestartPause>,
}

#[derive(Default)]
struct RestartPause {
    /// `None` before the first failure, which may be an accident and has no pause.
    backoff: Option<Backoff>,
    not_before: Option<Instant>,
}

impl Restarts {
    /// How long this session still has to wait before the next try.
    pub(super) fn wait(&self, session: &str) -> Option<Duration> {
        let failures = self.0.lock();
        let own = failures.sessions.get(session).and_then(|state| state.not_before);
        let wait = failures.start.not_before.max(own)?.saturating_duration_since(Instant::now());
        (!wait.is_zero()).then_some(wait)
    }

    /// The command did not start. Returns the pause before the next try.
    pub(super) fn failed(&self) -> Duration {
        self.0.lock().start.failed()
    }

    /// A server started for this session. Spawns a task that counts a failure if the server dies soon.
    pub(super) fn came_up(&self, session: String, life: Life) {
        self.0.lock().start = RestartPause::default();
        let restarts = self.clone();
        #[expect(clippy::disallowed_methods, reason = "ends with the child, or after a few seconds")]
        tokio::spawn(async move {
            let lived = tokio::time::timeout_at(life.began + LIVED, life.ended).await;
            let mut failures = restarts.0.lock();
            match lived {
                Ok(Ok(())) => failures.died(session),
                // The server lives on, or was told to end.
                Ok(Err(_)) | Err(_) => drop(failures.sessions.remove(&session)),
            }
        });
    }
}

impl Failures {
    fn died(&mut self, session: String) {
        if self.sessions.len() >= REMEMBERED {
            let now = Instant::now();
            self.sessions.retain(|_, state| state.not_before.is_some_and(|then| now < then + LONGEST));
        }
        self.sessions.entry(session).or_default().failed();
    }
}

impl RestartPause {
    fn failed(&mut self) -> Duration {
        let pause = self.backoff.as_mut().map_or(Duration::ZERO, Backoff::failed);
        self.backoff.get_or_insert(Backoff::new(FIRST, LONGEST));
        self.not_before = Some(Instant::now() + pause);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_up_to_a_limit_and_begin_anew() {
        let restarts = Restarts::default();
        assert_eq!(
            (restarts.wait("s"), restarts.failed()),
            (None, Duration::ZERO),
            "the first failure has no pause"
        );
        let pauses: Vec<_> = (0..12).map(|_| restarts.failed()).collect();
        assert!(pauses[0] >= FIRST / 2 && pauses[0] <= FIRST * 2, "{pauses:?}");
        assert!(pauses[11] >= LONGEST / 2 && pauses[11] <= LONGEST, "{pauses:?}");
        assert!(restarts.wait("any").is_some());
        tokio::time::advance(LONGEST).await;
        assert_eq!(restarts.wait("any"), None);
        let (_lives, ended) = tokio::sync::oneshot::channel();
        restarts.came_up("s".to_owned(), Life { began: Instant::now(), ended });
        assert_eq!(restarts.failed(), Duration::ZERO, "a start that succeeds resets the failures");
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_whose_servers_die_waits_alone_until_one_lives() {
        let restarts = Restarts::default();
        let die = async || {
            let (end, ended) = tokio::sync::oneshot::channel();
            restarts.came_up("bad".to_owned(), Life { began: Instant::now(), ended });
            end.send(()).unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        for _ in 0..8 {
            die().await;
        }
        assert!(restarts.wait("bad").is_some_and(|wait| wait > FIRST));
        assert_eq!(restarts.wait("good"), None);
        let (lives, ended) = tokio::sync::oneshot::channel();
        restarts.came_up("bad".to_owned(), Life { began: Instant::now(), ended });
        tokio::time::sleep(LIVED + FIRST).await;
        assert_eq!((restarts.wait("bad"), restarts.0.lock().sessions.len()), (None, 0));
        drop(lives);
    }

    #[tokio::test(start_paused = true)]
    async fn sessions_that_failed_long_ago_are_forgotten() {
        let mut failures = Failures::default();
        for number in 0..10 * REMEMBERED {
            failures.died(format!("s-{number}"));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!(failures.sessions.len() <= REMEMBERED, "{}", failures.sessions.len());
    }
}
