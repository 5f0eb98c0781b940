//! The ways in which released software speaks of data sessions. Pure functions, no I/O, no clock.
//!
//! Nothing outside this folder knows a method, a field, a key or an error code of any dialect.

mod words;

mod offer;
mod refusal;
mod request;
mod result;

pub use offer::{Features, Offer, Offers};
pub use refusal::{Refusal, Why, of_error, of_tool_text};
pub use request::{Call, create, delete, list, recover, resume};
pub use result::{Change, Page, change, created, page};
pub use words::Dialect;
pub(crate) use words::EXTENSION;
