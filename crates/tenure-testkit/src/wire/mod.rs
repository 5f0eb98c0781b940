//! The HTTP/1.1 client of the tests, the benchmarks and the crash harness.
//!
//! It follows no redirects, pools nothing, retries nothing and corrects nothing, so that its user sees the bytes on
//! the wire. [`HttpConnection`] sends ready-made bytes and reads answers without a copy per request: a benchmark
//! shares the machine with the server it measures. [`Ask`] makes the bytes of a request. [`Connection`], [`Events`]
//! and the methods of `Ask` that send are for tests: each has a deadline, and panics where a test has failed.

mod http;
mod ask;
mod connection;
mod events;
mod wait;

pub use self::ask::Ask;
pub use self::connection::{Connection, WholeResponse, WireIo, connect};
pub use self::events::{Events, gist};
pub use self::http::{Head, HttpConnection};
pub use self::wait::{DEADLINE, within};
