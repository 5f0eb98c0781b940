//! The loops that handle records past their deadline: one for each kind of record.
//!
//! The store lists the records that are due; no others are read. The pause between two rounds does not matter to
//! clients, because a record counts as expired from its deadline on. Before its first round a loop counts the records
//! that earlier processes left. A record that fails, or at which the loop panics, does not stop the others. In:
//! [`Swept`], which knows one kind of record. Out: changes of the store.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cluster::Roster;
use crate::port::clock::{Clock, Time};
use crate::port::store::{Expected, Record, RecordKey, Space, Store, StoreError, Version};
use crate::supervise::{Avoided, Loops};

/// Most records that are listed at a time.
const PAGE: usize = 256;

/// A list is at most this many times as long when several nodes share the work.
const MOST_SHARES: usize = 16;

/// A list is at most this many times as long when records stay due, such as those that only a newer version can read.
const MOST_PAGES: usize = 16;

/// Delay before an unreadable record is handled again.
const UNREADABLE_AGAIN: Duration = Duration::from_secs(60 * 60);

/// The owner of one kind of record.
pub(crate) trait Swept: Send + Sync + 'static {
    /// The records.
    const SPACE: Space;
    /// The name of the loop for operators.
    const LOOP: &'static str;

    /// The pause between two rounds.
    fn every(&self) -> Duration;

    /// The store, the clock, and the records at which the loop panicked.
    fn parts(&self) -> (&dyn Store, &dyn Clock, &Avoided<RecordKey>);

    /// The nodes that share the store; `None` if this process is the only one.
    fn roster(&self) -> Option<&Roster> {
        None
    }

    /// Whether this process has the record in memory, and so is the one that knows its uses.
    fn is_here(&self, key: &RecordKey) -> bool {
        let _ = key;
        false
    }

    /// Counts the records that earlier processes left. After the first success this does nothing.
    fn count(&self) -> impl Future<Output = Result<(), StoreError>> + Send {
        std::future::ready(Ok(()))
    }

    /// Handles a record that was listed with this version. Returns whether it is no longer due. A conflict means that
    /// another writer came first.
    fn handle(
        self: &Arc<Self>,
        key: RecordKey,
        version: Version,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;
}

/// Starts the loop. It runs until it is stopped, or its owner is dropped.
pub(crate) fn start<S: Swept>(swept: &Arc<S>, tasks: &TaskTracker, stop: &CancellationToken, loops: &Loops) {
    let (swept, stopped) = (Arc::downgrade(swept), stop.clone());
    let begin = move || {
        let (swept, stop) = (Weak::clone(&swept), stopped.clone());
        async move {
            stop.run_until_cancelled(run(swept)).await;
        }
    };
    tasks.spawn(loops.keep(S::LOOP, stop.clone(), begin));
}

async fn run<S: Swept>(swept: Weak<S>) {
    let mut pages = 1;
    while let Some(owner) = swept.upgrade() {
        if let Err(error) = owner.count().await {
            tracing::warn!(name = S::LOOP, %error, "could not count the records in the store; retrying later");
        }
        if let Err(error) = sweep(&owner, &mut pages).await {
            tracing::warn!(name = S::LOOP, %error, "could not remove expired records; retrying later");
        }
        let pause = owner.every();
        drop(owner);
        tokio::time::sleep(pause).await;
    }
}

/// Handles what is due, up to so many pages at a time. If all of them stay due, the next round lists more, to see what is behind
/// them.
async fn sweep<S: Swept>(owner: &Arc<S>, pages: &mut usize) -> Result<(), StoreError> {
    let (store, clock, avoided) = owner.parts();
    if owner.roster().is_some_and(|roster| !roster.is_confirmed()) {
        return Ok(());
    }
    loop {
        // The records of the other nodes are listed too, so the page has room for them.
        let (index, of) = owner.roster().map_or((0, 1), Roster::share);
        let page = *pages * PAGE * usize::try_from(of).unwrap_or(1).min(MOST_SHARES);
        let due = store.expired(S::SPACE, clock.now(), page).await?;
        let is_full = due.len() == page;
        let (mut has_moved, mut failed) = (false, None);
        for (key, version) in due {
            if of > 1 && share_of(&key, of) != index && !owner.is_here(&key) {
                continue;
            }
            let Some(_in_hand) = avoided.take(key) else { continue };
            match owner.handle(key, version).await {
                Ok(is_done) => has_moved |= is_done,
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => failed = Some(error),
            }
        }
        // Without progress the store would list the same page again.
        if !(is_full && has_moved) {
            *pages = if is_full { (*pages * 2).min(MOST_PAGES) } else { (*pages / 2).max(1) };
            return failed.map_or(Ok(()), Err);
        }
    }
}

/// Which part of the work a record belongs to.
fn share_of(key: &RecordKey, of: u32) -> u32 {
    // Keys are hashes already; those of states begin with bytes of their owner.
    let [.., a, b, c, d] = *key.key.as_bytes();
    u32::from_be_bytes([a, b, c, d]) % of
}

/// Reads a record that was listed as due with this version. `None` if it has changed since, or is no longer due. The
/// caller's writes expect the same version.
pub(crate) async fn due_record(
    store: &dyn Store,
    key: RecordKey,
    version: Version,
    now: Time,
) -> Result<Option<Record>, StoreError> {
    let is_due = |record: &Record| record.deadline.is_some_and(|deadline| deadline <= now);
    Ok(store.get(key).await?.filter(|record| record.version == version && is_due(record)))
}

/// Leaves a record that cannot be read as it is, but postpones it, so that it does not block the records behind it.
pub(crate) async fn postpone(
    store: &dyn Store,
    key: RecordKey,
    unreadable: Record,
    now: Time,
) -> Result<bool, StoreError> {
    let (expected, later) = (Expected::Version(unreadable.version), now.after(UNREADABLE_AGAIN));
    store.put(key, unreadable.value, expected, Some(later)).await.map(|_| true)
}
