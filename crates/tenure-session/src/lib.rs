//! What an MCP session is and how it lives.
//!
//! A session is born of `initialize`, becomes usable with `notifications/initialized`, and ends by
//! DELETE, by expiry or by an operator. Between those moments it carries requests to a backend and
//! messages back on numbered streams that a client may resume. This crate holds the rules (pure),
//! the runtime (tasks and locks) and the ports (traits that stores, backends and clocks implement).
//! It knows no HTTP, no disk and no sockets.
//!
//! Read in this order: [`phase`] and [`rules`] (what is allowed when), [`exchange`] (requests that belong to no session),
//! [`port`] (what we ask of others), [`runtime`] (how it all moves), [`task`] (calls whose clients come back), [`bridge`] (between
//! the eras). What is on the wire is in `tenure-protocol`.

pub mod backend;
pub mod budget;
pub mod call;
mod counts;
pub mod exchange;
pub mod fingerprint;
mod finish;
mod framed;
pub mod id;
mod kept;
pub mod limits;
pub mod port;
pub mod record;
pub mod session;
pub mod state;
pub mod supervise;
mod take_back;
pub mod task;

pub use id::{NodeId, Principal, Route, SessionId, SessionKey, StreamId};
pub use limits::Limits;
pub use session::{Answer, EventId, EventNames, EventSecret, Reader, Session, Sessions};
pub use state::{State, States};
pub use task::Tasks;
