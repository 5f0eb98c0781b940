//! Tasks of revision 2026-07-28: tool calls whose clients do not wait, but come back for the outcome.
//!
//! The store contains the beginning and the end of a task. Each is written before the client learns of it, so every
//! answer to a client stays true when the process ends. The state in between, above all the open questions, is in
//! memory together with the handler that asked them (`live`). A task that has begun, has not ended and is not in
//! memory was interrupted by the end of its process (`wake`).

mod tasks;
mod live;
mod record;
mod wake;
mod operate;
mod watch;
mod sweep;
mod id;
mod limits;

pub(crate) use id::TaskId;
pub use limits::TaskLimits;
pub(crate) use live::LiveTask;
pub use operate::{TaskInfo, cancel_left, each};
pub(crate) use record::TaskEnd;
pub use tasks::Tasks;
pub(crate) use tasks::not_found as task_not_found;
pub(crate) use tasks::{BegunTask, TaskCall, Whose};
