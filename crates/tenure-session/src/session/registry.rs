//! The sessions in memory, by id and by the hashed id that stores and operators use.
//!
//! Sharded, so that a lookup rarely waits for an insert.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::RwLock;

use crate::id::{SessionId, SessionKey};
use crate::session::live_session::Session;

const SHARDS: usize = 64;

type SessionShard = RwLock<HashMap<SessionId, Arc<Session>, RandomState>>;
type KeyShard = RwLock<HashMap<SessionKey, SessionId, RandomState>>;

pub(super) struct SessionRegistry {
    shards: Box<[SessionShard]>,
    keys: Box<[KeyShard]>,
    hasher: RandomState,
}

impl SessionRegistry {
    pub(super) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| SessionShard::default()).collect(),
            keys: (0..SHARDS).map(|_| KeyShard::default()).collect(),
            hasher: RandomState::default(),
        }
    }

    pub(super) fn get(&self, id: &SessionId) -> Option<Arc<Session>> {
        self.shard(id).read().get(id).cloned()
    }

    pub(super) fn by_key(&self, key: &SessionKey) -> Option<Arc<Session>> {
        let id = self.keys(key).read().get(key).copied()?;
        self.get(&id)
    }

    pub(super) fn insert(&self, id: SessionId, session: Arc<Session>) {
        let mut shard = self.shard(&id).write();
        self.keys(&session.key).write().insert(session.key, id);
        shard.insert(id, session);
    }

    /// Removes a session if `passes` says so. Lookups of its id wait meanwhile.
    pub(super) fn remove_if(
        &self,
        id: &SessionId,
        passes: impl FnOnce(&Arc<Session>) -> bool,
    ) -> Option<Arc<Session>> {
        let mut shard = self.shard(id).write();
        if !shard.get(id).is_some_and(passes) {
            return None;
        }
        let removed = shard.remove(id)?;
        // While the shard is still locked: otherwise this could remove the key of a session woken in between.
        self.keys(&removed.key).write().remove(&removed.key);
        Some(removed)
    }

    /// All sessions; each shard as of some moment during the call.
    pub(super) fn all(&self) -> Vec<Arc<Session>> {
        self.shards.iter().flat_map(|shard| shard.read().values().cloned().collect::<Vec<_>>()).collect()
    }

    pub(super) fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().len()).sum()
    }

    fn shard(&self, id: &SessionId) -> &SessionShard {
        let hash = self.hasher.hash_one(id);
        &self.shards[usize::try_from(hash % SHARDS as u64).unwrap_or(0)]
    }

    fn keys(&self, key: &SessionKey) -> &KeyShard {
        // Keys are hashes already: any of their bytes spreads them evenly.
        &self.keys[usize::from(key.as_bytes()[0]) % SHARDS]
    }
}
