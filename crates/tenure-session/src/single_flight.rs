//! One attempt that several callers wait for, and one outcome for all of them.
//!
//! The first caller starts a task that makes the attempt and holds its [`Attempting`]. The others find the [`Attempt`]
//! and wait for the same outcome. The task goes on if all of them give up. Where the attempt is found, and until when,
//! is up to its owner: under a lock, so that there is only one.

use tokio::sync::watch;

/// An attempt under way, for callers that wait for its outcome.
#[derive(Debug)]
pub struct Attempt<T>(watch::Receiver<Option<T>>);

/// The side of the task that makes the attempt. If it is dropped without an outcome, because the task was aborted or
/// panicked, the callers learn that there is no result.
#[derive(Debug)]
pub struct Attempting<T>(watch::Sender<Option<T>>);

impl<T> Attempting<T> {
    /// A new attempt, for the task that makes it and for the callers that wait.
    pub fn begin() -> (Self, Attempt<T>) {
        let (tell, outcome) = watch::channel(None);
        (Self(tell), Attempt(outcome))
    }

    /// Gives all callers the outcome.
    pub fn done(self, outcome: T) {
        self.0.send_replace(Some(outcome));
    }
}

impl<T: Clone> Attempt<T> {
    /// Waits for the outcome. `None` if there will be none.
    ///
    /// # Cancel safety
    /// The attempt goes on.
    pub async fn outcome(mut self) -> Option<T> {
        self.0.wait_for(Option::is_some).await.ok()?.clone()
    }

    /// The outcome, if there is one already.
    pub fn so_far(&self) -> Option<T> {
        self.0.borrow().clone()
    }
}

impl<T> Clone for Attempt<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests wait for their tasks")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_callers_get_the_outcome_also_those_that_come_later() {
        let (attempting, attempt) = Attempting::begin();
        let waiting: Vec<_> = (0..3).map(|_| tokio::spawn(attempt.clone().outcome())).collect();
        assert_eq!(attempt.so_far(), None);
        attempting.done(7);
        for waiting in waiting {
            assert_eq!(waiting.await.unwrap(), Some(7));
        }
        assert_eq!((attempt.so_far(), attempt.outcome().await), (Some(7), Some(7)));
    }

    #[tokio::test]
    async fn an_attempt_whose_task_ends_early_has_no_outcome() {
        let (attempting, attempt) = Attempting::<u8>::begin();
        let waiting = tokio::spawn(attempt.clone().outcome());
        drop(attempting);
        assert_eq!((waiting.await.unwrap(), attempt.outcome().await), (None, None));
    }
}
