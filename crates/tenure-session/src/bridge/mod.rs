//! Between the eras: a client of one and a server of the other.
//!
//! A session's client in front of a server that knows no sessions, and a modern client in front of a server that
//! knows nothing else. What has to be said in other words is decided in [`rules`], which are pure. How a server is
//! asked which era it is of is in [`probe`].

pub mod probe;
pub mod rules;
