//! Times that were measured, and their spread.

use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;

/// Times of one kind.
#[derive(Debug, Default)]
pub(crate) struct Times(Mutex<Vec<Duration>>);

impl Times {
    pub(crate) fn add(&self, time: Duration) {
        self.0.lock().push(time);
    }

    /// The time that a share of all times, in percent, does not exceed.
    pub(crate) fn percentile(&self, percent: usize) -> Option<Duration> {
        let mut times = self.0.lock().clone();
        times.sort_unstable();
        // The longest stands for every percentile that lies beyond it.
        times.get((times.len() * percent / 100).min(times.len().checked_sub(1)?)).copied()
    }

    pub(crate) fn longest(&self) -> Option<Duration> {
        self.percentile(100)
    }

    /// The median and the longest.
    pub(crate) fn spread(&self) -> String {
        match (self.percentile(50), self.longest()) {
            (Some(median), Some(longest)) => format!("{}, {}", Shown(median), Shown(longest)),
            _ => "–".to_owned(),
        }
    }

    /// The median, the 99th percentile and how many times there are.
    pub(crate) fn tail(&self) -> String {
        match (self.percentile(50), self.percentile(99)) {
            (Some(median), Some(tail)) => {
                format!("{}, {}, of {}", Shown(median), Shown(tail), self.0.lock().len())
            }
            _ => "–".to_owned(),
        }
    }
}

/// The times of a cluster.
#[derive(Debug, Default)]
pub(crate) struct ClusterTimes {
    /// From the kill of a node to the first answer in a session of that node, through another node.
    pub(crate) takeovers: Times,
    /// From the answer to a note to its update, at a client of the owner, and of another node.
    pub(crate) near: Times,
    pub(crate) far: Times,
    /// The longest time between two answers around the kill of a server of the engine.
    pub(crate) elections: Times,
    /// From SIGTERM to the end of the process.
    pub(crate) ends: Times,
}

impl ClusterTimes {
    /// The rows of the summary.
    pub(crate) fn rows(&self) -> Vec<(&'static str, String)> {
        vec![
            ("kill to first answer, median and p99", self.takeovers.tail()),
            ("note to update at its node, same", self.near.tail()),
            ("note to update at another node, same", self.far.tail()),
            ("longest gap at an engine kill, same", self.elections.tail()),
            ("SIGTERM to end, median and longest", self.ends.spread()),
        ]
    }
}

struct Shown(Duration);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_secs_f64() * 1000.0;
        if ms < 10.0 { write!(f, "{ms:.1} ms") } else { write!(f, "{ms:.0} ms") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_sorted_times() {
        let times = Times::default();
        assert_eq!((times.percentile(50), times.spread()), (None, "–".to_owned()));
        for ms in [5, 1, 4, 2, 300] {
            times.add(Duration::from_millis(ms));
        }
        assert_eq!(times.percentile(50), Some(Duration::from_millis(4)));
        assert_eq!(times.longest(), Some(Duration::from_millis(300)));
        assert_eq!(times.spread(), "4.0 ms, 300 ms");
        assert_eq!(times.tail(), "4.0 ms, 300 ms, of 5");
    }
}
