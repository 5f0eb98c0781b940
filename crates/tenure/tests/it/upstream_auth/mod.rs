//! A node in front of a server that wants credentials: what the server sees, and what clients see when it refuses them.
//!
//! The server is a whole node with the demo, behind a recorder that notes the head of every request and refuses on command.
//! Checks of the reference have their ids in the names of tests: `up1_…`.

pub(crate) mod recorder;
mod world;
mod never;
mod client_credentials;
mod exchange;
mod elsewhere;
mod identity;
mod restarts;
