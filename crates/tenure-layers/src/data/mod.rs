//! Data sessions and handles on the wire: a layer around any backend.
//!
//! A client makes a data session and echoes its cookie in `_meta`; a model passes a handle among a tool's arguments.
//! Either names a [`State`](tenure_session::state::State). The layer finds it before it calls the backend, and passes
//! it in the [`CallContext`](tenure_session::call::CallContext). A backend that knows nothing of data sessions works
//! too: the layer enforces the policy, and the cookie passes through in `_meta` unchanged.
//!
//! Released clients use two dialects, and the layer speaks both at once. Reading order: `dialect` (names, shapes and
//! codes), `request` (reads a request's cookie and tool), `backend` (the path of a request through the layer),
//! `resolve` (the state that it works on), `cookie_cache` and `cookie_out` (cookies in and out), `methods`
//! (`session/create` and the like), `handle_kinds` and `handle_tools` (handles), `policy`, `splice` (JSON edits in
//! place). Requests without a session use a third dialect: `request_modern` reads them, `responder` is their path, and
//! `advertise` finds out whether the server behind keeps data sessions itself.

mod dialect;
mod request;
mod backend;
mod resolve;
mod cookie_cache;
mod cookie_out;
mod methods;
mod handle_kinds;
mod handle_tools;
mod policy;
mod request_modern;
mod responder;
mod advertise;
mod splice;

use tenure_protocol::json::scan;

pub use backend::DataLayer;
pub use dialect::Dialect;
pub use handle_kinds::KindOfState;
pub use policy::{FEATURES, Policy, Required};
