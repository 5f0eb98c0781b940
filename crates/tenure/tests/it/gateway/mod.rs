//! A gateway in front of servers that are child processes: `tenure serve -- COMMAND`, real processes on real pipes.
//!
//! Every test starts a gateway of its own. Processes are found by a variable in their environment that no other test
//! has, so that a process that is left behind is seen, also under another parent.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests start tasks, look at the clock, and fail by panicking"
)]

mod asking;
mod away;
mod bridging;
mod bytes;
mod coming_back;
pub(crate) mod crashing;
mod deploys;
mod dying;
mod family;
pub(crate) mod running;
mod kept;
mod leaking;
mod leaving;
mod limits;
mod loops;
mod noise;
mod other_server;
mod passing;
mod resuming;
mod several;
mod sharing;
