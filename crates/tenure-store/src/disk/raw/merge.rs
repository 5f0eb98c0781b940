//! Brings runs of tables and the journals together: the newest entry of every key, in order.
//!
//! Every source is in order by itself, by key and then from new to old. The smallest of their next entries is
//! taken, and further ones of the same key are passed over.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;

use fjall::Slice;

use super::Entry;
use super::table::Inspected;

type Source<'a> = Box<dyn Iterator<Item = io::Result<Entry>> + 'a>;
type RecentEntry<'a> = (&'a (Slice, Reverse<u64>), &'a Option<Slice>);

/// The newest entry of every key of a keyspace, also if that says that it was removed.
pub(in crate::disk) struct Merged<'a> {
    sources: Vec<Source<'a>>,
    /// The next entry of every source.
    heads: BinaryHeap<Head>,
    last: Option<Slice>,
    failed: Option<io::Error>,
}

/// The next entry of a source. Of all the greatest comes first: the smallest key, and of that the newest.
struct Head {
    order: Reverse<(Slice, Reverse<u64>)>,
    value: Option<Slice>,
    source: usize,
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Head {}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order.cmp(&other.order)
    }
}

impl<'a> Merged<'a> {
    /// The tables of a run are read one after the other, so that only one of them is open.
    pub(super) fn new(
        runs: impl Iterator<Item = &'a [Inspected]>,
        recent: impl Iterator<Item = RecentEntry<'a>> + 'a,
    ) -> Self {
        let mut sources: Vec<Source<'a>> = Vec::new();
        for run in runs {
            sources.push(Box::new(run.iter().flat_map(Inspected::entries)));
        }
        sources.push(Box::new(recent.map(|((key, Reverse(seqno)), value)| {
            Ok(Entry { key: key.clone(), seqno: *seqno, value: value.clone() })
        })));
        let mut merged = Self { sources, heads: BinaryHeap::new(), last: None, failed: None };
        for source in 0..merged.sources.len() {
            merged.pull(source);
        }
        merged
    }

    fn pull(&mut self, source: usize) {
        match self.sources[source].next() {
            Some(Ok(Entry { key, seqno, value })) => {
                self.heads.push(Head { order: Reverse((key, Reverse(seqno))), value, source });
            }
            Some(Err(error)) => self.failed = Some(error),
            None => {}
        }
    }
}

impl Iterator for Merged<'_> {
    type Item = io::Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(error) = self.failed.take() {
                self.heads.clear();
                return Some(Err(error));
            }
            let Head { order: Reverse((key, Reverse(seqno))), value, source } = self.heads.pop()?;
            self.pull(source);
            if self.last.as_ref() == Some(&key) {
                continue;
            }
            self.last = Some(key.clone());
            return Some(Ok(Entry { key, seqno, value }));
        }
    }
}
