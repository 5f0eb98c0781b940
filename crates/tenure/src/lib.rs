//! Tenure keeps MCP sessions: the parts of the binary, for tests and embedders.
//!
//! [`Node::start`] is a whole server in this process, [`StdioNode::start`] one with a single client; `main` is that
//! plus a command line.

pub mod cli;
pub mod config;
mod control;
pub mod demo;
pub mod logs;
mod node;
mod operator;
mod servers;
mod socket;
mod stopping;
mod stores;
mod times;
mod wire;

pub use node::{Node, StdioNode};
