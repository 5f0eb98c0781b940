//! Bridges between the eras, over a scripted backend.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test may fail loudly and holds its handles"
)]

mod calls;
mod listens;
mod pool;
mod questions;
mod races;
mod revisions;
mod storm;
mod support;
