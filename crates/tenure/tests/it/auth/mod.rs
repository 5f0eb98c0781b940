//! Who may use a node, over real sockets: credentials, challenges, scopes, and sessions that belong to their owners.
//!
//! Checks of the reference have their ids in the names of tests: `au1_…`.

pub(crate) mod world;
mod challenges;
mod scopes;
mod owners;
mod expiry;
mod taken_back;
pub(crate) mod office;
mod principals;
mod secrets;
mod watchers;
mod leaks;
mod leaks_behind;
mod strangers;
mod bridges;
mod owned;
mod certificates;
mod refusals;
