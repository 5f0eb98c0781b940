//! How much of a store an answer may look at, and how far it came.
//!
//! There is no index, so an answer that a viewer waits for looks at a share of the records, and says so. Commands of a user of the
//! machine look at everything.

use std::time::Duration;

use tokio::time::Instant;

/// Records that one answer looks at, at most.
const MOST_LOOKED_AT: usize = 20_000;

/// How long one answer looks, at most.
const LOOK_TIME: Duration = Duration::from_millis(150);

/// How much is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extent {
    /// A bounded share, for an answer that is waited for.
    Share,
    /// Everything.
    All,
}

/// One look at a store, over all kinds of records.
#[derive(Debug)]
pub(super) struct StoreLook {
    extent: Extent,
    began: Instant,
    looked_at: usize,
    is_cut: bool,
}

impl StoreLook {
    pub(super) fn begin(extent: Extent) -> Self {
        Self { extent, began: Instant::now(), looked_at: 0, is_cut: false }
    }

    /// Counts records that were looked at.
    pub(super) fn count(&mut self, records: usize) {
        self.looked_at += records;
    }

    /// Whether it may go on; asked only where there is more.
    pub(super) fn goes_on(&mut self) -> bool {
        let is_spent = self.looked_at >= MOST_LOOKED_AT || self.began.elapsed() >= LOOK_TIME;
        self.is_cut |= self.extent == Extent::Share && is_spent;
        !self.is_cut
    }

    /// How many were looked at, if it was cut.
    pub(super) fn cut_at(&self) -> Option<usize> {
        self.is_cut.then_some(self.looked_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_share_is_so_many_records_or_so_much_time_and_all_is_all() {
        let mut share = StoreLook::begin(Extent::Share);
        share.count(MOST_LOOKED_AT - 1);
        assert!(share.goes_on());
        assert_eq!(share.cut_at(), None);
        share.count(1);
        assert!(!share.goes_on());
        assert_eq!(share.cut_at(), Some(MOST_LOOKED_AT));

        let (mut slow, mut all) = (StoreLook::begin(Extent::Share), StoreLook::begin(Extent::All));
        all.count(10 * MOST_LOOKED_AT);
        tokio::time::advance(LOOK_TIME).await;
        assert!(!slow.goes_on() && all.goes_on());
        assert_eq!((slow.cut_at(), all.cut_at()), (Some(0), None));
    }
}
