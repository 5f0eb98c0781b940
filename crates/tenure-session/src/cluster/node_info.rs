//! The record that a node writes of itself.
//!
//! JSON with a format number. A reader ignores members that it does not know, so that nodes of two versions can be in
//! one cluster as long as the number is the same.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

const FORMAT: u32 = 1;

/// The record of a node, for the other nodes.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeInfo {
    /// Where its peers reach it, as `host:port`.
    pub peer_address: String,
    /// The SHA-256 of the public key (SPKI) that it proves to its peers, as hex.
    pub key_sha256: String,
    /// The version of the program.
    pub version: String,
    /// The oldest version of records between nodes that it reads, and the version that it writes.
    #[serde(default = "first")]
    pub reads_from: u32,
    /// The version that it writes.
    #[serde(default = "first")]
    pub writes: u32,
    /// The ids of its keys, by purpose; the key that it seals with comes first.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub keys: BTreeMap<String, Vec<String>>,
    /// The servers behind it, as digests. Nodes that have none in common are of two clusters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<String>,
    /// Why it does not act, as text. A node does not act until it has looked at the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfit: Option<String>,
    /// Grows when a principal is revoked or reinstated: then nodes read the store.
    #[serde(default)]
    pub revocations: u64,
    /// Its wall clock at this renewal, ms since 1970.
    pub wall_ms: u64,
    /// It stops soon, and takes no new sessions.
    pub is_draining: bool,
    /// How many sessions are in its memory.
    pub load: u64,
}

/// Why the record of a node could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnreadableNode {
    /// It was written by a newer version.
    #[error("node format {found} is newer than {known}, the newest this version reads")]
    Newer {
        /// Its format.
        found: u32,
        /// The newest known format.
        known: u32,
    },
    /// It is not such a record.
    #[error("not the record of a node")]
    Broken(#[source] serde_json::Error),
}

/// A record under a node's name.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum NodeRecord {
    /// The node's own.
    Node(Box<NodeInfo>),
    /// A mark of another node, which found no record there: this node is gone.
    Gone,
}

#[derive(Serialize)]
struct Written<'a> {
    v: u32,
    #[serde(flatten)]
    info: &'a NodeInfo,
}

#[derive(Deserialize)]
struct Head {
    v: u32,
    #[serde(default)]
    gone: bool,
}

/// The version of nodes that did not say one.
fn first() -> u32 {
    1
}

impl NodeInfo {
    /// Reads a record; `None` if it is not of a node, or of a newer format.
    pub fn decode(bytes: &Bytes) -> Option<Self> {
        match NodeRecord::decode(bytes) {
            Ok(NodeRecord::Node(info)) => Some(*info),
            Ok(NodeRecord::Gone) | Err(_) => None,
        }
    }

    /// The record.
    pub fn encode(&self) -> Bytes {
        serde_json::to_vec(&Written { v: FORMAT, info: self }).expect("a node's record is plain data").into()
    }
}

impl NodeRecord {
    /// The mark that a node is gone.
    pub(super) const GONE: Bytes = Bytes::from_static(br#"{"v":1,"gone":true}"#);

    /// Reads a record.
    pub(super) fn decode(bytes: &Bytes) -> Result<Self, UnreadableNode> {
        let head: Head = serde_json::from_slice(bytes).map_err(UnreadableNode::Broken)?;
        if head.v > FORMAT {
            return Err(UnreadableNode::Newer { found: head.v, known: FORMAT });
        }
        if head.gone {
            return Ok(Self::Gone);
        }
        serde_json::from_slice(bytes).map(|info| Self::Node(Box::new(info))).map_err(UnreadableNode::Broken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back_also_with_members_of_a_later_version() {
        let info = NodeInfo { peer_address: "10.0.0.1:8486".into(), load: 7, ..NodeInfo::default() };
        assert_eq!(NodeRecord::decode(&info.encode()).unwrap(), NodeRecord::Node(Box::new(info.clone())));
        let mut later: serde_json::Value = serde_json::from_slice(&info.encode()).unwrap();
        later["zone"] = "a".into();
        let later = Bytes::from(later.to_string());
        assert_eq!(NodeRecord::decode(&later).unwrap(), NodeRecord::Node(Box::new(info)));
        assert_eq!(NodeRecord::decode(&NodeRecord::GONE).unwrap(), NodeRecord::Gone);
    }

    #[test]
    fn a_record_of_a_newer_format_or_of_another_program_is_refused() {
        let refused =
            |text: &'static str| NodeRecord::decode(&Bytes::from_static(text.as_bytes())).unwrap_err();
        assert!(matches!(refused(r#"{"v":2}"#), UnreadableNode::Newer { found: 2, known: 1 }));
        assert!(matches!(refused("node"), UnreadableNode::Broken(_)));
    }
}
