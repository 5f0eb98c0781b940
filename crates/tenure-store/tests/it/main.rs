//! The engines: the contract that all of them keep, and what only one of them can do.

mod contract;
mod copy;
mod disk;
mod resume;
#[cfg(feature = "rmcp")]
mod rmcp;
mod sealed;
mod upgrade;
