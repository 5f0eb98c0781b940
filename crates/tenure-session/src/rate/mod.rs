//! How often something may happen: rates, cells that hold their state, and bounded tables of cells.
//!
//! A [`Rate`] is a setting. A [`RateCell`] is the state of one rate for one caller: eight bytes, changed without a lock, with the time
//! as an argument. A [`RateTable`] keeps such state for many callers and forgets callers whose cells are as new.
//! [`AddressRates`] and [`Quotas`] are the two uses that belong to sessions and their stores; `tenure-layers` has the limits of
//! calls. In: a time and a cost. Out: yes, or how long to wait; [`rate_limited`] is the error that says so.

mod stopwatch;
mod cell;
mod sharers;
mod table;
mod refusal;
mod addresses;
mod period;
mod quota;

pub use addresses::{AddressRate, AddressRates};
pub use cell::{Rate, RateCell};
pub use period::Period;
pub use quota::{QuotaLimits, QuotaUse, Quotas};
pub use refusal::{quota_exceeded, rate_limited};
pub use sharers::Sharers;
pub use stopwatch::{Stopwatch, Ticks};
pub use table::{Forgettable, RateTable};
