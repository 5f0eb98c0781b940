//! Limits of calls: how often, how many at once, and how many a day.
//!
//! A call passes two layers. [`CallLimits::in_front`] stands in front of everything and knows the caller: rate and calls at once of
//! the principal, rate of the session, calls of a day and of a month. [`CallLimits::in_front_of_server`] stands right in front of one server and
//! knows the tool by the server's own name: rates and calls at once of tools, calls at once of the server. All doors and both eras
//! come through the same two layers; without a limit there is no layer.
//!
//! A call beyond a limit waits up to `max_wait` at a layer if there is room for it then, and is refused otherwise, with the time
//! after which there will be. Requests of our own are not limited, nor are `ping`, answers of clients and cancellations.
//!
//! `settings` has the limits, `fair` is the queue, `principals` and `tools` hold the state, `layer` are the wrappers.
//! `shedding` has no configured number: it refuses the heaviest callers while the process itself cannot keep up.

mod settings;
mod fair;
mod verdict;
mod principals;
mod tools;
mod layer;
mod shedding;

pub use fair::QueueBounds;
pub use layer::CallLimits;
pub use principals::{LimitLine, PrincipalLimits};
pub use settings::{CallLimitSettings, CallPattern, OverLimit, PatternLimit, PrincipalGrants};
pub use shedding::{LOOK, Shedding, Signs};
