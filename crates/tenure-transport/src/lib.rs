//! How MCP clients reach us.
//!
//! [`http::Endpoint`] speaks Streamable HTTP for the sessions it was given, and [`http::Router`] serves all paths of
//! the server; both are `tower` services, so they can be mounted in any hyper or axum server. [`serve`] is the server
//! we ship: HTTP/1.1 and HTTP/2, optional TLS, bounded in every direction. [`stdio::Stdio`] serves one client over a
//! pair of byte streams.

pub mod serve;
mod stages;
mod connection;
mod opening;
mod idle;
mod permits;
mod reserve;
pub mod stall;
pub mod tls;
pub mod http;
mod duplex;
pub mod stdio;
