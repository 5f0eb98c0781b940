//! The generic cell rate algorithm: one number for each rate and caller, the theoretical arrival time of the next call.
//!
//! A call moves that time on by the interval of its rate. A call is allowed while the time is not further ahead of now than the
//! burst allows. In: the time now, and the cost. Out: whether the call may go on, or how long it has to wait. It never waits itself.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Ticks;

/// How often something may happen: so many times in a period, and so many at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    count: u32,
    period: Duration,
    burst: u32,
    /// Nanoseconds from one call to the next, at this rate.
    interval: u64,
}

impl Rate {
    /// `count` times in `period`, and up to `burst` at once. Zero counts as one, and no interval is longer than a year.
    pub fn new(count: u32, period: Duration, burst: u32) -> Self {
        const YEAR: u64 = 365 * 24 * 3600 * 1_000_000_000;
        let (count, burst) = (count.max(1), burst.max(1));
        let interval = u64::try_from(period.as_nanos()).unwrap_or(YEAR).min(YEAR) / u64::from(count);
        Self { count, period, burst, interval: interval.max(1) }
    }

    /// `count` times a second, and as many at once.
    pub fn per_second(count: u32) -> Self {
        Self::new(count, Duration::from_secs(1), count)
    }

    /// How many in a period.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The period.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// How many at once.
    pub fn burst(&self) -> u32 {
        self.burst
    }

    /// The same with so many times the count and the burst.
    #[must_use]
    pub fn times(self, factor: u32) -> Self {
        Self::new(self.count.saturating_mul(factor), self.period, self.burst.saturating_mul(factor))
    }

    /// The part of one of so many nodes: its part of the rate, and twice its part of the burst, since callers do not spread evenly.
    /// Together they allow up to twice the burst, and the rate.
    #[must_use]
    pub fn among(self, nodes: u32) -> Self {
        let nodes = nodes.max(1);
        let burst = self.burst.saturating_mul(2).div_ceil(nodes).clamp(1, self.burst);
        Self { interval: self.interval.saturating_mul(u64::from(nodes)), burst, ..self }
    }

    /// The time that a cell which was used up needs until the whole burst is free again.
    pub fn window(&self) -> Duration {
        Duration::from_nanos(self.window_nanos())
    }

    fn window_nanos(&self) -> u64 {
        self.interval.saturating_mul(u64::from(self.burst))
    }
}

impl fmt::Display for Rate {
    /// As it is written in a configuration.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.period.as_secs() {
            1 => "s",
            60 => "min",
            3600 => "h",
            86_400 => "d",
            seconds => return write!(f, "{}/{seconds}s burst {}", self.count, self.burst),
        };
        write!(f, "{}/{unit}", self.count)?;
        if self.burst != self.count {
            write!(f, " burst {}", self.burst)?;
        }
        Ok(())
    }
}

/// The state of one rate for one caller.
#[derive(Debug, Default)]
pub struct RateCell(AtomicU64);

impl RateCell {
    /// Takes room for a call now.
    ///
    /// # Errors
    /// How long it takes until there is room. Then nothing is taken.
    pub fn check(&self, rate: &Rate, now: Ticks, cost: u32) -> Result<(), Duration> {
        self.reserve(rate, now, cost, Duration::ZERO).map(drop)
    }

    /// Takes room for a call, now or within `ahead`. Returns how long the call has to wait for its room; calls get their room in
    /// the order in which they ask. All callers of a cell say the same `ahead`.
    ///
    /// # Errors
    /// How long it takes until there is room, if that is longer than `ahead`. Then nothing is taken.
    pub fn reserve(&self, rate: &Rate, now: Ticks, cost: u32, ahead: Duration) -> Result<Duration, Duration> {
        let window = rate.window_nanos();
        let ahead = u64::try_from(ahead.as_nanos()).unwrap_or(u64::MAX);
        let cost = rate.interval.saturating_mul(u64::from(cost)).min(window);
        let mut arrival = self.0.load(Ordering::Relaxed);
        loop {
            let base = match base(arrival, now, window, ahead) {
                SetBack::No(base) => base,
                // Kept also if the call is refused: the window begins when the clock was seen to be set back.
                SetBack::Yes(base) => {
                    let kept = self.0.compare_exchange(arrival, base, Ordering::Relaxed, Ordering::Relaxed);
                    arrival = kept.map_or_else(|current| current, |_| base);
                    continue;
                }
            };
            let next = base.saturating_add(cost);
            let wait = next.saturating_sub(now.0.saturating_add(window));
            if wait > ahead {
                return Err(Duration::from_nanos(wait));
            }
            match self.0.compare_exchange_weak(arrival, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(Duration::from_nanos(wait)),
                Err(current) => arrival = current,
            }
        }
    }

