//! A register that many writers change by compare-and-swap, and the check of what they were told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tenure_session::port::store::{Expected, RecordKey, Store, StoreError, Version};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// One write that was acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct Acknowledged {
    /// The version that it replaced.
    pub(crate) replaced: Option<Version>,
    pub(crate) version: Version,
    pub(crate) value: Bytes,
}

/// Writers under way.
pub(crate) struct Writers {
    tasks: JoinSet<Vec<Acknowledged>>,
    stop: Arc<AtomicBool>,
    count: watch::Receiver<u64>,
}

impl Writers {
    /// Starts a writer on each store.
    pub(crate) fn start<S: Store>(stores: &[Arc<S>], key: RecordKey) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, count) = watch::channel(0);
        let sender = Arc::new(sender);
        let mut tasks = JoinSet::new();
        for (writer, store) in stores.iter().enumerate() {
            let (store, stop, sender) = (Arc::clone(store), Arc::clone(&stop), Arc::clone(&sender));
            tasks.spawn(async move {
                let (mut acknowledged, mut number) = (Vec::new(), 0u64);
                while !stop.load(Ordering::Relaxed) {
                    let Ok(current) = store.get(key).await else { continue };
                    let expected =
                        current.map_or(Expected::Absent, |record| Expected::Version(record.version));
                    number += 1;
                    let value = Bytes::from(format!("{writer}/{number}"));
                    match store.put(key, value.clone(), expected, None).await {
                        Ok(version) => {
                            let replaced = match expected {
                                Expected::Absent => None,
                                Expected::Version(version) => Some(version),
                            };
                            acknowledged.push(Acknowledged { replaced, version, value });
                            sender.send_modify(|count| *count += 1);
                        }
                        // The next read says what became of it.
                        Err(StoreError::Conflict { .. } | StoreError::Busy | StoreError::Unknown) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                acknowledged
            });
        }
        Self { tasks, stop, count }
    }

    /// Waits until so many more writes were acknowledged. Returns how long that took.
    pub(crate) async fn more(&mut self, writes: u64) -> Duration {
        let began = tokio::time::Instant::now();
        let wanted = *self.count.borrow() + writes;
        let reached = self.count.wait_for(|count| *count >= wanted);
        tokio::time::timeout(Duration::from_secs(40), reached).await.expect("in time").expect("writers");
        began.elapsed()
    }

    /// Ends the writers. Returns all that was acknowledged, by version.
    pub(crate) async fn end(self) -> Vec<Acknowledged> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all: Vec<Acknowledged> = self.tasks.join_all().await.into_iter().flatten().collect();
        all.sort_unstable_by_key(|write| write.version);
        all
    }
}

/// Checks that no two acknowledged writes replaced the same version, and that each of them is in the one order of versions.
pub(crate) fn check(all: &[Acknowledged], last: (Version, &Bytes)) {
    let mut replaced: BTreeMap<Option<Version>, &Acknowledged> = BTreeMap::new();
    for write in all {
        assert!(write.replaced < Some(write.version), "{write:?} goes back");
        if let Some(other) = replaced.insert(write.replaced, write) {
            panic!("two winners: {other:?} and {write:?}");
        }
    }
    for pair in all.windows(2) {
        assert!(pair[0].version < pair[1].version, "one version twice: {pair:?}");
        // Whatever came between two writes that were acknowledged, the later one replaced something that is not older
        // than the earlier one: otherwise the earlier one was lost.
        assert!(pair[1].replaced >= Some(pair[0].version), "a write was lost: {pair:?}");
    }
    let newest = all.last().expect("some writes");
    assert!(last.0 >= newest.version, "the last write was lost");
    if last.0 == newest.version {
        assert_eq!(*last.1, newest.value);
    }
}
