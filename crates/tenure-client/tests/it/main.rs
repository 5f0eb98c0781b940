//! The client's layer at servers of both dialects and eras.

#[cfg(feature = "http")]
mod http;
mod layer;
