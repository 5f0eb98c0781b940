//! Numbers that grow with time, for stores that go on from a copy of what another one had.
//!
//! A backup, an export or a copy knows the numbers that were given out until it was made. Its original may have given
//! out more since, and clients hold them: a store that gave the same positions out again would have its clients skip
//! events. So a store that goes on from something older begins at the number of the present moment. No store is
//! ahead of that number: it began at that of an earlier moment, or at 0, and gives out far fewer than
//! [`PER_MILLISECOND`] on average. Only a clock that is behind that of the original's machine breaks this.

use tenure_session::port::clock::Time;

/// More than any store writes: two millions a second. Until the year 2109 the numbers fit those that every reader of
/// JSON keeps exactly, since versions and positions are shown to operators and in exports.
const PER_MILLISECOND: u64 = 1 << 11;

/// The number of a moment.
pub(crate) fn at(now: Time) -> u64 {
    now.0.saturating_mul(PER_MILLISECOND)
}
