//! Between the eras: a client of one and a server of the other.
//!
//! A session's client in front of a server that knows no sessions, and a modern client in front of a server that
//! knows nothing else. What has to be said in other words is decided in [`rules`], which are pure. The rest stands
//! between two ports and knows nothing else: [`SessionsOnExchanges`] is a backend over a responder, and [`Eras`]
//! chooses for each client the half of a server that speaks its language, or the bridge. How a server is asked which
//! era it is of is in [`probe`].

mod discovery;
mod eras;
mod guise;
mod held;
mod listening;
pub mod probe;
mod relisten;
pub mod rounds;
pub mod rules;
mod sessions;
mod upstream_feeds;
mod verdicts;
mod watched;

pub use eras::{ERA_TTL, Era, Eras, Halves};
pub use sessions::SessionsOnExchanges;
