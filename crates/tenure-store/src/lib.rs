//! Where session records and events are kept.
//!
//! Every engine implements [`tenure_session::port::store::Store`] and passes the same contract suite.
//! [`memory::Memory`] forgets everything when the process ends. [`disk::Disk`] does not; no URL opens it yet,
//! because sessions are not yet woken from what it kept.

pub mod disk;
pub mod memory;
pub mod open;
