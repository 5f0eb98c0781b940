//! An authenticator in front of real issuers on loopback ports, with a clock that tests turn.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

mod binding;
mod connections;
mod issuers;
mod keys;
mod opaque;
mod outgoing;
mod tokens;
mod world;
