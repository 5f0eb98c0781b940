//! The sessions that are in memory, by id.
//!
//! Split into shards so that looking one session up never waits for another being added.

use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::RwLock;
use std::hash::BuildHasher;

use super::session::Session;
use crate::id::SessionId;

const SHARDS: usize = 64;

type Shard = RwLock<HashMap<SessionId, Arc<Session>, RandomState>>;

pub(super) struct Live {
    shards: Box<[Shard]>,
    hasher: RandomState,
}

impl Live {
    pub(super) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Shard::default()).collect(), hasher: RandomState::default() }
    }

    pub(super) fn get(&self, id: &SessionId) -> Option<Arc<Session>> {
        self.shard(id).read().get(id).cloned()
    }

    pub(super) fn insert(&self, id: SessionId, session: Arc<Session>) {
        self.shard(&id).write().insert(id, session);
    }

    pub(super) fn remove(&self, id: &SessionId) -> Option<Arc<Session>> {
        self.shard(id).write().remove(id)
    }

    /// All of them, as of some moment during the call.
    pub(super) fn all(&self) -> Vec<Arc<Session>> {
        self.shards.iter().flat_map(|shard| shard.read().values().cloned().collect::<Vec<_>>()).collect()
    }

    fn shard(&self, id: &SessionId) -> &Shard {
        let hash = self.hasher.hash_one(id);
        &self.shards[usize::try_from(hash % SHARDS as u64).unwrap_or(0)]
    }
}
