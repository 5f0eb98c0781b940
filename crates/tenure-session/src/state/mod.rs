//! Application state that outlives connections: one record, owned by a principal, known by names.
//!
//! A client names a state by a data session's id in a cookie, a model names the same state by a handle among a
//! tool's arguments; both names spell the same 128 bits, so whoever has one could write the other, and there is
//! nothing to keep in step (`name`). Every change names the revision it saw. Using a state puts off its expiry;
//! that is written down only now and then (`state`). An ended state leaves a tombstone (`record`).

mod cache;
mod date;
mod fault;
mod list;
mod make;
mod name;
mod operate;
mod record;
mod sealed;
mod state;
mod states;
mod sweep;

pub use cache::Last;
pub use date::Date;
pub use date::date;
pub use fault::{Fault, Lost};
pub use list::{Listed, Page};
pub use name::{Kind, StateId};
pub use operate::Resumed;
pub use record::{About, Edition};
pub use state::State;
pub use states::Fetched;
pub use states::{NewState, StateLimits, States};
