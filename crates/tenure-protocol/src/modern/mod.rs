//! The modern era (2026-07-28): a request belongs to no session and carries all that is needed to answer it.
//!
//! Its `_meta` has the version and the capabilities of the client; over HTTP some headers repeat parts of the body.
//! [`validate`] decides whether the request is answered at all, [`meta`] and [`capability`] read `_meta`,
//! [`header_value`] and [`header_params`] encode and check values in headers, [`result`] adds the members that every
//! result must have, and [`digest`] tells whether a retry is the same request.

pub mod validate;
pub mod meta;
pub mod capability;
pub mod header_value;
pub mod header_params;
pub mod result;
pub mod digest;

pub use capability::{Capabilities, Capability};
pub use digest::Digest;
pub use header_params::HeaderParams;
pub use meta::{Level, Meta};
pub use result::{Caching, ResultType};
pub use validate::{Checked, Header, Heads, StreamSupport, check};
