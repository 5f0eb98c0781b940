//! Bridges between the eras: a client of one in front of a server of the other.
//!
//! [`tenure_protocol::translate`] decides how messages are translated. The code here only connects two ports:
//! [`SessionsOnExchanges`] is a backend over a responder, for a client in a session in front of a server that knows no
//! sessions; [`ExchangesOnSessions`] is a responder over a backend, for a modern client in front of a server that knows
//! only sessions; [`EitherEra`] chooses for each client the half of a server that speaks its era, or the bridge.

mod either_era;
mod era_cache;
mod era_observer;
mod session_client;
mod modern_client;

pub(crate) use either_era::discovery;
pub use either_era::{ERA_TTL, EitherEra, Halves};
pub use modern_client::{ExchangesOnSessions, PoolLimits, Reuse};
pub use session_client::SessionsOnExchanges;
