//! Who owns a session: the last message of a subject, whose sequence is the epoch.
//!
//! Sequences only grow, so an epoch is never used again. A session that was given back has no owner, and the next claim
//! replaces the message that says so.

use bytes::{BufMut, Bytes, BytesMut};
use tenure_session::id::{NodeId, SessionKey};
use tenure_session::port::store::{Epoch, StoreError};

use crate::parts::Parts;
use crate::record_form::unreadable;
use crate::swap::{self, there};

const FORM: u8 = 1;

fn encode(node: NodeId) -> Bytes {
    let mut bytes = BytesMut::with_capacity(9);
    bytes.put_u8(FORM);
    bytes.put_slice(node.as_bytes());
    bytes.freeze()
}

fn decode(payload: &[u8]) -> Option<NodeId> {
    let [FORM, node @ ..] = payload else { return None };
    node.try_into().map(NodeId::from_bytes).ok()
}

impl Parts {
    pub(crate) async fn claim(
        &self,
        session: SessionKey,
        node: NodeId,
        expected: Option<Epoch>,
    ) -> Result<Epoch, StoreError> {
        let (shard, subject) = (self.names.shard(&session), self.names.owner(&session));
        let (mut tries, payload) = (self.wire.tries(), encode(node));
        let (wire, ids) = (&self.wire, &self.ids);
        let claimed = match expected {
            None => swap::create(wire, ids, &mut tries, shard, &subject, payload).await,
            Some(epoch) => swap::swap(wire, ids, &mut tries, shard, &subject, epoch.0.max(1), payload).await,
        };
        claimed.map(Epoch).map_err(|error| error.or(StoreError::Fenced))
    }

    pub(crate) async fn owner(&self, session: SessionKey) -> Result<Option<(NodeId, Epoch)>, StoreError> {
        let (shard, subject) = (self.names.shard(&session), self.names.owner(&session));
        let kept = there(self.wire.last(&mut self.wire.tries(), shard, &subject).await?);
        let Some(kept) = kept else { return Ok(None) };
        let node = decode(&kept.payload).ok_or_else(|| unreadable(&session.label()))?;
        Ok(Some((node, Epoch(kept.sequence))))
    }

    pub(crate) async fn release(&self, session: SessionKey, epoch: Epoch) -> Result<(), StoreError> {
        let (shard, subject) = (self.names.shard(&session), self.names.owner(&session));
        let (mut tries, expected) = (self.wire.tries(), epoch.0.max(1));
        let given = swap::swap(&self.wire, &self.ids, &mut tries, shard, &subject, expected, Bytes::new());
        given.await.map(drop).map_err(|error| error.or(StoreError::Fenced))
    }
}
