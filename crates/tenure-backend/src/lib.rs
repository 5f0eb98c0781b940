//! The MCP servers behind us.
//!
//! [`native`] serves handlers written against our own port: they see raw JSON and cost next to nothing.
//! [`rmcp`] serves any rmcp `ServerHandler`, one per session.

pub mod native;
pub mod rmcp;
