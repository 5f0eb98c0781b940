//! Merges the runs of tables and the journals: the newest entry of every key, in order.
//!
//! Every source is sorted by key, and for one key from new to old. The merge takes the smallest of their next entries
//! and skips further entries of the same key.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;

use fjall::Slice;

use super::RawEntry;
use super::table::Inspected;

type EntrySource<'a> = Box<dyn Iterator<Item = io::Result<RawEntry>> + 'a>;
type RecentEntry<'a> = (&'a (Slice, Reverse<u64>), &'a Option<Slice>);

/// The newest entry of every key of a keyspace, with removed keys.
pub(in crate::disk) struct Merged<'a> {
    sources: Vec<EntrySource<'a>>,
    /// The next entry of every source.
    heads: BinaryHeap<MergeHead>,
    last: Option<Slice>,
    failed: Option<io::Error>,
}

/// The next entry of a source. The heap pops the greatest: the smallest key, and of that key the newest entry.
struct MergeHead {
    order: Reverse<(Slice, Reverse<u64>)>,
    value: Option<Slice>,
    source: usize,
}

impl PartialEq for MergeHead {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for MergeHead {}

impl PartialOrd for MergeHead {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for MergeHead {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order.cmp(&other.order)
    }
}

impl<'a> Merged<'a> {
    /// Reads the tables of a run one after the other, so that only one of them is open.
    pub(super) fn new(
        runs: impl Iterator<Item = &'a [Inspected]>,
        recent: impl Iterator<Item = RecentEntry<'a>> + 'a,
    ) -> Self {
        let mut sources: Vec<EntrySource<'a>> = Vec::new();
        for run in runs {
            sources.push(Box::new(run.iter().flat_map(Inspected::entries)));
        }
        sources.push(Box::new(recent.map(|((key, Reverse(seqno)), value)| {
            Ok(RawEntry { key: key.clone(), seqno: *seqno, value: value.clone() })
        })));
        let mut merged = Self { sources, heads: BinaryHeap::new(), last: None, failed: None };
        for source in 0..merged.sources.len() {
            merged.pull(source);
        }
        merged
    }

    fn pull(&mut self, source: usize) {
        match self.sources[source].next() {
            Some(Ok(RawEntry { key, seqno, value })) => {
                self.heads.push(MergeHead { order: Reverse((key, Reverse(seqno))), value, source });
            }
            Some(Err(error)) => self.failed = Some(error),
            None => {}
        }
    }
}

impl Iterator for Merged<'_> {
    type Item = io::Result<RawEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(error) = self.failed.take() {
                self.heads.clear();
                return Some(Err(error));
            }
            let MergeHead { order: Reverse((key, Reverse(seqno))), value, source } = self.heads.pop()?;
            self.pull(source);
            if self.last.as_ref() == Some(&key) {
                continue;
            }
            self.last = Some(key.clone());
            return Some(Ok(RawEntry { key, seqno, value }));
        }
    }
}
