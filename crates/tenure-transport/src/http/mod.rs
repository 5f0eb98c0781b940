//! Streamable HTTP of both eras at one path, and the doors for older clients beside it.
//!
//! A request passes `proxies` (finds the address of a client behind proxies), `guard` (checks Host and Origin; `cors` answers browsers that ask for their pages), `access` (verifies
//! credentials) and `headers` (parses the headers), then `post`, `get` or `delete`; `exchange` continues a POST of the modern era. Only `reject`
//! turns a refusal into a response. `answer` gives the answer to a POST its format, `sse` and `event_body` write streams, and
//! `http2_pacing` limits how far the server runs ahead of an HTTP/2 client. `doors` serves the paths beside `/mcp`.
//! `leniencies` and `unnamed` make exceptions for clients of earlier designs. In a cluster, `elsewhere` gets the answers of sessions of other
//! nodes, `at_node` those of calls without a session, `relayed_events` follows their streams from node to node, and `relayed` serves the requests of other nodes.

mod service;
mod router;
mod endpoint;
mod guard;
mod proxies;
mod access;
mod cors;
mod refused;
mod headers;
mod post;
mod receive;
mod exchange;
mod get;
mod delete;
mod answer;
mod reject;
mod body;
mod pieces;
mod http2_pacing;
mod event_body;
mod sse;
mod doors;
mod leniencies;
mod unnamed;
mod elsewhere;
mod at_node;
mod relayed_events;
mod relayed;

pub use access::{EndpointAuth, StreamExpiry, ToolOwner};
pub use body::Body;
pub use doors::Doors;
pub(crate) use doors::{Doorkeeper, SharedPermit};
pub use endpoint::{Endpoint, Remote, Rules};
pub use guard::{AllowedHosts, AllowedOrigins};
pub use http2_pacing::Stalled;
pub use leniencies::Leniencies;
pub use proxies::{Network, NetworkError, TrustedProxies};
pub use relayed::PeerService;
pub use router::Router;
