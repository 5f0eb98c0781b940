//! Stored states on every engine, with a clock that is turned by hand.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

mod support;

mod bytes;
mod crash;
mod exchanges;
mod expiry;
mod faults;
mod layer;
mod leaving;
mod life;
mod limits;
mod lists;
mod operators;
mod owners;
mod promises;
mod races;
mod recovery;
