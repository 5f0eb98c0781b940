//! Every bound of tasks, in one place.

use std::time::Duration;

/// Every bound of tasks.
#[derive(Clone, Debug)]
pub struct TaskLimits {
    /// The most tasks, including ended ones that are still kept. With 0 no call becomes a task.
    pub max: usize,
    /// The most tasks of one principal.
    pub max_per_principal: usize,
    /// The longest time that a task may take, and the longest time that its outcome is kept afterwards.
    pub max_ttl: Duration,
    /// How often clients should poll a task, if its server does not set an interval.
    pub poll: Duration,
    /// How long a call runs before it becomes a task, at every server, if its client supports tasks. `None`: only its
    /// server can make it a task.
    pub after: Option<Duration>,
    /// The largest outcome.
    pub max_outcome_bytes: usize,
}

impl Default for TaskLimits {
    fn default() -> Self {
        Self {
            max: 10_000,
            max_per_principal: 10_000,
            max_ttl: Duration::from_secs(24 * 60 * 60),
            poll: Duration::from_secs(1),
            after: Some(Duration::from_secs(5)),
            max_outcome_bytes: (4 << 20) - 4096,
        }
    }
}
