//! Streamable HTTP of both eras at one path, and the doors for older clients beside it.
//!
//! A request passes `guard` (Host, Origin; `cors` answers browsers that ask for their pages), `headers` (what the headers say), then `post`, `get` or
//! `delete`; a POST of the modern era goes on in `exchange`. Every refusal becomes a response in `reject` and nowhere else.
//! Streams are written by [`sse`]. The answer to a POST takes its shape in `answer`, and over HTTP/2 its pace in `http2_pacing`;
//! what else is open is in `doors`. What clients of earlier designs are forgiven is in `leniencies` and `unnamed`.

mod answer;
mod body;
mod cors;
mod delete;
mod doors;
mod endpoint;
mod exchange;
mod exchange_body;
mod get;
mod guard;
mod headers;
mod http2_pacing;
mod leniencies;
mod pieces;
mod post;
mod receive;
mod refused;
mod reject;
mod router;
pub mod sse;
mod unnamed;

pub use body::Body;
pub use doors::Doors;
pub(crate) use doors::{Doorkeeper, Seat};
pub use endpoint::{Endpoint, Remote, Rules};
pub use guard::{AllowedHosts, AllowedOrigins};
pub use http2_pacing::Stalled;
pub use leniencies::Leniencies;
pub use router::Router;
