//! The audit log of a real server: what is recorded, what is not, and what a kill or a full disk does to it.

mod callers;
mod crashes;
mod events;
pub(crate) mod log;
