//! How MCP clients reach us.
//!
//! [`http::Endpoint`] speaks Streamable HTTP for the sessions it was given, and [`http::Router`] serves all paths of
//! the server; both are `tower` services, so they can be mounted in any hyper or axum server. [`serve`] is the server
//! we ship: HTTP/1.1 and HTTP/2, optional TLS, bounded in every direction. [`stdio::Stdio`] serves one client over a
//! pair of byte streams.
//!
//! ```
//! use tenure_session::Sessions;
//! use tenure_transport::http::{AllowedHosts, Endpoint, Router, Rules};
//! use tenure_transport::serve::Bounds;
//!
//! /// Serves these sessions at `/mcp`, to clients that name this host.
//! fn service(sessions: Sessions) -> Router {
//!     let hosts = AllowedHosts::List(vec!["mcp.example.com".to_owned()]);
//!     Router::new(Endpoint::new(sessions, Rules { hosts, ..Rules::default() }))
//! }
//!
//! let bounds = Bounds { max_connections: 1000, ..Bounds::default() };
//! assert_eq!(bounds.share(), 250, "connections of one peer");
//! ```

pub mod serve;
mod stages;
mod connection;
mod opening;
mod idle;
mod permits;
mod reserve;
pub mod strangers;
pub mod stall;
pub mod tls;
mod era_choice;
mod correlation;
pub mod observe;
pub mod cluster;
pub mod http;
mod duplex;
pub mod stdio;
