//! A modern client in front of a server that knows only sessions.
//!
//! `responder` takes each request and leases a session for it from `pool`. `pooled_session` is the session towards the
//! server, `pooled_client` the client that its server sees, `pooled_request` one request on it. `listens` and
//! `listen_feed` serve clients that subscribe to changes, `task_support` says which tools become tasks, and
//! `legacy_task` follows such a task to its end.

mod responder;
mod pool;
mod pooled_session;
mod pooled_client;
mod pooled_request;
mod listens;
mod listen_feed;
mod task_support;
mod legacy_task;

pub use pool::{PoolLimits, Reuse};
pub use responder::ExchangesOnSessions;
