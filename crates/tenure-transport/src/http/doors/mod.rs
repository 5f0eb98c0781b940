//! The doors: other paths to the same sessions, for clients that do not speak Streamable HTTP. All are closed unless
//! configured.
//!
//! Every door checks Host and Origin as `/mcp` does and serves the same sessions within the same limits. There are
//! two kinds: `/rpc`, POST `/sse` and `/mcp/sse` are `/mcp` with another format of the answer; GET `/sse` (with
//! `/messages`) and `/ws` carry a whole session over one connection.
//!
//! Read in this order: `keeper` (the paths, and the open connections), `connection` (a connection from its beginning to
//! the end of its session), `presence` (which connection serves a session), `sse` and `socket` (the two transports),
//! `frames` (writes to a socket).

mod keeper;
mod connection;
mod presence;
mod sse;
mod socket;
mod frames;

use std::time::Duration;

pub(crate) use keeper::{Doorkeeper, SharedPermit};

/// Which doors are open.
#[derive(Clone, Debug)]
pub struct Doors {
    /// GET `/sse` and POST `/messages`: the HTTP+SSE transport of revision 2024-11-05.
    pub sse: bool,
    /// POST `/rpc`: one request in, one JSON answer out.
    pub rpc: bool,
    /// POST `/sse`: one request in, a stream out that ends with `done`.
    pub post_sse: bool,
    /// GET `/mcp/sse`: the same as GET `/mcp`.
    pub mcp_sse: bool,
    /// `/ws`: a session over a WebSocket.
    pub websocket: bool,
    /// How long a session of `/sse` or `/ws` waits for its client after the connection broke; with `None`, as long as
    /// any other session.
    pub linger: Option<Duration>,
}

impl Default for Doors {
    fn default() -> Self {
        Self {
            sse: false,
            rpc: false,
            post_sse: false,
            mcp_sse: false,
            websocket: false,
            linger: Some(Duration::from_secs(60)),
        }
    }
}
