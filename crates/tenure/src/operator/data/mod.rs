//! The operations of operators on data sessions.
//!
//! [`DataOperator`] works the same way in a server and in a command. Every change is one write that is conditional on
//! the version that was read, so that a server and its clients may go on meanwhile. Only two operations return the
//! secret id of a data session: `create` and `select`.
//!
//! Read in this order: `commands` (the operations), `view` (the types of the answers), `name` (how people name one).

mod commands;
mod view;
mod name;

pub(crate) use commands::{DataOperator, Show};
pub(crate) use name::{DataName, parse_secret};
pub(crate) use view::{Contents, DataDetail, DataRow, DataState, NamedData, NewData, ResumedData};
