//! Tasks of revision 2026-07-28: calls of tools whose clients do not wait, but come back for the outcome.
//!
//! The store knows two things of a task: that it began, and how it ended. It began before its client hears of it, and
//! it has ended before its client hears of that; whatever a client was told survives the process. What happens in
//! between, the questions that wait for answers above all, is in memory with the handler that asked them (`live`).
//! A task that has begun, has not ended, and has no such half was interrupted by the end of its process (`wake`).

mod id;
mod limits;
mod live;
mod record;
mod sweep;
mod tasks;
mod wake;
mod watch;

pub use id::TaskId;
pub use limits::TaskLimits;
pub(crate) use live::Live;
pub(crate) use record::End;
pub use tasks::Tasks;
pub(crate) use tasks::{Begun, TaskCall, Whose};
