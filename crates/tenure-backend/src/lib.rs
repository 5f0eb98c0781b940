//! The MCP servers behind us.
//!
//! [`native`] serves handlers written against our own port: they see raw JSON and cost next to nothing.
//! [`rmcp`] serves any rmcp `ServerHandler`, one per session. [`child`] serves programs that speak over stdio, [`remote`] servers elsewhere.

pub mod child;
mod handshake;
pub mod native;
mod overlong;
pub mod remote;
pub mod rmcp;
mod traffic;
