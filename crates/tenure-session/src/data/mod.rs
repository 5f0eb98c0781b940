//! Data sessions and handles on the wire: a layer around any backend.
//!
//! A client makes a data session and echoes its cookie in `_meta`; a model passes a handle among a tool's
//! arguments. Either names a [`State`](crate::state::State), which the layer finds before the backend is asked and
//! hands to it in the [`CallContext`](crate::runtime::CallContext). A backend that knows nothing of all this is
//! served too: the layer enforces the policy, and the cookie passes through in `_meta` as it came.
//!
//! Two dialects are in the field, and both are spoken at once (`dialect`). Reading order: `dialect` (names,
//! shapes and codes), `asked` (what a request says), `layer` (the way of a request), `footing` (what it works on),
//! `methods` (`session/create` and the like), `kinds` and `tools` (handles), `policy`, `echo` (the cookie in an answer), `splice`
//! (JSON in place). Requests without a session speak a third one: `own` (what they say), `exchanges` (their way),
//! `offered` (whether the server behind leaves it to us).

mod asked;
mod dialect;
mod echo;
mod exchanges;
mod footing;
mod kinds;
mod known;
mod layer;
mod methods;
mod offered;
mod own;
mod policy;
mod splice;
mod tools;

use tenure_protocol::json::scan;

pub use dialect::Dialect;
pub use kinds::KindOfState;
pub use layer::DataLayer;
pub use policy::{FEATURES, Policy, Required};
