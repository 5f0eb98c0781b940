//! Counts all records anew while the counts in force go on.
//!
//! In a cluster sessions begin, wake and end at other nodes, and those do not tell this one. So each node walks slowly through the
//! store, again and again, and then takes what it has counted in place of the old counts. Writers of this process count
//! in both. What other nodes do behind the walk is seen by the next one.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::counts::{CountedRecord, Counts, PAGE, RecordCounter};
use crate::id::{Principal, SessionKey};
use crate::port::store::{Record, Space, Store, StoreError};

/// Counts that are being made.
#[derive(Default)]
pub(super) struct Recount {
    /// The walk has come up to this key.
    counted: Option<SessionKey>,
    /// Keys that writers have announced before the walk came to them, and whether they are counted.
    settled: HashMap<SessionKey, bool, RandomState>,
    total: usize,
    by_principal: HashMap<Principal, usize, RandomState>,
}

impl Recount {
    fn has_passed(&self, key: &SessionKey) -> bool {
        self.counted.is_some_and(|last| *key <= last)
    }

    /// A record begins.
    pub(super) fn begins(&mut self, key: SessionKey, principal: &Principal) {
        if !self.has_passed(&key) {
            self.settled.insert(key, true);
        }
        self.add(principal);
    }

    /// A record ends.
    pub(super) fn ends(&mut self, key: SessionKey, principal: &Principal) {
        let is_counted = self.has_passed(&key) || self.settled.insert(key, false) == Some(true);
        if !is_counted {
            return;
        }
        self.total = self.total.saturating_sub(1);
        if let Some(held) = self.by_principal.get_mut(principal) {
            *held -= 1;
            if *held == 0 {
                self.by_principal.remove(principal);
            }
        }
    }

    fn found(&mut self, key: SessionKey, entry: Option<&CountedRecord>) {
        self.counted = Some(key);
        let is_settled = self.settled.remove(&key).is_some();
        if let Some(principal) = entry.and_then(|entry| entry.principal.as_ref())
            && !is_settled
        {
            self.add(principal);
        }
    }

    fn add(&mut self, principal: &Principal) {
        self.total += 1;
        *self.by_principal.entry_ref(principal).or_insert(0) += 1;
    }
}

impl Counts {
    /// The walk is over: its counts are in force.
    fn take_over(&mut self) {
        if let Some(recount) = self.recount.take() {
            (self.total, self.by_principal) = (recount.total, recount.by_principal);
        }
    }
}

impl RecordCounter {
    /// Goes on with the walk, or begins one, by one page. Returns whether it is over.
    ///
    /// # Errors
    /// When the store fails; the next call goes on from there.
    pub(crate) async fn recount_some<E: Into<CountedRecord>>(
        &self,
        store: &dyn Store,
        space: Space,
        entry_of: impl Fn(&Record) -> Option<E> + Send,
    ) -> Result<bool, StoreError> {
        let after = {
            let mut counts = self.counts.lock();
            if !counts.all_counted {
                // The first scan is still under way.
                return Ok(true);
            }
            counts.recount.get_or_insert_default().counted
        };
        let page = store.list(space, after, PAGE).await?;
        let mut counts = self.counts.lock();
        if page.is_empty() {
            counts.take_over();
            return Ok(true);
        }
        if let Some(recount) = &mut counts.recount {
            for (key, record) in &page {
                recount.found(*key, entry_of(record).map(Into::into).as_ref());
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> SessionKey {
        SessionKey::from_bytes([number; 16])
    }

    #[test]
    fn what_begins_and_ends_during_a_walk_is_counted_once() {
        let someone = Principal::named("someone");
        let entry = CountedRecord::from(someone.clone());
        let mut recount = Recount::default();
        recount.found(key(10), Some(&entry));
        assert_eq!(recount.total, 1);
        // Behind the walk.
        recount.begins(key(5), &someone);
        recount.ends(key(10), &someone);
        assert_eq!(recount.total, 1);
        // In front of it: the walk finds the record, or does not.
        recount.begins(key(20), &someone);
        recount.begins(key(21), &someone);
        recount.ends(key(21), &someone);
        recount.ends(key(30), &someone);
        recount.found(key(20), Some(&entry));
        recount.found(key(30), Some(&entry));
        recount.found(key(40), None);
        assert_eq!((recount.total, recount.by_principal.get(&someone)), (2, Some(&2)));
    }
}
