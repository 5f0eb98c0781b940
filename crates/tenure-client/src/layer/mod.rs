//! The layer: a transport over a transport that keeps a data session for the client above it.
//!
//! ```text
//!  rmcp's client ──► transport ──► the server's transport
//!                      │  ▲
//!                      ▼  │ steps, in order
//!                    engine (what a message means)   own (our requests)   holder (the cookie in use)
//! ```
//!
//! `engine`, `own` and `holder` decide and do no I/O; `transport` carries out what they decide and `saving`
//! writes the jar. A new session is in the jar before the client above hears of anything that followed it.

mod engine;
mod handle;
mod holder;
mod message;
mod options;
mod own;
mod saving;
mod tap;
mod transport;

pub use handle::{Session, Sessions};
pub use options::{Attach, Create, Options, Recreate};
pub use tap::{Tap, TapReader};
pub use transport::SessionTransport;
