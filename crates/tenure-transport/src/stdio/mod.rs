//! One client over a pair of byte streams: one JSON-RPC message per line, in and out.
//!
//! The client is the process that started this one. `initialize` opens its session, and the session ends with the
//! connection; the client cannot come back to it.
//!
//! Read in this order: `run` (from the first byte to the last), `lines` (in), `output` (out). `duplex` handles the
//! messages.

mod run;
mod lines;
mod output;

pub use run::Stdio;
