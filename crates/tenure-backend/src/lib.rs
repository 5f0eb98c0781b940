//! The MCP servers behind us.
//!
//! [`native`] serves handlers written against our own port: they see raw JSON and cost next to nothing.
//! [`rmcp`] serves any rmcp `ServerHandler`, one per session. [`child`] serves programs
//! that speak over stdio, [`remote`] serves MCP servers on other machines.
//!
//! ```
//! use std::sync::Arc;
//!
//! use tenure_backend::child::{ChildBackend, ChildCommand};
//! use tenure_backend::native::{Handler, Introduction, Native};
//! use tenure_protocol::{RawJson, Reply};
//! use tenure_session::backend::{Backend, Call};
//!
//! /// Answers every request with its own params.
//! struct Echo;
//!
//! impl Handler for Echo {
//!     fn introduction(&self) -> Introduction {
//!         let capabilities = serde_json::json!({ "tools": {} });
//!         Introduction { name: "echo", version: "1.0.0", capabilities, instructions: None }
//!     }
//!
//!     async fn call(self: Arc<Self>, call: Call) -> Reply {
//!         Ok(call.request.params.unwrap_or(RawJson::EMPTY_OBJECT))
//!     }
//! }
//!
//! // Each session gets its own handler, or its own process.
//! let in_process: Arc<dyn Backend> = Arc::new(Native::new(|_| Echo));
//! let mut command = ChildCommand::new("sh", ["-c", "exec my-mcp-server"]);
//! // No process is started before there is a session.
//! command.limits.warm = 0;
//! assert!(command.find().is_ok());
//! let program: Arc<dyn Backend> = Arc::new(ChildBackend::new(command, None));
//! ```

pub mod native;
pub mod rmcp;

pub mod child;
pub mod remote;

mod pending;
mod questions;
mod session_traffic;

mod backoff;
mod handshake;
mod oversize;
