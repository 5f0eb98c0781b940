//! Sessions in front of servers that know no sessions: the real runtime over the bridge, with a responder whose answers
//! each test gives.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test may fail loudly and holds its handles"
)]

mod calls;
mod eras;
mod feeds;
mod opening;
mod repeats;
mod rounds;
mod support;
mod tasks;
