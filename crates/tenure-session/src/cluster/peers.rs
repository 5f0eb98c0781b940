//! The other nodes as this node has seen them, and when one of them counts as gone.
//!
//! Only lists of records and own renewals change it, each with its time. While the engine takes no
//! renewals, no node is held gone: at least three own renewals have to be acknowledged while another node is silent.

use std::collections::VecDeque;
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use tokio::time::Instant;

use super::fitness::Other;
use super::node_info::{NodeInfo, NodeRecord};
use crate::id::NodeId;
use crate::port::clock::Time;
use crate::port::members::{Member, Renewal};

/// A node is silent if no renewal of it was seen for this long: longer than it is confirmed after it.
pub(super) const SILENT_AFTER: Duration = Duration::from_secs(4);

/// Own renewals that must be acknowledged while another node is silent.
const OWN_RENEWALS: u64 = 3;

/// Why nothing is sent to a node whose record cannot be read.
const UNREADABLE: &str = "its record has a form that this version does not read";

/// Most nodes that are known, and most that are known to be gone.
const MOST_NODES: usize = 1024;

/// The other nodes.
#[derive(Default)]
pub(super) struct Peers {
    seen: HashMap<NodeId, Peer, RandomState>,
    /// Nodes whose record was removed, oldest first.
    gone: VecDeque<NodeId>,
    /// Own renewals that were acknowledged.
    acks: u64,
}

struct Peer {
    renewal: Renewal,
    info: NodeInfo,
    /// How far its clock was ahead of the engine's.
    clock_ms: Option<i64>,
    /// When this renewal was first seen, and how many own renewals had been acknowledged by then.
    since: Instant,
    acks: u64,
    /// It was in the last list.
    is_listed: bool,
}

impl Peers {
    /// An own renewal was acknowledged.
    pub(super) fn own_renewal(&mut self) {
        self.acks += 1;
    }

    /// Takes the list of all records.
    pub(super) fn listed(&mut self, members: Vec<Member>, own: NodeId, now: Instant) {
        for peer in self.seen.values_mut() {
            peer.is_listed = false;
        }
        for member in members.into_iter().filter(|member| member.node != own) {
            match NodeRecord::decode(&member.info) {
                Ok(NodeRecord::Node(info)) => {
                    let clock_ms = member.stored.map(|stored| ahead_ms(info.wall_ms, stored));
                    self.see(member.node, member.renewal, *info, clock_ms, now);
                }
                Ok(NodeRecord::Gone) => {
                    self.is_gone_now(member.node);
                    // Its writer removes it at once; if that writer is lost, this node does, like any silent record.
                    self.see(member.node, member.renewal, NodeInfo::default(), None, now);
                }
                // It has a renewal all the same, which says whether its node lives.
                Err(error) => {
                    if !self.seen.contains_key(&member.node) {
                        tracing::warn!(node = ?member.node, %error, "a node's record cannot be read");
                    }
                    let info = NodeInfo { unfit: Some(UNREADABLE.to_owned()), ..NodeInfo::default() };
                    self.see(member.node, member.renewal, info, None, now);
                }
            }
        }
        // A node that is not listed is not gone for that: the list may be late. It is forgotten, and asked for again
        // when a session names it as its owner.
        self.seen.retain(|_, peer| peer.is_listed);
    }

    fn see(&mut self, node: NodeId, renewal: Renewal, info: NodeInfo, clock_ms: Option<i64>, now: Instant) {
        let acks = self.acks;
        if let Some(peer) = self.seen.get_mut(&node) {
            peer.is_listed = true;
            // A late list may go back.
            if renewal > peer.renewal {
                *peer = Peer { renewal, info, clock_ms, since: now, acks, is_listed: true };
            }
        } else if self.seen.len() < MOST_NODES {
            self.seen.insert(node, Peer { renewal, info, clock_ms, since: now, acks, is_listed: true });
        }
    }

    /// The nodes that have been silent for too long, with the renewal that was seen.
    pub(super) fn silent(&self, now: Instant) -> Vec<(NodeId, Renewal)> {
        let silent = self.seen.iter().filter(|(_, peer)| self.is_silent(peer, now));
        silent.map(|(node, peer)| (*node, peer.renewal)).collect()
    }

    fn is_silent(&self, peer: &Peer, now: Instant) -> bool {
        now - peer.since >= SILENT_AFTER && self.acks - peer.acks >= OWN_RENEWALS
    }

    /// The record of this node is gone for good.
    pub(super) fn is_gone_now(&mut self, node: NodeId) {
        if self.gone.contains(&node) {
            return;
        }
        if self.gone.len() >= MOST_NODES {
            self.gone.pop_front();
        }
        self.gone.push_back(node);
    }

    /// Whether this node is known to be gone.
    pub(super) fn is_gone(&self, node: NodeId) -> bool {
        self.gone.contains(&node)
    }

    /// Whether this node was in the last list, and is not known to be gone.
    pub(super) fn is_listed(&self, node: NodeId) -> bool {
        self.seen.contains_key(&node) && !self.is_gone(node)
    }

    /// The record of a node.
    pub(super) fn info(&self, node: NodeId) -> Option<NodeInfo> {
        self.seen.get(&node).filter(|_| !self.is_gone(node)).map(|peer| peer.info.clone())
    }