    /// Gives back the room of a call that was not carried out after all.
    pub fn give_back(&self, rate: &Rate, cost: u32) {
        let cost = rate.interval.saturating_mul(u64::from(cost)).min(rate.window_nanos());
        let less = |arrival: u64| Some(arrival.saturating_sub(cost));
        // The closure always returns a value, so this does not fail.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// How many calls would be allowed at once now.
    pub fn left(&self, rate: &Rate, now: Ticks) -> u32 {
        let window = rate.window_nanos();
        let used = self.0.load(Ordering::Relaxed).saturating_sub(now.0).min(window);
        u32::try_from((window - used) / rate.interval).unwrap_or(u32::MAX)
    }

    /// Whether it remembers nothing: it allows as much as a new cell.
    pub fn is_forgotten(&self, now: Ticks) -> bool {
        self.0.load(Ordering::Relaxed) <= now.0
    }
}

/// The time that a call is counted from. An arrival time that is further ahead than any call could have moved it means that the
/// clock was set back. Then the cell counts as used up: the same calls are not let through twice, and no caller waits longer
/// than for a burst.
fn base(arrival: u64, now: Ticks, window: u64, ahead: u64) -> SetBack {
    let furthest = now.0.saturating_add(window).saturating_add(ahead);
    match arrival <= furthest {
        true => SetBack::No(arrival.max(now.0)),
        false => SetBack::Yes(now.0.saturating_add(window)),
    }
}

/// Whether the clock was set back, with the time that a call is counted from.
enum SetBack {
    No(u64),
    Yes(u64),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    fn at(milliseconds: u64) -> Ticks {
        Ticks(milliseconds * MS)
    }

    #[test]
    fn nodes_together_allow_the_rate_and_at_most_twice_the_burst() {
        for (nodes, burst) in [(1, 60), (2, 60), (3, 60), (7, 60), (3, 1), (100, 4)] {
            let whole = Rate::new(60, Duration::from_secs(1), burst);
            let part = whole.among(nodes);
            assert_eq!(
                part.to_string().split(' ').next(),
                whole.to_string().split(' ').next(),
                "as it is written"
            );
            let cells: Vec<RateCell> = (0..nodes).map(|_| RateCell::default()).collect();
            let allowed = |now: Ticks| -> u32 {
                let of = |cell: &RateCell| (0..200).filter(|_| cell.check(&part, now, 1).is_ok()).count();
                cells.iter().map(of).sum::<usize>() as u32
            };
            let at_once = allowed(Ticks(1));
            assert!(at_once <= (2 * burst).max(nodes) + nodes, "{nodes} nodes, burst {burst}: {at_once}");
            // Ten seconds in small steps, from there on.
            let mut later = 0;
            for step in 1..=1000 {
                later += allowed(at(step * 10));
            }
            assert!((500..=660).contains(&later), "{nodes} nodes, burst {burst}: {later} in ten seconds");
        }
    }

    /// An exact model, written as a bucket of time: a call costs one interval, and time that passes fills the bucket.
    struct Bucket {
        credit: u64,
        seen: u64,
    }

    impl Bucket {
        fn allows(&mut self, rate: &Rate, now: Ticks, cost: u32) -> bool {
            self.credit = (self.credit + (now.0 - self.seen)).min(rate.interval * u64::from(rate.burst));
            self.seen = now.0;
            let cost = (rate.interval * u64::from(cost)).min(rate.interval * u64::from(rate.burst));
            let allowed = cost <= self.credit;
            self.credit -= if allowed { cost } else { 0 };
            allowed
        }
    }

