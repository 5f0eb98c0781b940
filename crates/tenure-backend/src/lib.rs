//! The MCP servers behind us.
//!
//! [`native`] serves handlers written against our own port: they see raw JSON and cost next to nothing.
//! [`rmcp`] serves any rmcp `ServerHandler`, one per session. [`child`] serves programs
//! that speak over stdio, [`remote`] servers elsewhere. [`routes`] and [`merge`] serve several of them from one process:
//! each at an endpoint of its own, and all as one.

pub mod child;
mod handshake;
mod jitter;
pub mod native;
mod oversize;
mod pending;
pub mod remote;
pub mod rmcp;
