//! Where a session is served: at this node, or at the living node that owns it.
//!
//! Without a cluster it is always here, and the question costs nothing.

use std::sync::Arc;

use tenure_protocol::Error;

use crate::cluster::Place;
use crate::id::{NodeId, Principal, Route, SessionId, SessionKey};
use crate::port::store::{Record, RecordKey, StoreError};
use crate::record::{StoredSession, UnreadableRecord};
use crate::session::drain::DrainStage;
use crate::session::sessions::{SessionRuntime, Sessions, store_failed};

impl Sessions {
    /// Where a request for a session of this principal is served. In a cluster it waits until this node may act, so that its
    /// answer is true, also the answer that no such session exists.
    ///
    /// A session of somebody else is here, like one that never was: nothing is said about its node, and nothing is waited
    /// for.
    ///
    /// # Errors
    /// When this node has no contact with the cluster, or the store does not answer.
    ///
    /// # Cancel safety
    /// Nothing happens.
    pub async fn place(&self, id: &SessionId, principal: &Principal) -> Result<Place, Error> {
        let Some(roster) = &self.0.roster else { return Ok(Place::Here) };
        // First: a node that comes back under another name has lost its sessions.
        roster.confirmed().await?;
        if self.live(id, principal).is_some() {
            return Ok(Place::Here);
        }
        let key = id.key();
        if let Some(node) = self.0.places.get(&key, principal, &self.1)
            && roster.is_listed(node)
        {
            return Ok(Place::There(node));
        }
        // Whatever else is known of it, a session that is not theirs costs as many reads as one that never was.
        let record = self.0.store.get(RecordKey::session(key)).await.map_err(store_failed)?;
        if record.is_none_or(|record| !may_be_of(&record, principal, &self.1)) {
            return Ok(Place::Here);
        }
        self.0.place(key, Some((principal, &self.1))).await
    }

    /// Where a session of any principal is served, by its hashed id: for operators.
    ///
    /// # Errors
    /// As for `place`.
    ///
    /// # Cancel safety
    /// Nothing happens.
    pub async fn place_of_key(&self, key: &SessionKey) -> Result<Place, Error> {
        let Some(roster) = &self.0.roster else { return Ok(Place::Here) };
        roster.confirmed().await?;
        if self.0.awake_by_key(key).is_some() {
            return Ok(Place::Here);
        }
        self.0.place(*key, None).await
    }

    /// Forgets where a session was: the node that was asked does not serve it.
    pub fn forget_place(&self, id: &SessionId) {
        self.0.places.forget(&id.key());
    }
}

impl SessionRuntime {
    /// This process's name as an owner of sessions.
    pub(super) fn node(&self) -> NodeId {
        self.claimant().node
    }

    /// Whether a living node other than this one owns a session.
    pub(super) async fn is_elsewhere(&self, key: SessionKey) -> Result<bool, StoreError> {
        let Some(roster) = &self.roster else { return Ok(false) };
        match self.store.owner(key).await? {
            Some((node, _)) if node != roster.node() => Ok(!roster.find_gone(node).await?),
            _ => Ok(false),
        }
    }

    /// A node that takes a session in place of this one, which stops soon. Always the same one for the same session, as
    /// long as the nodes are the same.
    fn deputy(&self, key: &SessionKey) -> Option<NodeId> {
        let others: Vec<NodeId> = self.roster.as_ref()?.takers();
        // Keys are hashes already.
        others.get(usize::from(key.as_bytes()[15]) % others.len().max(1)).copied()
    }

    /// Where a session is, which is remembered if it is known whose it is.
    async fn place(
        self: &Arc<Self>,
        key: SessionKey,
        of: Option<(&Principal, &Route)>,
    ) -> Result<Place, Error> {
        let Some(roster) = &self.roster else { return Ok(Place::Here) };
        if self.waking.contains(&key) {
            return Ok(Place::Here);
        }
        let owner = self.store.owner(key).await.map_err(store_failed)?.map(|(node, _)| node);
        let is_own = owner == Some(roster.node());
        let elsewhere = match owner.filter(|_| !is_own) {
            Some(node) if !roster.find_gone(node).await.map_err(store_failed)? => Some(node),
            _ => None,
        };
        if let Some(node) = elsewhere {
            if let Some((principal, route)) = of {
                self.places.remember(key, node, (principal.clone(), route.clone()));
            }
            return Ok(Place::There(node));
        }
        self.places.forget(&key);
        if self.stage() < DrainStage::Draining {
            return Ok(Place::Here);
        }
        let Some(deputy) = self.deputy(&key) else { return Ok(Place::Here) };
        // A deputy would send a request for a session that this node still owns straight back.
        if is_own && !self.give_back_dormant(&key).await.map_err(store_failed)? {
            return Ok(Place::Here);
        }
        Ok(Place::There(deputy))
    }
}

/// Whether a record is a session of this principal at this endpoint. What cannot be read may be: a node that can read it
/// knows.
fn may_be_of(record: &Record, principal: &Principal, route: &Route) -> bool {
    match StoredSession::decode(&record.value) {
        Ok(StoredSession::Session(session)) => {
            session.owner().is_same_client(principal) && session.route.as_deref() == route.name()
        }
        // How it ended is in the record.
        Ok(StoredSession::Tombstone(_)) => false,
        Err(UnreadableRecord::Newer(newer)) => newer.may_be_of(principal, route),
        Err(UnreadableRecord::Broken(_)) => true,
    }
}
