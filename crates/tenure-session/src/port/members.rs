//! The nodes of a cluster: the port that cluster engines implement beside the store.
//!
//! A node writes a record of itself and renews it. Other nodes read the records, and remove the record of a node that
//! no longer renews it. Every decision is a compare-and-swap over a renewal that was seen, so a late view does no harm.

use bytes::Bytes;

use super::clock::Time;
use super::store::Stored;
use crate::id::NodeId;

/// One renewal of a node's record. Every renewal has a higher number than all before it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Renewal(pub u64);

/// A node's record as the engine has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// The node.
    pub node: NodeId,
    /// Its last renewal.
    pub renewal: Renewal,
    /// What the node says of itself. The engine does not read it.
    pub info: Bytes,
    /// When the engine stored it, by its own clock, if it tells.
    pub stored: Option<Time>,
}

/// Keeps the records of nodes.
///
/// Every clause has a test in the testkit's `members_contract`.
///
/// 1. `renew` without a renewal makes the record of a node; it conflicts if there is one. A node that was removed comes
///    back under another name.
/// 2. `renew` with the node's last renewal replaces its record; with any other it conflicts and changes nothing. So does
///    a renewal of a record that was removed.
/// 3. `remove` removes a record at exactly the renewal named; otherwise it conflicts and changes nothing.
/// 4. When `renew` or `remove` has answered `Ok`, no engine failure short of losing its majority undoes it, and every `renew`
///    and `remove` that begins later sees it.
/// 5. `members` lists every record. It may be late: a renewal or removal that has just finished may be missing.
/// 6. `Unknown` means that the write may have happened, or may still happen. The next finished `renew` or `remove` of
///    the same node settles it.
pub trait Members: Send + Sync + 'static {
    /// Writes the record of a node. See clauses 1 and 2.
    fn renew(&self, node: NodeId, info: Bytes, last: Option<Renewal>) -> Stored<Renewal>;
    /// Removes the record of a node. See clause 3.
    fn remove(&self, node: NodeId, seen: Renewal) -> Stored<()>;
    /// Lists the records. See clause 5.
    fn members(&self) -> Stored<Vec<Member>>;
}
