//! Sessions that this node may own in the store but does not have: a release failed, the outcome of a claim is unknown,
//! a new session could not be taken back, the log of an ended session could not be dropped, or a session was given up although this
//! node kept its name.
//!
//! Such a session wakes when it is used, but it would not expire before, and neither would its tombstone: the other nodes
//! see a living owner. So it is claimed once more, which settles all earlier writes, and released, until that works. If it
//! has ended, its log is dropped.

use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashSet;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::backoff::Backoff;
use crate::id::SessionKey;
use crate::port::store::{RecordKey, StoreError};
use crate::record::StoredSession;
use crate::session::claim::NotClaimed;
use crate::session::sessions::SessionRuntime;

/// Most sessions that are remembered. Others stay as they are until they are used, or until this node ends.
const MOST: usize = 1 << 16;

/// Sessions that are given back in one round.
const ROUND: usize = 256;

/// First and longest pause before a round.
const FIRST: Duration = Duration::from_secs(1);
const LAST: Duration = Duration::from_secs(30);

/// The sessions that are to be given back.
#[derive(Default)]
pub(super) struct Unreleased {
    keys: Mutex<HashSet<SessionKey, RandomState>>,
    added: Notify,
}

impl Unreleased {
    /// Gives a session back later, unless it is in memory by then.
    pub(super) fn add(&self, key: SessionKey) {
        let mut keys = self.keys.lock();
        if keys.len() < MOST {
            keys.insert(key);
            self.added.notify_one();
        } else {
            tracing::warn!(session = %key.label(), "too many sessions wait to be given back; this one is free when it is used, or when this node ends");
        }
    }

    fn some(&self) -> Vec<SessionKey> {
        self.keys.lock().iter().take(ROUND).copied().collect()
    }

    fn is_empty(&self) -> bool {
        self.keys.lock().is_empty()
    }
}

impl SessionRuntime {
    /// Starts the loop that gives sessions back.
    pub(super) fn watch_unreleased(self: &Arc<Self>) {
        let (stop, owner) = (self.stop.clone(), Arc::clone(self));
        let watch = move || {
            let (stop, owner) = (owner.stop.clone(), Arc::clone(&owner));
            async move {
                stop.run_until_cancelled(owner.give_back_all()).await;
            }
        };
        self.tasks.spawn(self.loops.keep("sessions to give back", stop, watch));
    }

    async fn give_back_all(self: Arc<Self>) {
        loop {
            let mut backoff = Backoff::new(FIRST, LAST);
            while !self.unreleased.is_empty() {
                tokio::time::sleep(backoff.next()).await;
                for key in self.unreleased.some() {
                    // First: it may be added again meanwhile.
                    self.unreleased.keys.lock().remove(&key);
                    if let Err(error) = self.settle_owner(key).await {
                        tracing::debug!(session = %key.label(), %error, "could not give a session back");
                        self.unreleased.add(key);
                    }
                }
            }
            self.unreleased.added.notified().await;
        }
    }

    /// Makes sure that a session that is not in memory here has no owner, or another living node as its owner.
    async fn settle_owner(self: &Arc<Self>, key: SessionKey) -> Result<(), StoreError> {
        let Some(_hold) = self.try_hold(key) else {
            return match self.awake_by_key(&key) {
                // It is given back when it sleeps.
                Some(_) => Ok(()),
                // A wake or an end that is under way may fail before it claims anything, and gives back only what it claimed.
                None => Err(StoreError::Busy),
            };
        };
        let claimed = match self.claim(key).await {
            Ok(claimed) => claimed,
            Err(NotClaimed::Elsewhere) => return Ok(()),
            Err(NotClaimed::Again(error)) => return Err(error),
            Err(NotClaimed::Failed(_)) => return Err(StoreError::Busy),
        };
        let record = self.store.get(RecordKey::session(key)).await?;
        let has_ended = record.is_none_or(|record| {
            matches!(StoredSession::decode(&record.value), Ok(StoredSession::Tombstone(_)))
        });
        if has_ended {
            return self.store.drop_session(key).await;
        }
        match self.store.release(key, claimed.epoch).await {
            Ok(()) | Err(StoreError::Fenced) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
