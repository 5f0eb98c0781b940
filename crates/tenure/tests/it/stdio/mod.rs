//! `tenure stdio`: real processes over real pipes, and where a test has to steer the server behind, the same in this
//! process.

mod ending;
mod lines;
mod modern;
pub(crate) mod process;
mod steered;
mod store;
pub(crate) mod talk;
mod talking;
