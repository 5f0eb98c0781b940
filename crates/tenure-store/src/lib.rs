//! Where session records and events are kept.
//!
//! Every engine implements [`tenure_session::port::store::Store`] and passes the same contract suite.
//! [`memory::Memory`] forgets everything when the process ends, [`disk::Disk`] does not; [`sealed::Sealed`]
//! encrypts what either of them keeps. [`open::open`] makes one from its URL, [`copy::copy`] carries everything
//! from one to another, [`closable::Closable`] lets go of one that others still hold.

pub mod closable;
pub mod copy;
pub mod disk;
pub mod memory;
mod numbers;
pub mod open;
#[cfg(feature = "rmcp")]
pub mod rmcp;
pub mod sealed;
