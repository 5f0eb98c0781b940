//! A client in a session in front of a server that knows no sessions.
//!
//! `backend` emulates the session towards the server, `client` is the client that the server sees during one request,
//! `modern_task` follows a task that the server made of a call, `discovery_cache` keeps `server/discover` results.
//! `session_feed` passes the server's notifications to the session: `listen_loop` keeps one `listen` open for it, and
//! `dedupe` drops a notification that two overlapping listens both report.

mod backend;
mod client;
mod modern_task;
mod discovery_cache;
mod session_feed;
mod listen_loop;
mod listen;
mod dedupe;

pub use backend::SessionsOnExchanges;
