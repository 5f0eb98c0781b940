//! A bounded table of what is remembered of many callers.
//!
//! An entry that remembers nothing is as good as a new one, so it is removed: in rounds ([`RateTable::sweep`]), and before the table
//! would grow beyond its bound. In: a key. Out: its entry, which the caller may keep; a kept entry stays in the table.

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;

use super::Ticks;

/// Something that a table may forget.
pub trait Forgettable {
    /// Whether a new one would allow just as much.
    fn is_forgotten(&self, now: Ticks) -> bool;
}

impl Forgettable for super::RateCell {
    fn is_forgotten(&self, now: Ticks) -> bool {
        super::RateCell::is_forgotten(self, now)
    }
}

/// What is remembered of each caller.
pub struct RateTable<K, V> {
    entries: Mutex<HashMap<K, Arc<V>, RandomState>>,
    most: usize,
}

impl<K: Hash + Eq, V: Forgettable> RateTable<K, V> {
    /// A table with at most so many entries that are not held from outside.
    pub fn new(most: usize) -> Self {
        Self { entries: Mutex::default(), most: most.max(1) }
    }

    /// The entry of a key, or a new one.
    pub fn entry<Q>(&self, key: &Q, now: Ticks, make: impl FnOnce() -> V) -> Arc<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.get(key) {
            return Arc::clone(entry);
        }
        if entries.len() >= self.most {
            make_room(&mut entries, now);
        }
        let entry = Arc::new(make());
        entries.insert(key.to_owned(), Arc::clone(&entry));
        entry
    }

    /// The entry of a key, if there is one.
    pub fn find<Q>(&self, key: &Q) -> Option<Arc<V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.entries.lock().get(key).map(Arc::clone)
    }

    /// Removes the entries that remember nothing, and gives their memory back.
    pub fn sweep(&self, now: Ticks) {
        let mut entries = self.entries.lock();
        entries.retain(|_, entry| is_needed(entry, now));
        if entries.capacity() > 4 * entries.len().max(64) {
            entries.shrink_to_fit();
        }
    }

    /// How many entries there are.
    pub fn count(&self) -> usize {
        self.entries.lock().len()
    }

    /// How many entries there is memory for.
    pub fn capacity(&self) -> usize {
        self.entries.lock().capacity()
    }

    /// Some of the entries, at most `limit`.
    pub fn some(&self, limit: usize) -> Vec<(K, Arc<V>)>
    where
        K: Clone,
    {
        let entries = self.entries.lock();
        entries.iter().take(limit).map(|(key, entry)| (key.clone(), Arc::clone(entry))).collect()
    }
}

fn is_needed<V: Forgettable>(entry: &Arc<V>, now: Ticks) -> bool {
    // A caller that keeps it would go on with an entry that the table no longer has.
    Arc::strong_count(entry) > 1 || !entry.is_forgotten(now)
}

/// Removes what remembers nothing, and if that is little, an eighth of the rest: a client that fills the table on purpose could otherwise
/// keep all others out of it. Those that are forgotten get at most one more burst.
fn make_room<K: Hash + Eq, V: Forgettable>(entries: &mut HashMap<K, Arc<V>, RandomState>, now: Ticks) {
    let before = entries.len();
    entries.retain(|_, entry| is_needed(entry, now));
    let mut more = (before / 8).saturating_sub(before - entries.len());
    entries.retain(|_, entry| {
        let goes = more > 0 && Arc::strong_count(entry) == 1;
        more -= usize::from(goes);
        !goes
    });
}

impl<K, V> fmt::Debug for RateTable<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateTable").field("count", &self.entries.lock().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::rate::{Rate, RateCell};

    #[test]
    fn an_entry_is_forgotten_when_it_allows_as_much_as_a_new_one_and_not_while_it_is_kept() {
        let (table, rate) = (RateTable::<String, RateCell>::new(10), Rate::new(1, Duration::from_secs(1), 1));
        let kept = table.entry("kept", Ticks(0), RateCell::default);
        assert!(kept.check(&rate, Ticks(0), 1).is_ok());
        assert!(table.entry("used", Ticks(0), RateCell::default).check(&rate, Ticks(0), 1).is_ok());
        drop(table.entry("new", Ticks(0), RateCell::default));
        table.sweep(Ticks(1));
        assert!(table.find("new").is_none() && table.find("used").is_some());
        table.sweep(Ticks(1_000_000_000));
        assert!(table.find("used").is_none() && table.find("kept").is_some());
        drop(kept);
        table.sweep(Ticks(1_000_000_000));
        assert_eq!(table.count(), 0);
    }

    #[test]
    fn the_memory_of_entries_that_are_forgotten_is_given_back() {
        let table = RateTable::<String, RateCell>::new(100_000);
        for number in 0..50_000 {
            table.entry(number.to_string().as_str(), Ticks(0), RateCell::default);
        }
        assert!(table.capacity() >= 50_000);
        table.sweep(Ticks(0));
        assert_eq!((table.count(), table.capacity()), (0, 0));
    }

    #[test]
    fn a_table_does_not_grow_beyond_its_bound_and_takes_new_callers_when_it_is_full() {
        let (table, rate) = (RateTable::<String, RateCell>::new(1000), Rate::per_second(1));
        for number in 0..10_000 {
            let entry = table.entry(number.to_string().as_str(), Ticks(0), RateCell::default);
            assert!(entry.check(&rate, Ticks(0), 1).is_ok());
            assert!(table.count() <= 1000);
        }
        assert!(table.count() > 800, "only as many as necessary are forgotten");
    }
}
