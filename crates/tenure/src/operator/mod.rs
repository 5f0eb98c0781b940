//! What operators can know of sessions and do with them, on a running server or on a store that none has open.
//!
//! [`Operator`] does it: inside a server, which knows the sessions in memory too, or inside a command that has
//! opened the store itself. Its answers are the same JSON everywhere: on the control socket, with `--json`, and
//! in exported files. How they look on a terminal is the business of `cli`.
//!
//! Read in this order: `view` (what is shown), `look` (how it is found out), `signs` (what looks wrong),
//! `saved` (sessions in a file), `key` (how people name a session), `desk` (all of it together), `data` (the same for
//! data sessions), `calls` (what is under way), `usage` (what clients make the server hold).

mod calls;
mod data;
mod desk;
mod key;
mod look;
mod saved;
mod signs;
mod usage;
mod view;

pub(crate) use calls::{CallRow, CallState, CallWait, Calls};
pub(crate) use data::{
    Contents, DataDesk, DataDetail, DataName, DataPage, DataRow, DataState, Named, NewData, ResumedData,
    Show, parse_secret,
};
pub(crate) use desk::{Operator, Page, Revoked, now};
pub(crate) use key::{Prefix, key_text, parse_key};
pub(crate) use saved::{MAX_LINE_BYTES, Saved};
pub(crate) use signs::LONG;
pub(crate) use usage::{PeerRow, UsageRow};
pub(crate) use view::{CallView, Detail, LoopView, Party, Row, State, StreamView};
