//! Between the eras: a client of one and a server of the other.
//!
//! A session's client in front of a server that knows no sessions, and a modern client in front of a server that
//! knows nothing else. What has to be said in other words is decided in [`rules`], which are pure. The bridges
//! themselves are wrappers of ports: [`ExchangesOnSessions`] answers exchanges out of sessions.

mod exchanges;
mod feeds;
mod listens;
mod pool;
pub mod rules;
mod seat;
mod slot;
mod turn;

pub use exchanges::ExchangesOnSessions;
pub use pool::{PoolLimits, Reuse};
