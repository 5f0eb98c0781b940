//! The doors beside `/mcp`: what old clients see there.

mod abuse;
mod closed;
mod observed;
mod post_sse;
mod processes;
mod returning;
mod rpc;
mod socket;
mod sse;
mod stopping;
pub(crate) mod support;
