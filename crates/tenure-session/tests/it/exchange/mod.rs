//! Requests without a session: how they are answered, asked back, retried, ended, and what is left of them.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test may fail loudly and holds its handles"
)]

mod answering;
mod ending;
mod leaving;
mod limits;
mod listens;
mod listing;
mod lost_servers;
mod panics;
mod parking;
mod questions;
mod resuming;
mod retries;
mod states;
mod stopping;
pub(crate) mod support;
mod torture;
