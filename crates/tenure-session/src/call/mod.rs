//! What a server behind gets with a request, whoever asked: the context of the call, outlets for messages, and news.
//!
//! A request belongs to a session, or to somebody else who plays the part of one towards the server: a [`Stage`].
//! Servers do not see the difference.

mod caller;
mod context;
pub mod input_required;
mod news;
mod outlet;
mod session;
mod stage;
mod task;
mod tool;

pub use caller::{Caller, Collect};
pub use context::CallContext;
pub use news::{Fanout, Listener, News};
pub use outlet::Outlet;
pub use session::CallSession;
pub use stage::Stage;
pub use task::{Became, TaskWish};
pub use tool::ToolCall;

pub(crate) use news::Hub;
