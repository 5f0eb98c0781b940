//! The real binary: what people type, what they read, and how it ends.

mod logs;
pub(crate) mod process;
mod serve;
mod stores;
mod texts;
