//! Where session records and events are kept.
//!
//! Every engine implements [`tenure_session::port::store::Store`] and passes the same contract suite.
//! Today there is one: [`memory::Memory`], which forgets everything when the process ends.

pub mod memory;
pub mod open;
