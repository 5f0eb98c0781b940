//! The other ways in: HTTP/2, TLS, and both.

pub(crate) mod client;
mod http2;
mod tls;
