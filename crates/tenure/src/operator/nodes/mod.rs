//! The operations of operators over all nodes of a cluster: any node is asked, and all of them answer.
//!
//! A session is shown, changed and ended by the node that has it in memory; lists and counts are put together from what all
//! nodes say. A node that does not answer within [`PATIENCE`] is named beside the answer, never left out in silence. What is kept
//! in the store alone needs no other node. Without a cluster no node is asked.
//!
//! Read in this order: `question` (what nodes ask each other), `others` (asking), `answering` (this node's answers),
//! `everywhere` (the operations over all nodes), `list` (the nodes themselves), `revocations` (revocations that a
//! node was not told of).

mod question;
mod others;
mod answering;
mod everywhere;
mod list;
mod revocations;

pub(crate) use list::{NodeRow, NodeState};
pub(crate) use others::{MissingNode, Others};
pub(super) use revocations::Known;
