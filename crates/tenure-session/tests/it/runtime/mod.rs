//! The session runtime with a scripted backend, the memory store and a clock that can be turned.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test may fail loudly and holds its handles"
)]

mod asks;
mod batches;
mod calls;
mod chaos;
mod counts;
mod crash;
mod expiry;
mod handshakes;
mod hardships;
mod interrupted;
mod leaving;
mod limits;
mod lives;
mod loops;
mod observed;
mod operate;
mod other_server;
mod races;
mod relinking;
mod revocations;
mod resume;
mod settings;
mod shares;
mod slow;
mod stopping;
mod store_faults;
mod support;
pub(crate) mod torture;
mod trims;
mod unlogged;
mod waking;
