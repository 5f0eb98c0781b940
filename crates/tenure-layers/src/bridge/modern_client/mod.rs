//! A modern client in front of a server that knows only sessions.
//!
//! Every request leases a session (`pool`): `responder` is its way, `pooled_session` the session towards the server,
//! `pooled_client` the client that the session's server sees, `pooled_request` one request on it. `listens` and `listen_feed`
//! serve clients that want to hear of changes, `task_support` says which tools become tasks, and `legacy_task` follows one that did.

mod legacy_task;
mod listen_feed;
mod listens;
mod pool;
mod pooled_client;
mod pooled_request;
mod pooled_session;
mod responder;
mod task_support;

pub use pool::{PoolLimits, Reuse};
pub use responder::ExchangesOnSessions;
