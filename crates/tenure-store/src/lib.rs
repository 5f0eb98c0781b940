//! Where session records and events are kept.
//!
//! Every engine implements [`tenure_session::port::store::Store`] and passes the same contract suite.
//! [`memory::Memory`] forgets everything when the process ends, [`disk::Disk`] does not; [`sealed::Sealed`]
//! encrypts the contents of either. [`open::open`] opens a store by its URL, [`copy::copy`] copies all contents
//! from one store to another, [`closable::Closable`] closes a store that other tasks still hold.

pub mod open;
pub mod memory;
pub mod disk;
pub mod sealed;
pub mod closable;
pub mod copy;
#[cfg(feature = "rmcp")]
pub mod rmcp;
mod numbers;
