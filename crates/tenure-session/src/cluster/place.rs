//! Where a session is served, and the memory of that.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::id::{NodeId, SessionKey};

/// Most sessions of other nodes whose place is remembered.
const MOST_KNOWN: usize = 1 << 16;

/// Where a request for a session is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// At this node: the session is in memory here, or this node may wake it, or no node knows it.
    Here,
    /// At this node, which owns it.
    There(NodeId),
}

/// The owners of sessions that other nodes serve. An entry may be outdated: the node that it names then says so.
#[derive(Default)]
pub struct Places(Mutex<HashMap<SessionKey, NodeId, RandomState>>);

impl Places {
    /// The owner as it was last known.
    pub fn get(&self, key: &SessionKey) -> Option<NodeId> {
        self.0.lock().get(key).copied()
    }

    /// Remembers an owner. When there are too many, all are forgotten: each is found again by one read of the store.
    pub fn remember(&self, key: SessionKey, node: NodeId) {
        let mut known = self.0.lock();
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(key, node);
    }

    /// Forgets an owner.
    pub fn forget(&self, key: &SessionKey) {
        self.0.lock().remove(key);
    }
}

impl std::fmt::Debug for Places {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Places").field("known", &self.0.lock().len()).finish()
    }
}
