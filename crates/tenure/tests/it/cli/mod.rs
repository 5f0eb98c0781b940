//! The real binary: what people type, what they read, and how it ends.

pub(crate) mod access;
mod descriptors;
mod logs;
mod lost;
mod nats;
pub(crate) mod process;
mod serve;
mod stores;
mod texts;
