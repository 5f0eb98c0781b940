//! Between the eras: a client of one and a server of the other.
//!
//! A session's client in front of a server that knows no sessions, and a modern client in front of a server that
//! knows nothing else. What has to be said in other words is decided in [`tenure_protocol::translate`], which are pure. The rest stands
//! between two ports and knows nothing else: [`SessionsOnExchanges`] is a backend over a responder,
//! [`ExchangesOnSessions`] a responder over a backend, and [`Eras`] chooses for each client the half of a server that
//! speaks its language, or the bridge. [`Revisions`] is for clients of an older revision of sessions. How a server is asked which era it is of is in [`probe`].

mod discovery;
mod eras;
mod errand;
mod exchanges;
mod feeds;
mod guise;
mod held;
mod listening;
mod listens;
mod pool;
pub mod probe;
mod pursuit;
mod relisten;
mod revisions;
pub mod rounds;
mod seat;
mod sessions;
mod slot;
mod supports;
mod turn;
mod upstream_feeds;
mod verdicts;
mod watched;

pub(crate) use eras::discovery;
pub use eras::{ERA_TTL, Era, Eras, Halves};
pub use exchanges::ExchangesOnSessions;
pub use pool::{PoolLimits, Reuse};
pub use revisions::Revisions;
pub use sessions::SessionsOnExchanges;
