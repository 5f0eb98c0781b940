//! The sessions that ended last.

use std::collections::VecDeque;

use parking_lot::Mutex;

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
}
