//! A connection on which client and server can send at any time: takes the client's messages, sends the session's.
//!
//! A full-duplex connection carries one session and all its streams: over a pair of byte streams (`stdio`), or over
//! one of the doors of the HTTP server. The session's messages go through the same streams as over `/mcp`. The task
//! that writes pulls them from the streams, so a client that does not read costs no memory.
//!
//! Read in this order: `input` and `oversize_id` (messages in), `connection` (dispatches them), `pump` (the streams),
//! `outgoing` and `cursor` (messages out, and how far the client has got), `questions` (requests to the client),
//! `exchange` (requests without a session).

mod input;
mod oversize_id;
mod connection;
mod pump;
mod outgoing;
mod cursor;
mod questions;
mod exchange;

pub(crate) use connection::{DuplexConnection, DuplexSettings, Tasks};
pub(crate) use cursor::Cursor;
pub(crate) use input::{Input, InputMessage};
pub(crate) use outgoing::{MAX_WAITING, Outgoing};
pub(crate) use oversize_id::{OversizeMessage, OversizeScan};
pub(crate) use pump::Outlet;
pub(crate) use questions::Questions;
