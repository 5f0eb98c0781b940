//! Calls that become tasks: the real runtime over every engine, with a server whose every step the test takes.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test may fail loudly and holds its handles"
)]

mod becoming;
mod bridged;
mod by_time;
mod ending;
mod faults;
mod leaving;
mod limits;
mod nodes;
mod listens;
mod questions;
mod restarts;
mod support;
