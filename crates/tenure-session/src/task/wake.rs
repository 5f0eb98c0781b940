//! Wakes a task that an earlier process left: when a client first asks for it.

use std::sync::{Arc, Weak};

use hashbrown::hash_map::Entry;
use tenure_protocol::{Error, Reason, RpcError};

use super::TaskId;
use super::live::LiveTask;
use super::record::{TaskEnd, TaskHead, TaskRecord};
use super::tasks::{FoundTask, TasksInner, Whose, label, not_found, record_key, unavailable};
use crate::id::SessionKey;
use crate::port::store::{Expected, StoreError, Version};

/// How often a record is read again while it is unclear whether its end was written.
const TRIES: usize = 8;

impl TasksInner {
    /// Finds a task that does not run in this process. If it has not ended, its process has, and its handler and its
    /// questions are lost. If the params of its call were kept, the call is started again; otherwise the task has
    /// failed, and that is written to the store before the client learns of it.
    pub(super) async fn wake(&self, whose: &Whose, id: TaskId, key: SessionKey) -> Result<FoundTask, Error> {
        for _ in 0..TRIES {
            let now = self.clock.now();
            let (version, record) = self.kept(key).await?.ok_or_else(not_found)?;
            let head = &record.head;
            // The key is a hash of both, so they differ only if two hashes collide.
            if head.owner() != whose.owner || head.route() != whose.route || head.expires() <= now {
                return Err(not_found());
            }
            if head.status.is_terminal() {
                return Ok(FoundTask::Kept(Box::new(record)));
            }
            if let Some(roster) = self.roster.get() {
                roster.confirmed().await?;
                if let Some(node) = head.node().filter(|node| *node != roster.node())
                    && !roster.find_gone(node).await.map_err(unavailable)?
                {
                    return Ok(FoundTask::Elsewhere(node, Box::new(record)));
                }
            }
            if head.params.is_some()
                && let Some(carry_on) = self.carry_on.get()
            {
                let Some((head, version)) = self.take_over(key, head, version).await? else { continue };
                let live = Arc::new(LiveTask::new(id, key, head, version, Weak::clone(&self.me)));
                // Several requests may find the task at the same time; only the first starts the call again.
                let live = match self.live.lock().entry(key) {
                    Entry::Occupied(there) => return Ok(FoundTask::Live(Arc::clone(there.get()))),
                    Entry::Vacant(place) => Arc::clone(place.insert(live)),
                };
                tracing::info!(task = %label(key), tool = %live.head.tool, "started the call of an earlier process's task again");
                carry_on(Arc::clone(&live));
                return Ok(FoundTask::Live(live));
            }
            let why = "The server ended before the task did";
            let end = TaskEnd::Failed(RpcError::of(Reason::Interrupted, why));
            let record = TaskRecord::ended(head.clone(), &end, now);
            let deadline = Some(record.head.expires());
            let written =
                self.store.put(record_key(key), record.encode(), Expected::Version(version), deadline);
            match written.await {
                Ok(_) => {
                    tracing::info!(task = %label(key), tool = %record.head.tool, "task was interrupted by the end of its process");
                    self.tell(key);
                    return Ok(FoundTask::Kept(Box::new(record)));
                }
                // Another process wrote first, or the write succeeded and only its answer was lost. Read again.
                Err(StoreError::Conflict { .. } | StoreError::Unknown) => {}
                Err(error) => return Err(unavailable(error)),
            }
        }
        Err(unavailable(StoreError::Unknown))
    }

    /// In a cluster: writes this node into the record of a task before its call is started again, so that no other node
    /// starts it too. `None` if another writer came first, or may have.
    async fn take_over(
        &self,
        key: SessionKey,
        head: &TaskHead,
        version: Version,
    ) -> Result<Option<(TaskHead, Version)>, Error> {
        let Some(roster) = self.roster.get() else { return Ok(Some((head.clone(), version))) };
        let head = TaskHead { node: Some(roster.node().hex()), ..head.clone() };
        let (value, deadline) = (TaskRecord::begun(head.clone()).encode(), Some(head.expires()));
        match self.store.put(record_key(key), value, Expected::Version(version), deadline).await {
            Ok(version) => Ok(Some((head, version))),
            Err(StoreError::Conflict { .. } | StoreError::Unknown) => Ok(None),
            Err(error) => Err(unavailable(error)),
        }
    }
}
