//! The operations of operators on sessions, in a running server or on a store that no server has open.
//!
//! [`Operator`] runs inside a server, where it also knows the sessions in memory, or inside a command that has opened
//! the store itself. Its answers are the same JSON everywhere: on the control socket, with `--json`, and in exported
//! files. `cli` formats them for a terminal.
//!
//! Read in this order: `commands` (the operations), `view` (the types of the answers), `details` (how they are
//! filled), `problems` (what looks wrong), `saved` (sessions in a file), `key` (how people name a session), `data` (the same for
//! data sessions), `calls` (running requests), `usage` (what clients make the server hold),
//! `principals` (who has what, and taking it back), `extent` (how much is looked at), `search` (which sessions are meant), `nodes` (the same over all nodes of a cluster).

mod commands;
mod view;
mod details;
mod problems;
mod saved;
mod key;
mod data;
mod calls;
mod usage;
mod principals;
mod extent;
mod search;
mod nodes;

pub(crate) use calls::{CallList, CallRow, CallState, CallWait};
pub(crate) use commands::{Operator, Revoked, now};
pub(crate) use data::{
    Contents, DataDetail, DataName, DataOperator, DataRow, DataState, NamedData, NewData, ResumedData, Show,
    parse_secret,
};
pub(crate) use extent::Extent;
pub(crate) use key::{Prefix, key_text, parse_key};
pub(crate) use nodes::{MissingNode, NodeRow, NodeState};
pub(crate) use principals::{DataFate, HalfRevoked, PrincipalDetail, PrincipalRow, RevokedPrincipal};
pub(crate) use problems::LONG;
pub(crate) use saved::{MAX_LINE_BYTES, Saved};
pub(crate) use search::SessionFilter;
pub(crate) use usage::{PeerRow, UsageRow};
pub(crate) use view::{CallView, Detail, LoopView, Page, Party, SessionRow, ShownState, StreamView};
