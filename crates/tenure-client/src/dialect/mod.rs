//! The dialects of data sessions that released software speaks. Pure functions, no I/O, no clock.
//!
//! The names of methods, keys and fields are those of [`tenure_protocol::data_session`], which servers use too.

mod offer;
mod request;
mod result;
mod refusal;

pub use offer::{Features, Offer, Offers};
pub use refusal::{SessionRefusal, Why, of_error, of_tool_text};
pub use request::{DialectRequest, create, delete, list, recover, resume};
pub use result::{Change, SessionPage, change, created, page};
pub(crate) use tenure_protocol::data_session::extension::EXTENSION;
pub use tenure_protocol::data_session::{Dialect, Verb};
