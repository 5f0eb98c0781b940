//! JSON as bytes: values that stay the bytes they were, readers that find a member without building a tree, and one
//! editor.
//!
//! Whose reading counts is a question of safety: a member that stands twice, or in another spelling, is read differently by
//! different servers. [`members`] and [`outline`] say so instead of choosing.
//!
//! Reading order: [`RawJson`] (a value), [`scan`] (the cursor over an object), [`members`] (one member), [`outline`] (the members
//! of params that every request is asked for), [`object`] (the editor), [`prefilter`] and [`swar`] (fast ways to see that there is
//! nothing to find).

pub mod members;
pub mod object;
pub mod outline;
pub mod prefilter;
mod raw;
pub mod scan;
pub mod swar;

pub use raw::RawJson;
