//! One client over a pair of byte streams: a JSON-RPC message a line, in and out.
//!
//! The client is whoever started the process. `initialize` opens its session, and the session ends with the
//! connection; nobody can come back to it. What the session says goes through the same streams as over HTTP, which
//! are pulled by whoever writes, so that a client that does not read costs no memory.
//!
//! Read in this order: `run` (from the first byte to the last), `lines` and `skim` (in), `connection` (what a line
//! means), `pump` and `output` (out), `questions` (what only the client can answer).

mod connection;
mod lines;
mod output;
mod pump;
mod questions;
mod run;
mod skim;

pub use run::Stdio;
