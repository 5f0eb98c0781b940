//! Requests of revision 2026-07-28, which belong to no session, as bytes on real sockets.

mod accept;
mod eras;
mod flood;
mod guards;
mod hanging_up;
mod headers;
mod ladder;
mod reading;
mod stopping;
pub(crate) mod support;
