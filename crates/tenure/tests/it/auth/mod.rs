//! Who may use a node, over real sockets: credentials, challenges, scopes, and sessions that belong to their owners.
//!
//! Checks of the reference have their ids in the names of tests: `au1_…`.

pub(crate) mod world;
mod challenges;
mod scopes;
mod owners;
mod expiry;
mod certificates;
mod refusals;
