//! The layer: a transport over a transport that keeps a data session for the client above it.
//!
//! ```text
//!  rmcp's client ──► transport ──► the server's transport
//!                      │  ▲
//!                      ▼  │ steps, in order
//!                    engine (what a message means)   own (our requests)   holder (the cookie in use)
//! ```
//!
//! `greet` finds out of which era the server is, before the client above says anything. `engine`, `own` and `holder` decide and do no I/O; `transport` carries out what they decide and `saving`
//! writes the jar. A new session is in the jar before the client above hears of anything that followed it.

mod engine;
mod greet;
mod handle;
mod holder;
mod message;
mod options;
mod own;
mod saving;
mod tap;
mod transport;

pub use greet::Era;
pub(crate) use greet::Ungreeted;
pub use handle::{Session, Sessions};
pub use options::{Attach, Create, Eras, Options, Recreate};
pub use tap::{Tap, TapReader};
pub use transport::SessionTransport;
