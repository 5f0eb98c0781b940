//! One client over a pair of byte streams: a JSON-RPC message a line, in and out.
//!
//! The client is whoever started the process. `initialize` opens its session, and the session ends with the
//! connection; nobody can come back to it.
//!
//! Read in this order: `run` (from the first byte to the last), `lines` (in), `output` (out). What a line means is
//! in `duplex`.

mod lines;
mod output;
mod run;

pub use run::Stdio;
