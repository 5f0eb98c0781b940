//! The layer: a transport around another transport that keeps a data session for rmcp's client above it.
//!
//! ```text
//!  rmcp's client ──► transport ──► the server's transport
//!                      │  ▲
//!                      ▼  │ steps, in order
//!                    engine (what a message means)   own (our requests)   holder (the cookie in use)
//! ```
//!
//! `greet` finds out the era of the server before the client above sends its first message. `engine`, `own` and
//! `holder` decide and do no I/O; `transport` executes their steps and `saving` writes the jar. A new session is in
//! the jar before the client above gets any later message.

mod transport;
mod greet;
mod engine;
mod own;
mod holder;
mod message;
mod handle;
mod options;
mod saving;
mod tap;

pub(crate) use greet::Ungreeted;
pub use handle::{DataSession, SessionHandle};
pub use options::{Attach, Create, EraChoice, Recreate, SessionOptions};
pub use tap::{Tap, TapReader};
pub use transport::SessionTransport;
