//! The modern era (2026-07-28): a request that stands alone and says everything about itself.
//!
//! It says in `_meta` which version it speaks and what its client can do, and over HTTP some headers repeat what its body
//! says. [`validate`] decides whether it is answered at all, [`meta`] and [`capability`] read what it says of its client,
//! [`header_value`] and [`header_params`] are about values in headers, [`result`] adds what every result has to carry, and
//! [`digest`] tells whether a later attempt asks the same.

pub mod capability;
pub mod digest;
pub mod header_params;
pub mod header_value;
pub mod meta;
pub mod result;
pub mod validate;

pub use capability::{Capabilities, Capability};
pub use digest::Digest;
pub use header_params::HeaderParams;
pub use meta::{Level, Meta};
pub use result::{Caching, ResultType};
pub use validate::{Checked, Header, Heads, Streams, check};
