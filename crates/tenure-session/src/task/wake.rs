//! The first touch of a task that an earlier process left.

use std::sync::{Arc, Weak};

use hashbrown::hash_map::Entry;
use tenure_protocol::{Error, Reason, RpcError};

use super::TaskId;
use super::live::Live;
use super::record::{End, TaskRecord};
use super::tasks::{Found, Inner, Whose, label, not_found, record_key, unavailable};
use crate::id::SessionKey;
use crate::port::store::{Expected, StoreError};

/// How often a record is looked at whose end is in doubt.
const TRIES: usize = 8;

impl Inner {
    /// A task that nobody here is at work on. If it has not ended, its process has, and with it the handler, what it
    /// knew and whatever it asked. If its call was kept, it is carried on; otherwise the task failed, and that is
    /// written down before anybody hears of it.
    pub(super) async fn wake(&self, whose: &Whose, id: TaskId, key: SessionKey) -> Result<Found, Error> {
        for _ in 0..TRIES {
            let now = self.clock.now();
            let (version, record) = self.kept(key).await?.ok_or_else(not_found)?;
            let head = &record.head;
            // The key says both already, as far as a hash can.
            if head.owner() != whose.owner || head.route() != whose.route || head.expires() <= now {
                return Err(not_found());
            }
            if head.status.is_terminal() {
                return Ok(Found::Kept(Box::new(record)));
            }
            if head.params.is_some()
                && let Some(carry_on) = self.carry_on.get()
            {
                let live = Arc::new(Live::new(id, key, head.clone(), version, Weak::clone(&self.me)));
                // Others may have found it at the same time; one of them carries it on.
                let live = match self.live.lock().entry(key) {
                    Entry::Occupied(there) => return Ok(Found::Live(Arc::clone(there.get()))),
                    Entry::Vacant(place) => Arc::clone(place.insert(live)),
                };
                tracing::info!(task = %label(key), tool = %live.head.tool, "task of an earlier process carried on");
                carry_on(Arc::clone(&live));
                return Ok(Found::Live(live));
            }
            let why = "The server ended before the task did";
            let end = End::Failed(RpcError::of(Reason::Interrupted, why));
            let record = TaskRecord::ended(head.clone(), &end, now);
            let deadline = Some(record.head.expires());
            let written =
                self.store.put(record_key(key), record.encode(), Expected::Version(version), deadline);
            match written.await {
                Ok(_) => {
                    tracing::info!(task = %label(key), tool = %record.head.tool, "task found interrupted");
                    self.tell(key);
                    return Ok(Found::Kept(Box::new(record)));
                }
                // Somebody else found it too; or it is done, and only the answer was lost.
                Err(StoreError::Conflict { .. } | StoreError::Unknown) => {}
                Err(error) => return Err(unavailable(error)),
            }
        }
        Err(unavailable(StoreError::Unknown))
    }
}
