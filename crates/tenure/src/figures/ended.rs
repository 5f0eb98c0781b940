//! The sessions that ended last.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tenure_session::port::clock::Time;

use super::view::EndedRow;

/// The most that are kept.
const MOST: usize = 500;

/// The sessions that ended last.
#[derive(Debug, Default)]
pub(super) struct EndedSessions(Mutex<VecDeque<EndedRow>>);

impl EndedSessions {
    pub(super) fn push(&self, row: EndedRow) {
        let mut rows = self.0.lock();
        if rows.len() == MOST {
            rows.pop_front();
        }
        rows.push_back(row);
    }

    /// The newest first.
    pub(super) fn last(&self, limit: usize) -> Vec<EndedRow> {
        self.0.lock().iter().rev().take(limit).cloned().collect()
    }

    /// How many of them ended since then.
    pub(super) fn since(&self, since: Time) -> usize {
        self.0.lock().iter().filter(|row| row.ended >= since.0).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_and_counted_from_a_time_on() {
        let ended = EndedSessions::default();
        for at in 0..2 * MOST as u64 {
            let row = EndedRow { key: at.to_string(), ended: at, ..EndedRow::default() };
            ended.push(row);
        }
        let newest: Vec<_> = ended.last(2).into_iter().map(|row| row.ended).collect();
        assert_eq!(newest, [999, 998]);
        assert_eq!((ended.since(Time(990)), ended.since(Time(0)), ended.since(Time(1000))), (10, MOST, 0));
    }
}
