//! The nodes of a cluster, as one of them sees them: who is there, who is gone, and whether this node may act.
//!
//! A node renews its record once a second. It is *confirmed* for 3 s from the moment at which it sent its last
//! acknowledged renewal, and acts only while it is. A node is *gone* when its record was removed: by itself, or by a
//! node that saw no renewal of it for 4 s. All decisions about another node are a compare-and-swap over its record, and
//! all times are on the monotonic clocks of one process, so neither clocks that differ nor late views do harm. The lease
//! counts by the one that goes on while the machine is suspended, the silence of others by the one that does not.
//!
//! Owns the node's name, its lease, and the table of the other nodes. Knows no sessions. In: [`Members`] of an engine.
//! Out: [`Roster`], which sessions, tasks and the relay ask.
//!
//! Reading order: `node_info` (a node's record), `lease`, `peers` and `fitness` (the rules, without time of their own and
//! without I/O), [`Roster`] (questions), `renewals` (the loop), [`Place`].
//!
//! [`Members`]: crate::port::members::Members

mod node_info;
mod lease;
mod peers;
mod roster;
mod renewals;
mod fitness;
mod place;

pub use lease::LeaseTerm;
pub use node_info::{NodeInfo, UnreadableNode};
pub use place::{Place, Places};
pub use roster::{Roster, SeenNode};
