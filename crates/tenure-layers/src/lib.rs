//! Layers that wrap a server: a backend around a backend, a responder around a responder.
//!
//! A layer knows the ports of `tenure-session` and nothing else: no transport, no store, no kind of server. So any
//! server can have any of them, in the order that the builder of a node chooses:
//!
//! - [`data`]: data sessions and handles, which name state that outlives connections;
//! - [`bridge`]: a client of one era in front of a server of the other;
//! - [`revisions`]: a client of an older revision of sessions in front of a newer server;
//! - [`merge`]: several servers as one;
//! - [`routes`]: several servers, each at an endpoint of its own.

pub mod data;
pub mod bridge;
pub mod revisions;
pub mod merge;
pub mod routes;
