//! Streamable HTTP, revisions 2025-03-26 to 2025-11-25, at one path.
//!
//! A request passes `guard` (Host, Origin), `headers` (what the headers say), then `post`, `get` or
//! `delete`. Every refusal becomes a response in `reject` and nowhere else. Streams are written by
//! [`sse`].

mod body;
mod delete;
mod endpoint;
mod get;
mod guard;
mod headers;
mod post;
mod reject;
mod router;
pub mod sse;

pub use body::Body;
pub use endpoint::{Endpoint, Remote, Rules};
pub use guard::{AllowedHosts, AllowedOrigins};
pub use router::Router;
