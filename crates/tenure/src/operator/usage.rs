//! What operators see of the resources that clients use, and which clients use most.

use serde::{Deserialize, Serialize};
use tenure_session::budget::{self, Budget};

/// The most peers that are named for one resource.
const MOST: usize = 10;

/// How much of one resource is in use.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct UsageRow {
    /// Its name.
    pub(crate) resource: String,
    /// Whether it is counted in bytes.
    #[serde(default)]
    pub(crate) is_bytes: bool,
    pub(crate) used: u64,
    /// How much there is.
    pub(crate) total: u64,
    /// The peers that hold most of it, the largest first.
    pub(crate) peers: Vec<PeerRow>,
    /// The node that holds it, in a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
}

/// How much one peer holds.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct PeerRow {
    pub(crate) peer: String,
    pub(crate) used: u64,
}

/// What is in use of every resource.
pub(super) fn usage(budget: &Budget) -> Vec<UsageRow> {
    let row = |usage: budget::Usage| UsageRow {
        resource: usage.resource.as_str().to_owned(),
        is_bytes: usage.resource.is_bytes(),
        used: usage.used as u64,
        total: usage.total as u64,
        peers: usage
            .peers
            .iter()
            .take(MOST)
            .map(|(peer, used)| PeerRow { peer: peer.to_string(), used: *used as u64 })
            .collect(),
        node: None,
    };
    budget.usage().into_iter().map(row).collect()
}
