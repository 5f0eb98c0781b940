//! The real binary: what people type, what they read, and how it ends.

mod logs;
mod process;
mod serve;
mod texts;
