//! Keeps session records and events on NATS JetStream, so that any node of a cluster can serve any session.
//!
//! [`Nats`] implements [`tenure_session::port::store::Store`] and [`tenure_session::port::members::Members`]. Everything
//! that decides is a compare-and-swap of the engine, by a majority of its servers. `docs/design/0023-the-nats-engine.md`
//! says how records, owners and logs lie in streams and subjects, and why.

pub mod options;
pub mod error;
mod engine;
mod connect;
mod founding;
mod watch;
mod health;
mod records;
mod record_form;
mod dues;
mod ages;
mod listing;
mod owners;
mod nodes;
mod log_write;
mod log_read;
mod log_cache;
mod head;
mod frame;
mod parts;
mod swap;
mod fetch;
mod wire;
mod names;

pub use self::engine::Nats;
pub use self::error::NatsError;
pub use self::options::{Credentials, NatsOptions, NatsTls};
