//! The dialects of data sessions that released software speaks. Pure functions, no I/O, no clock.
//!
//! Methods, keys and error codes of the dialects are known only in this folder, the fields of a cookie also in
//! `cookie`.

mod offer;
mod request;
mod result;
mod refusal;
mod words;

pub use crate::cookie::Dialect;
pub use offer::{Features, Offer, Offers};
pub use refusal::{SessionRefusal, Why, of_error, of_tool_text};
pub use request::{DialectRequest, create, delete, list, recover, resume};
pub use result::{Change, SessionPage, change, created, page};
pub(crate) use words::EXTENSION;
