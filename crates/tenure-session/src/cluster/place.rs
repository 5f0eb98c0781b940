//! Where a session is served, and the memory of that.
//!
//! An entry also says whose session it is: to everybody else the session is nowhere.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::id::{NodeId, Principal, Route, SessionKey};

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

/// The nodes of sessions that other nodes serve. An entry may be outdated: the node that it names then says so.
#[derive(Default)]
pub struct Places(Mutex<HashMap<SessionKey, KnownPlace, RandomState>>);

/// Where a session was.
struct KnownPlace {
    node: NodeId,
    /// Whose it is, and at which endpoint.
    of: (Principal, Route),
}

impl Places {
    /// The node that has a session of this principal at this endpoint, as it was last known.
    pub fn get(&self, key: &SessionKey, principal: &Principal, route: &Route) -> Option<NodeId> {
        let known = self.0.lock();
        let place = known.get(key)?;
        (place.of.0.is_same_client(principal) && place.of.1 == *route).then_some(place.node)
    }

    /// Remembers where a session is. When there are too many, all are forgotten: each is found again by two reads of the
    /// store.
    pub fn remember(&self, key: SessionKey, node: NodeId, of: (Principal, Route)) {
        let mut known = self.0.lock();
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(key, KnownPlace { node, of });
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
