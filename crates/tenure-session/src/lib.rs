//! MCP sessions, requests without a session, tasks and states: their rules and their runtime.
//!
//! A session begins with `initialize`, becomes usable with `notifications/initialized`, and ends by
//! DELETE, by expiry or by an operator. Between those moments it carries requests to a backend and
//! messages back on numbered streams that a client may resume. This crate holds the rules (pure),
//! the runtime (tasks and locks) and the ports (traits that stores, backends and clocks implement).
//! It knows no HTTP, no disk and no sockets.
//!
//! Read in this order: [`session`] (sessions and their streams), [`exchange`] (requests without a session), [`task`]
//! (calls whose clients come back for the outcome), [`state`] (application state that outlives sessions), [`call`] and
//! [`backend`] (the side of the server), [`port`] (traits for stores, clocks and seals). `tenure-protocol` owns the
//! wire format.

pub mod id;
pub mod limits;
pub mod port;
pub mod fingerprint;
pub mod record;
pub mod settings;
mod framed;
pub mod budget;
mod finish;
mod backoff;
mod counts;
mod read_back;
mod take_back;
pub mod supervise;
pub mod single_flight;
mod sweep;
pub mod state;
pub mod call;
pub mod backend;
pub mod session;
mod kept;
pub mod task;
pub mod exchange;

pub use id::{NodeId, Principal, Route, SessionId, SessionKey, StreamId};
pub use limits::Limits;
pub use session::{Answer, EventId, EventNames, EventSecret, Reader, Session, Sessions};
pub use state::{State, States};
pub use task::Tasks;
