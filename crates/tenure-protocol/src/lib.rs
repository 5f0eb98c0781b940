//! The Model Context Protocol as pure functions: all revisions, no runtime, no input or output.
//!
//! Servers, gateways and clients use the same functions, so both sides read, refuse and write messages in the same way.
//! Nothing here waits, reads a clock or keeps state.
//!
//! ```
//! use tenure_protocol::{Era, Incoming, Message, Method};
//! use tenure_protocol::era::{self, Shape};
//!
//! let body = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}"#;
//! let Ok(Incoming::One(Message::Request(request))) = Incoming::parse(&body.to_vec().into()) else { panic!() };
//! assert_eq!(request.method, Method::ToolsCall);
//! assert_eq!(era::belongs(Shape::Request, request.params.as_ref(), None), Era::Legacy);
//! ```
//!
//! Read in this order: [`json`] (values kept as their original bytes), [`message`] with [`method`], [`request_id`]
//! and [`error`] (the envelope), [`revision`] and [`era`] (which rules apply to a message), [`params`] (single
//! members that the rules need), [`modern`] (requests without a session), [`translate`] (from one era to the other),
//! [`data_session`] (state that clients name in their requests).

pub mod json;
pub mod message;
pub mod method;
pub mod request_id;
pub mod error;
pub mod revision;
pub mod era;
pub mod params;
pub mod keys;
pub mod modern;
pub mod translate;
pub mod data_session;

pub use era::{Era, Eras};
pub use error::{Error, Kind, Reason, RpcError};
pub use json::RawJson;
pub use message::{Incoming, Message, Notification, Reply, Request, Response};
pub use method::Method;
pub use request_id::RequestId;
pub use revision::Revision;
