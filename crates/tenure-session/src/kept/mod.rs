//! Calls without a session that their clients can come back for, as a store knows them.
//!
//! The revision has no resumption. Yet its clients come back with `Last-Event-ID` if the stream of their call broke and
//! had an event with an id. So a call that becomes a stream is noted in the store before its client is given an id
//! (`id`), and its answer is noted before its client gets it (`record`, `calls`). Notes expire by themselves. How a call
//! is carried out is the affair of `exchange`.

mod calls;
mod id;
mod record;

pub(crate) use calls::{Found, Kept, KeptCalls, Noted};
pub(crate) use id::CallId;
pub(crate) use record::Server;
