//! The Model Context Protocol as pure functions: all revisions, no runtime, no input or output.
//!
//! Servers, gateways and clients share it, so that both sides read, refuse and write messages alike. Nothing here waits,
//! looks at a clock or keeps state.
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
//! Read in this order: [`json`] (values that stay the bytes they were), [`message`] with [`method`], [`request_id`] and
//! [`error`] (the envelope), [`revision`] and [`era`] (which rules hold for a message), [`params`] (what a rule needs of
//! them), [`modern`] (requests without a session), [`translate`] (between the eras), [`data_session`] (state that clients
//! name).

pub mod data_session;
pub mod era;
pub mod error;
pub mod json;
pub mod keys;
pub mod message;
pub mod method;
pub mod modern;
pub mod params;
pub mod request_id;
pub mod revision;
pub mod translate;

pub use era::{Era, Eras};
pub use error::{Error, Kind, Reason, RpcError};
pub use json::RawJson;
pub use message::{Incoming, Message, Notification, Reply, Request, Response};
pub use method::Method;
pub use request_id::RequestId;
pub use revision::Revision;
