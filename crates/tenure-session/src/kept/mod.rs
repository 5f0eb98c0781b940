//! The notes in the store of calls without a session, so that clients can come back for a broken stream.
//!
//! The modern revision has no resumption. Yet its clients come back with `Last-Event-ID` if the stream of their call
//! broke and had an event with an id. So a call that becomes a stream is noted in the store before its client gets an
//! event id (`id`), and its answer is noted before its client gets it (`record`, `calls`). Notes expire by themselves.
//! `exchange` runs the calls.

mod calls;
mod record;
mod id;

pub(crate) use calls::{CallNote, FoundCall, KeptCalls, Noted};
pub(crate) use id::CallId;
pub(crate) use record::NotedServer;
