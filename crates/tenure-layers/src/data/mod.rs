//! Data sessions and handles on the wire: a layer around any backend.
//!
//! A client makes a data session and echoes its cookie in `_meta`; a model passes a handle among a tool's arguments.
//! Either names a [`State`](tenure_session::state::State). The layer finds it before it calls the backend, and passes
//! it in the [`CallContext`](tenure_session::call::CallContext). A backend that knows nothing of data sessions works
//! too: the layer enforces the policy, and the cookie passes through in `_meta` unchanged.
//!
//! Released clients use two dialects in sessions, and the layer speaks both at once; requests without a session use a
//! third. Reading order: `dialect` (answers and errors in each of them), `request` (reads a request's cookie and tool),
//! `path` (the path of a request through the layer, in both eras), `backend` and `responder` (its two adapters),
//! `resolve` (the state that a call works on), `cookie_cache` and `cookie_out` (cookies in and out), `methods`
//! (`session/create` and the like), `handle_kinds` and `handle_tools` (handles), `policy`, `advertise` (capabilities, and
//! whether the server behind keeps data sessions itself).

mod dialect;
mod request;
mod path;
mod backend;
mod responder;
mod resolve;
mod cookie_cache;
mod cookie_out;
mod methods;
mod handle_kinds;
mod handle_tools;
mod policy;
mod advertise;

pub use backend::DataLayer;
pub use handle_kinds::KindOfState;
pub use policy::{FEATURES, Policy, Required};
