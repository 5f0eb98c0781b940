//! What an MCP session is and how it lives.
//!
//! A session is born of `initialize`, becomes usable with `notifications/initialized`, and ends by
//! DELETE, by expiry or by an operator. Between those moments it carries requests to a backend and
//! messages back on numbered streams that a client may resume. This crate holds the rules (pure),
//! the runtime (tasks and locks) and the ports (traits that stores, backends and clocks implement).
//! It knows no HTTP, no disk and no sockets.
//!
//! Read in this order: [`message`] and [`protocol`] (what is on the wire), [`phase`] and [`rules`]
//! (what is allowed when), [`exchange`] (requests that belong to no session), [`port`] (what we ask of
//! others), [`runtime`] (how it all moves), [`task`] (calls whose clients come back), [`bridge`] (between the
//! eras).

pub mod bridge;
pub mod budget;
pub mod call;
pub mod data;
pub mod error;
mod event_id;
pub mod exchange;
pub mod fingerprint;
mod framed;
pub mod id;
mod kept;
pub mod limits;
mod members;
mod mention;
pub mod message;
pub mod method;
pub mod phase;
pub mod port;
pub mod protocol;
pub mod record;
pub mod rules;
pub mod runtime;
mod scan;
pub mod state;
pub mod supervise;
pub mod task;
mod words;

pub use error::{Error, Kind, Reason, RpcError};
pub use event_id::{EventId, EventNames, EventSecret};
pub use id::{NodeId, Principal, RequestId, Route, SessionId, SessionKey, StreamId};
pub use limits::Limits;
pub use message::{Incoming, Message, Notification, RawJson, Request, Response};
pub use method::Method;
pub use protocol::{Eras, Revision};
pub use runtime::{Answer, Reader, Session, Sessions};
pub use state::{State, States};
pub use task::Tasks;
