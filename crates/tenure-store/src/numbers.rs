//! Sequence numbers derived from the time of day, for a store that continues from a copy of another store.
//!
//! A backup, an export or a copy knows only the numbers given out before it was made. The original may have given out
//! more since, and clients hold them: if the copy gave out the same positions again, its clients would skip events. So
//! a store that continues from older data begins at the number of the present moment. No store is ahead of that
//! number: it began at 0 or at the number of an earlier moment, and gives out far fewer than [`PER_MILLISECOND`] on
//! average. This fails only if the clock is behind the clock of the original's machine.

use tenure_session::port::clock::Time;

/// More than any store writes: two million a second. Operators and exports show versions and positions as JSON numbers,
/// and until the year 2109 these numbers stay below 2^53, which every JSON reader keeps exactly.
const PER_MILLISECOND: u64 = 1 << 11;

/// The number of a moment.
pub(crate) fn at(now: Time) -> u64 {
    now.0.saturating_mul(PER_MILLISECOND)
}
