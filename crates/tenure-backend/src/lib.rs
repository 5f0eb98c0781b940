//! The MCP servers behind us.
//!
//! [`native`] serves handlers written against our own port: they see raw JSON and cost next to nothing.
//! [`rmcp`] serves any rmcp `ServerHandler`, one per session. [`child`] serves programs
//! that speak over stdio, [`remote`] serves MCP servers on other machines.

pub mod native;
pub mod rmcp;

pub mod child;
pub mod remote;

mod pending;

mod handshake;
mod jitter;
mod oversize;
