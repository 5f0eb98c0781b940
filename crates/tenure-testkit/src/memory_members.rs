//! The records of nodes in memory, for several runtimes in one process.

use std::collections::BTreeMap;
use std::future::ready;

use bytes::Bytes;
use parking_lot::Mutex;
use tenure_session::id::NodeId;
use tenure_session::port::members::{Member, Members, Renewal};
use tenure_session::port::store::{StoreError, Stored, Version};

/// The records of all nodes.
#[derive(Default)]
pub struct MemoryMembers(Mutex<Table>);

#[derive(Default)]
struct Table {
    members: BTreeMap<NodeId, Member>,
    /// Renewals only grow, also those of a node that comes back under a removed name.
    last: u64,
}

impl MemoryMembers {
    /// No nodes.
    pub fn new() -> Self {
        Self::default()
    }

    fn renew_now(&self, node: NodeId, info: Bytes, last: Option<Renewal>) -> Result<Renewal, StoreError> {
        let mut table = self.0.lock();
        let current = table.members.get(&node).map(|member| member.renewal);
        if current != last {
            return Err(conflict(current));
        }
        table.last += 1;
        let renewal = Renewal(table.last);
        table.members.insert(node, Member { node, renewal, info, stored: None });
        Ok(renewal)
    }

    fn remove_now(&self, node: NodeId, seen: Renewal) -> Result<(), StoreError> {
        let mut table = self.0.lock();
        let current = table.members.get(&node).map(|member| member.renewal);
        if current != Some(seen) {
            return Err(conflict(current));
        }
        table.members.remove(&node);
        Ok(())
    }
}

fn conflict(current: Option<Renewal>) -> StoreError {
    StoreError::Conflict { current: current.map(|renewal| Version(renewal.0)) }
}

impl Members for MemoryMembers {
    fn renew(&self, node: NodeId, info: Bytes, last: Option<Renewal>) -> Stored<Renewal> {
        Box::pin(ready(self.renew_now(node, info, last)))
    }

    fn remove(&self, node: NodeId, seen: Renewal) -> Stored<()> {
        Box::pin(ready(self.remove_now(node, seen)))
    }

    fn members(&self) -> Stored<Vec<Member>> {
        Box::pin(ready(Ok(self.0.lock().members.values().cloned().collect())))
    }
}

impl std::fmt::Debug for MemoryMembers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryMembers").field("nodes", &self.0.lock().members.len()).finish()
    }
}
