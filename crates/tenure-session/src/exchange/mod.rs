//! The modern era: a request that stands alone, with its response, is an exchange.
//!
//! It belongs to no session. It says in `_meta` which version it speaks and what its client can do, and over HTTP
//! some headers repeat what its body says. This folder holds the rules for that, all of them pure: [`ladder`] (is the
//! request to be answered at all), [`meta`] and [`capability`] (what it says of its client), [`sentinel`] and
//! [`params`] (values in headers), [`results`] (what every result has to carry), [`digest`] (whether a later attempt
//! asks the same).

pub mod capability;
pub mod digest;
pub mod ladder;
pub mod meta;
pub mod params;
pub mod results;
pub mod sentinel;

pub use capability::{Capabilities, Capability};
pub use digest::Digest;
pub use ladder::{Checked, Header, Heads, Streams, check};
pub use meta::{Level, Meta};
pub use params::HeaderParams;
pub use results::{Caching, ResultType};
