//! A client in a session in front of a server that knows no sessions.
//!
//! `backend` is the session towards the server, `client` what the server sees of the client during one request,
//! `modern_task` a task that the server made of a call, `discovery_cache` what servers said of themselves. `session_feed` tells the
//! session what the server reports by itself: `listen_loop` keeps one `listen` open for it, and `dedupe` drops reports that
//! two listens tell.

mod backend;
mod client;
mod dedupe;
mod discovery_cache;
mod listen;
mod listen_loop;
mod modern_task;
mod session_feed;

pub use backend::SessionsOnExchanges;
