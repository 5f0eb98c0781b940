//! The parts that a server gets with a request: the context of the call, outlets for messages, and the fan-out for news.
//!
//! Every request has a [`Client`]: a session, or an object that takes the place of a session for the server. Servers do
//! not see the difference.

mod context;
mod client;
mod caller;
mod outlet;
mod news;
mod session;
mod task;
mod tool;
pub mod input_required;

pub use caller::{Caller, Collect, Granted, RefusalMark, Scopes};
pub use client::{Client, Origin};
pub use context::CallContext;
pub use news::{Fanout, News, NewsListener};
pub use outlet::Outlet;
pub use session::CallSession;
pub use task::{Became, TaskWish};
pub use tool::ToolCall;

pub(crate) use news::Hub;
pub(crate) use session::{HasSettings, change_settings};
