//! What a server may wish for a call: that it becomes a task, whose client comes back for the outcome.

use std::time::Duration;

/// What a server wants of the task that a call becomes. What it leaves out is as configured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TaskWish {
    /// How long it may take, and how long its outcome is kept afterwards. Never longer than configured.
    pub ttl: Option<Duration>,
    /// How often its client should ask for it.
    pub poll: Option<Duration>,
}

impl From<Duration> for TaskWish {
    /// A task that may take this long.
    fn from(ttl: Duration) -> Self {
        Self { ttl: Some(ttl), poll: None }
    }
}

/// What became of the wish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Became {
    /// The call is a task now: it is in the store, its client knows its id, questions wait for the client to come for
    /// them, and what the handler returns is the outcome.
    Task,
    /// It stays a call that its client waits for.
    No,
}
