//! What operators can know of data sessions and do with them.
//!
//! [`DataDesk`] does it, in a server and in a command alike. Every change is one write that names the version it
//! saw, so a server and its clients may go on meanwhile. The secret id of a data session leaves here in two ways
//! alone: when it is made, and when it is selected.
//!
//! Read in this order: `view` (what is shown), `name` (how people name one), `desk` (all of it together).

mod desk;
mod name;
mod view;

pub(crate) use desk::{DataDesk, Show};
pub(crate) use name::{DataName, parse_secret};
pub(crate) use view::{Contents, DataDetail, DataPage, DataRow, DataState, Named, NewData, ResumedData};
