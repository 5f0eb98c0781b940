//! One client that both sides can speak to at any time: what its messages mean, and what goes back.
//!
//! A full-duplex connection carries one session and all its streams: over a pair of byte streams (`stdio`), or over
//! one of the doors of the HTTP server. What the session says goes through the same streams as over `/mcp`, which are
//! pulled by whoever writes, so that a client that does not read costs no memory.
//!
//! Read in this order: `input` and `oversize_id` (what comes in), `connection` (what it means), `pump` (the streams),
//! `outgoing` and `cursor` (what goes out, and how far), `questions` (what only the client can answer),
//! `exchange` (requests without a session).

mod connection;
mod cursor;
mod exchange;
mod input;
mod outgoing;
mod oversize_id;
mod pump;
mod questions;

pub(crate) use connection::{Connection, Manner, Tasks};
pub(crate) use cursor::Cursor;
pub(crate) use input::{Input, Line};
pub(crate) use outgoing::{MAX_WAITING, Outgoing};
pub(crate) use oversize_id::Skim;
#[cfg(test)]
pub(crate) use oversize_id::Skimmed;
pub(crate) use pump::Outlet;
pub(crate) use questions::Questions;
