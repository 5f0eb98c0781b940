//! JSON as bytes: values kept as their original bytes, readers that find a member without building a tree, and an
//! editor.
//!
//! Two servers may read the same object differently if a member is repeated or is written in another case. An attacker
//! could use that to pass a check, so [`members`] and [`outline`] report such members instead of choosing one.
//!
//! Reading order: [`RawJson`] (a value), [`scan`] (the cursor over an object), [`members`] (one member), [`outline`]
//! (the members of params that every request is read for), [`object`] (the editor), [`splice`] (parts of a text that are
//! replaced where they stand), [`prefilter`] and [`swar`] (fast tests that a name or byte is not in a text).

mod raw;
pub mod scan;
pub mod members;
pub mod outline;
pub mod object;
pub mod splice;
pub mod prefilter;
pub mod swar;

pub use raw::RawJson;