    /// The nodes of the last list with the time at which their renewals were first seen, by name.
    pub(super) fn seen(&self) -> Vec<(NodeId, NodeInfo, Instant)> {
        let alive = self.seen.iter().filter(|(node, _)| !self.is_gone(**node));
        let mut seen: Vec<_> = alive.map(|(node, peer)| (*node, peer.info.clone(), peer.since)).collect();
        seen.sort_by_key(|(node, ..)| *node);
        seen
    }

    /// The nodes of the last list, as this one is judged among them. Without those that cannot be read, since they say
    /// nothing, and without those that are silent: they act no more, and only a node that may act removes their records.
    pub(super) fn others(&self, now: Instant) -> Vec<Other<'_>> {
        let is_read = |peer: &Peer| peer.info.unfit.as_deref() != Some(UNREADABLE);
        let alive = self
            .seen
            .iter()
            .filter(|(node, peer)| !self.is_gone(**node) && !self.is_silent(peer, now) && is_read(peer));
        alive.map(|(node, peer)| Other { node: *node, info: &peer.info, clock_ms: peer.clock_ms }).collect()
    }

    /// The newest mark of revocations.
    pub(super) fn revocations(&self) -> u64 {
        self.seen.values().map(|peer| peer.info.revocations).max().unwrap_or(0)
    }

    /// Whether one of them has the key with this hash.
    pub(super) fn has_key(&self, pin: &str) -> bool {
        self.seen.iter().any(|(node, peer)| peer.info.key_sha256 == pin && !self.is_gone(*node))
    }

    /// The nodes of the last list, by name.
    pub(super) fn list(&self) -> Vec<(NodeId, NodeInfo)> {
        let alive = self.seen.iter().filter(|(node, _)| !self.is_gone(**node));
        let mut list: Vec<_> = alive.map(|(node, peer)| (*node, peer.info.clone())).collect();
        list.sort_by_key(|(node, _)| *node);
        list
    }
}

/// How far a clock that showed `wall_ms` was ahead of the engine's.
pub(super) fn ahead_ms(wall_ms: u64, stored: Time) -> i64 {
    let ms = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    ms(wall_ms) - ms(stored.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: NodeId = NodeId::from_bytes([0; 8]);
    const OTHER: NodeId = NodeId::from_bytes([1; 8]);
    const SECOND: Duration = Duration::from_secs(1);

    fn list(renewal: u64) -> Vec<Member> {
        vec![Member {
            node: OTHER,
            renewal: Renewal(renewal),
            info: NodeInfo::default().encode(),
            stored: None,
        }]
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_is_silent_four_seconds_after_its_renewal_was_seen_and_three_own_renewals_later() {
        let (mut peers, now) = (Peers::default(), Instant::now());
        peers.listed(list(7), OWN, now);
        for _ in 0..2 {
            peers.own_renewal();
        }
        assert_eq!(peers.silent(now + SECOND * 60), [], "the engine takes no renewals");
        peers.own_renewal();
        assert_eq!(peers.silent(now + SECOND * 4 - Duration::from_millis(1)), []);
        assert_eq!(peers.silent(now + SECOND * 4), [(OTHER, Renewal(7))]);
        peers.listed(list(8), OWN, now + SECOND * 4);
        assert_eq!(peers.silent(now + SECOND * 5), [], "it was seen renewed");
        peers.listed(list(7), OWN, now + SECOND * 5);
        for _ in 0..3 {
            peers.own_renewal();
        }
        assert_eq!(peers.silent(now + SECOND * 8), [(OTHER, Renewal(8))], "a late list does not go back");
        assert!(peers.others(now + SECOND * 8).is_empty(), "no node is judged by one that acts no more");
        assert_eq!(peers.others(now + SECOND * 7).len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_is_not_listed_is_neither_there_nor_gone() {
        let (mut peers, now) = (Peers::default(), Instant::now());
        peers.listed(list(7), OWN, now);
        peers.listed(Vec::new(), OWN, now);
        assert!(!peers.is_listed(OTHER) && !peers.is_gone(OTHER));
        assert_eq!(peers.info(OTHER), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_mark_says_that_a_node_is_gone_and_is_removed_like_the_record_of_a_silent_node() {
        let (mut peers, now) = (Peers::default(), Instant::now());
        let mark = Member { node: OTHER, renewal: Renewal(9), info: NodeRecord::GONE, stored: None };
        peers.listed(vec![mark], OWN, now);
        assert!(peers.is_gone(OTHER) && peers.list().is_empty());
        for _ in 0..3 {
            peers.own_renewal();
        }
        assert_eq!(peers.silent(now + SILENT_AFTER), [(OTHER, Renewal(9))]);
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_nodes_are_remembered_as_gone() {
        let mut peers = Peers::default();
        let node = |number: usize| NodeId::from_bytes((number as u64).to_be_bytes());
        for number in 0..=MOST_NODES {
            peers.is_gone_now(node(number));
        }
        assert_eq!(
            (peers.gone.len(), peers.is_gone(node(0)), peers.is_gone(node(MOST_NODES))),
            (MOST_NODES, false, true)
        );
    }
}
