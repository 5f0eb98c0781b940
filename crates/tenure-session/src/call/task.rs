//! A server's wish to turn a call into a task, whose client comes back for the outcome.

use std::time::Duration;

/// A server's values for the task that a call becomes. Missing values come from the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TaskWish {
    /// How long it may take, and how long its outcome is kept afterwards. Never longer than configured.
    pub ttl: Option<Duration>,
    /// How often its client should poll it.
    pub poll: Option<Duration>,
}

impl From<Duration> for TaskWish {
    /// A task that may take this long.
    fn from(ttl: Duration) -> Self {
        Self { ttl: Some(ttl), poll: None }
    }
}

/// The outcome of the wish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Became {
    /// The call is a task now: it is in the store, its client has its id, the client finds questions when it polls the
    /// task, and the handler's result is the outcome.
    Task,
    /// The call does not become a task, and its client waits for it.
    No,
}
