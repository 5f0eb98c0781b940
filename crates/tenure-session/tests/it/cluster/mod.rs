//! Several runtimes on one store: nodes that come and go, faults between them and the engine, and requests that reach
//! any node.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test may fail loudly and holds its handles"
)]

mod world;
mod servers;
mod membership;
mod fitness;
mod storm;
mod takeover;
mod chance;
mod giving_up;
mod strangers;
mod news;
mod newer;
mod orderly;
