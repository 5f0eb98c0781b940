//! Between the eras: a client of one and a server of the other.
//!
//! What has to be said in other words is decided in [`tenure_protocol::translate`]. The rest stands between two ports and
//! knows nothing else: [`SessionsOnExchanges`] is a backend over a responder, for a client in a session in front of a server
//! that knows none; [`ExchangesOnSessions`] is a responder over a backend, for a modern client in front of a server that knows
//! only sessions; and [`Eras`] chooses for each client the half of a server that speaks its language, or the bridge.

mod either_era;
mod era_cache;
mod era_observer;
mod modern_client;
mod session_client;

pub(crate) use either_era::discovery;
pub use either_era::{ERA_TTL, Era, Eras, Halves};
pub use modern_client::{ExchangesOnSessions, PoolLimits, Reuse};
pub use session_client::SessionsOnExchanges;
