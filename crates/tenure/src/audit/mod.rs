//! The audit log: records of who did what, in a file in which every change is detected.
//!
//! Each line is a record that holds the hash of the line before it, and now and then a head: a record that is signed. So a
//! line that was changed, removed, inserted or moved is found, and the newest head, which is also kept beside the log, shows
//! where the log was cut.
//!
//! In: calls (`calls`, a layer in front of the servers), events of sessions and tasks and refusals (`events`), actions of
//! operators (from `control`). Out: lines in a file. Read in this order: `record` (a line), `chain` (its place), `key`,
//! `file` (the file and its rotation), `writer` (the thread that writes), `calls`, `events`, `verify`, `start`.

mod record;
mod chain;
mod key;
mod file;
mod writer;
mod calls;
mod events;
mod refusals;
mod start;
mod verify;

pub(crate) use calls::Audited;
pub(crate) use chain::Head;
pub(crate) use start::{
    AdminAction, AdminIdentity, Audit, AuditSettings, RefusedOperator, head_place, node_name,
};
pub(crate) use verify::{Broken, LogEnd, LogFile, Verified, verify};
