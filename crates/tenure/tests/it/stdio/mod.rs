//! `tenure stdio`: real processes over real pipes, and where a test has to steer the server behind, the same in this
//! process.

mod ending;
mod lines;
mod process;
mod steered;
mod store;
mod talk;
mod talking;
