//! What agents use: a client layer that keeps its state across reconnects.

mod clock;
mod cookie;
pub mod dialect;
mod error;
mod jar;

pub use cookie::{Cookie, SessionId};
pub use dialect::Dialect;
pub use error::{Error, Kind};
pub use jar::{Book, Jar, KeptCookie, Record, Server};