    proptest! {
        #[test]
        fn a_cell_allows_what_a_bucket_allows(
            count in 1u32..200,
            period in 1u64..5000,
            burst in 1u32..100,
            calls in prop::collection::vec((0u64..400, 1u32..4), 1..300),
        ) {
            let rate = Rate::new(count, Duration::from_millis(period), burst);
            let (cell, mut now) = (RateCell::default(), 0);
            let mut model = Bucket { credit: rate.interval * u64::from(burst), seen: 0 };
            for (pause, cost) in calls {
                now += pause;
                let allowed = cell.check(&rate, at(now), cost);
                prop_assert_eq!(allowed.is_ok(), model.allows(&rate, at(now), cost));
                if let Err(wait) = allowed {
                    // The wait is exact: one nanosecond earlier there is no room, and then there is.
                    let then = at(now).0 + u64::try_from(wait.as_nanos()).unwrap();
                    prop_assert!(cell.check(&rate, Ticks(then - 1), cost).is_err());
                    prop_assert_eq!(cell.reserve(&rate, at(now), cost, wait), Ok(wait));
                    cell.give_back(&rate, cost);
                }
            }
        }

        #[test]
        fn no_stretch_of_time_has_more_than_its_rate_and_a_burst(
            count in 1u32..50,
            burst in 1u32..20,
            pauses in prop::collection::vec(0u64..300, 1..300),
        ) {
            let rate = Rate::new(count, Duration::from_secs(1), burst);
            let (cell, mut now, mut passed) = (RateCell::default(), 0, Vec::new());
            for pause in pauses {
                now += pause;
                if cell.check(&rate, at(now), 1).is_ok() {
                    passed.push(now);
                }
            }
            for first in 0..passed.len() {
                for last in first..passed.len() {
                    let most = (passed[last] - passed[first]) * MS / rate.interval + u64::from(burst);
                    prop_assert!((last - first + 1) as u64 <= most);
                }
            }
        }

        #[test]
        fn rl6_a_clock_that_is_set_back_lets_nothing_through_twice_and_locks_no_caller_out(
            burst in 1u32..50,
            used in 0u32..100,
            began in 10_000_000u64..20_000_000,
            back in 0u64..10_000_000,
        ) {
            let rate = Rate::new(10, Duration::from_secs(1), burst);
            let cell = RateCell::default();
            let before = (0..used).filter(|_| cell.check(&rate, at(began), 1).is_ok()).count();
            let set_back = at(began - back);
            let after = (0..burst).filter(|_| cell.check(&rate, set_back, 1).is_ok()).count();
            prop_assert!(before + after <= burst as usize, "{before} and {after}");
            // After a whole window by the new clock, everything is as with a new cell.
            let later = Ticks(set_back.0 + 2 * rate.window_nanos());
            let again = (0..2 * burst).filter(|_| cell.check(&rate, later, 1).is_ok()).count();
            prop_assert_eq!(again, burst as usize);
        }
    }

    #[test]
    fn rooms_are_given_out_in_order_within_the_wait_that_is_allowed() {
        let rate = Rate::new(10, Duration::from_secs(1), 2);
        let (cell, ahead) = (RateCell::default(), Duration::from_millis(250));
        let waits: Vec<_> = (0..6).map(|_| cell.reserve(&rate, at(1000), 1, ahead)).collect();
        let ms = Duration::from_millis;
        assert_eq!(
            waits,
            [Ok(ms(0)), Ok(ms(0)), Ok(ms(100)), Ok(ms(200)), Err(ms(300)), Err(ms(300))],
            "refused calls take nothing"
        );
        assert_eq!((cell.left(&rate, at(1000)), cell.left(&rate, at(1400))), (0, 2));
        assert!(!cell.is_forgotten(at(1399)) && cell.is_forgotten(at(1400)));
    }

    #[test]
    fn a_rate_reads_as_it_is_written() {
        let texts = [(10, 1, 10), (10, 1, 50), (30, 60, 30), (5, 3600, 5), (100, 86_400, 10)]
            .map(|(count, period, burst)| Rate::new(count, Duration::from_secs(period), burst).to_string());
        assert_eq!(texts, ["10/s", "10/s burst 50", "30/min", "5/h", "100/d burst 10"]);
    }
}
