//! Application state that outlives connections: one record, owned by a principal, with two names.
//!
//! A client names a state by a data session's id in a cookie; a model names the same state by a handle in a tool's
//! arguments. Both names encode the same 128 bits, so each can be computed from the other (`name`). Every change names
//! the edition that it is based on. Using a state prolongs its life, but not every use is written to the store
//! (`state`). An ended state leaves a tombstone (`record`).

mod states;
mod live_state;
mod record;
mod name;
mod make;
mod cache;
mod sealed;
mod list;
mod operate;
mod sweep;
mod fault;
mod date;

pub use cache::StateCache;
pub use date::Date;
pub use date::date;
pub use fault::{Fault, Lost};
pub use list::{StateInfo, StatePage};
pub use live_state::State;
pub use name::{StateId, StateKind};
pub use operate::Resumed;
pub use record::{About, Edition};
pub use states::Fetched;
pub use states::{NewState, StateLimits, States};
