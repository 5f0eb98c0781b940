//! Data sessions and handles on the wire: a layer around any backend.
//!
//! A client makes a data session and echoes its cookie in `_meta`; a model passes a handle among a tool's
//! arguments. Either names a [`State`](tenure_session::state::State), which the layer finds before the backend is asked and
//! hands to it in the [`CallContext`](tenure_session::call::CallContext). A backend that knows nothing of all this is
//! served too: the layer enforces the policy, and the cookie passes through in `_meta` as it came.
//!
//! Two dialects are in the field, and both are spoken at once (`dialect`). Reading order: `dialect` (names, shapes and codes),
//! `request` (what a request says), `backend` (its way through the layer), `resolve` (the state that it works on), `cookie_cache`
//! and `cookie_out` (cookies that come and go), `methods` (`session/create` and the like), `handle_kinds` and `handle_tools`
//! (handles), `policy`, `splice` (JSON in place). Requests without a session speak a third dialect: `request_modern` (what they
//! say), `responder` (their way), `advertise` (whether the server behind leaves it to us).

mod advertise;
mod backend;
mod cookie_cache;
mod cookie_out;
mod dialect;
mod handle_kinds;
mod handle_tools;
mod methods;
mod policy;
mod request;
mod request_modern;
mod resolve;
mod responder;
mod splice;

use tenure_protocol::json::scan;

pub use backend::DataLayer;
pub use dialect::Dialect;
pub use handle_kinds::KindOfState;
pub use policy::{FEATURES, Policy, Required};
