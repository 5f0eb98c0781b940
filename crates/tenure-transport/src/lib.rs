//! How MCP clients reach us.
//!
//! [`http::Endpoint`] speaks Streamable HTTP for the sessions it was given, and [`http::Router`] is all paths of the
//! server; both are `tower` services, so they can be mounted in any hyper or axum server. [`serve`] is the server we
//! ship: HTTP/1.1 and HTTP/2, optional TLS, bounded in every direction. [`stdio::Stdio`] speaks to one client over a pair of byte streams.

mod connection;
mod duplex;
pub mod http;
mod idle;
mod opening;
mod permits;
mod reserve;
pub mod serve;
pub mod stall;
pub mod stdio;
pub mod tls;
