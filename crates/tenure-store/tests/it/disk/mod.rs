//! The disk engine: it keeps the contract, and its data survives a close, a kill, a full disk, a damaged file and a
//! loss of power.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]
#![expect(clippy::disallowed_methods, reason = "tests take the time themselves and hold their tasks")]
#![expect(clippy::print_stdout, reason = "the processes that are killed tell what was acknowledged")]

mod backup;
mod chance;
mod check;
mod damage;
mod descriptors;
mod full;
mod keep;
mod power;
mod private;
mod sample;
mod space;
mod tools;
