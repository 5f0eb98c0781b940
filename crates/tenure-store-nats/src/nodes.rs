//! The records of the nodes of a cluster: renewed and removed by compare-and-swap.
//!
//! A lease is short, so an operation on it does not wait as long as others do.

use std::sync::Once;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tenure_session::id::NodeId;
use tenure_session::port::members::{Member, Renewal};
use tenure_session::port::store::StoreError;

use crate::fetch::{self, Fetched};
use crate::parts::Parts;
use crate::swap::{self, SwapError, there};
use crate::wire::{Doubt, Kept};

const FORM: u8 = 1;
/// A renewal that takes longer than this comes too late for its node.
const PATIENCE: Duration = Duration::from_millis(2500);

/// Says once that the record of a node cannot be read: the list is read each second.
static UNREADABLE: Once = Once::new();

/// A node's name and its record. Never without content, which would mean that the node was removed.
fn encode(node: NodeId, info: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(9 + info.len());
    bytes.put_u8(FORM);
    bytes.put_slice(node.as_bytes());
    bytes.put_slice(info);
    bytes.freeze()
}

fn decode(Fetched { sequence, payload, stored, .. }: &Fetched) -> Option<Member> {
    if payload.len() < 9 || payload[0] != FORM {
        return None;
    }
    let node = NodeId::from_bytes(payload[1..9].try_into().ok()?);
    Some(Member { node, renewal: Renewal(*sequence), info: payload.slice(9..), stored: *stored })
}

fn conflict(error: SwapError) -> StoreError {
    let current = match &error {
        SwapError::Mismatch(current) => there(current.clone()),
        SwapError::Store(_) => None,
    };
    let version = |kept: Kept| tenure_session::port::store::Version(kept.sequence);
    error.or(StoreError::Conflict { current: current.map(version) })
}

impl Parts {
    pub(crate) async fn renew(
        &self,
        node: NodeId,
        info: Bytes,
        last: Option<Renewal>,
    ) -> Result<Renewal, StoreError> {
        let (subject, payload) = (self.names.node(node), encode(node, &info));
        let (wire, ids, stream) = (&self.wire, &self.ids, &self.names.nodes);
        let mut tries = wire.tries_within(PATIENCE);
        let renewed = match last {
            None => swap::create(wire, ids, &mut tries, stream, &subject, payload).await,
            Some(last) => swap::swap(wire, ids, &mut tries, stream, &subject, last.0.max(1), payload).await,
        };
        renewed.map(Renewal).map_err(conflict)
    }

    pub(crate) async fn remove(&self, node: NodeId, seen: Renewal) -> Result<(), StoreError> {
        let (wire, ids, stream) = (&self.wire, &self.ids, &self.names.nodes);
        let (subject, mut tries) = (self.names.node(node), wire.tries_within(PATIENCE));
        let removed = swap::swap(wire, ids, &mut tries, stream, &subject, seen.0.max(1), Bytes::new());
        removed.await.map(drop).map_err(conflict)
    }

    pub(crate) async fn members(&self) -> Result<Vec<Member>, StoreError> {
        let mut tries = self.wire.tries_within(PATIENCE);
        let filter = self.names.all_nodes();
        let page = loop {
            match fetch::last(&self.wire, tries.until, &self.names.nodes, &[&filter], 0).await {
                Ok(page) if page.is_too_much || page.is_cut => {
                    return Err(StoreError::Unavailable("there are too many nodes to list".to_owned()));
                }
                Ok(page) => break page,
                Err(fault) => tries.again(fault, Doubt::None).await?,
            }
        };
        let there = page.messages.into_iter().filter(|message| !message.payload.is_empty());
        // A record that cannot be read is left out: it must not keep nodes from seeing each other.
        let read = there.filter_map(|message| {
            let member = decode(&message);
            if member.is_none() {
                UNREADABLE.call_once(|| tracing::warn!(subject = %message.subject, "the record of a node cannot be read, and is left out"));
            }
            member
        });
        Ok(read.collect())
    }
}
