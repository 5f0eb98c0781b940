//! How sessions move: who owns what, and in which order things happen.
//!
//! A session is a record and some state behind a short lock; it has no task of its own while nothing
//! happens. A request runs inside the task of the connection that brought it, and is handed to a
//! tracked task when that connection goes away or the answer becomes a stream. So is a write that has to be
//! counted, or taken back (`finish`, `take_back`). No lock is held across an await anywhere.
//!
//! Reading order: [`Sessions`] (create, find, list), `birth` (of one), `census` (how many), [`Session`] (what one holds), `held` (whose share that is), `link` (to the server
//! behind), `call` (a request from the client), `ask` (a request to the client), `stream` and `reader`
//! (events out), `backlog` (what the log did not take), `save` (the record), `settings` and `annotate` (what users say of it), `sleep`, `wake`, `servers` (whose it is) and `reopen` (dormant and back), `relink` (another server), `deadline`, `handshake` and `sweep`
//! (expiry), `owner` and `news` (what servers say), `ending` (the end of one session), `operate` (what operators do), `drain` (shutdown).

mod annotate;
mod ask;
mod backlog;
mod birth;
mod call;
mod census;
mod deadline;
mod drain;
mod due;
mod ending;
mod finish;
mod handshake;
mod held;
mod link;
mod live;
mod news;
mod operate;
mod owner;
mod reader;
mod relink;
mod reopen;
mod save;
mod servers;
mod session;
mod sessions;
mod settings;
mod sleep;
mod stream;
mod sweep;
mod take_back;
mod wake;

pub use annotate::{Changes, annotate};
pub use call::Answer;
pub(crate) use census::{Census, Entry, Full, Seat, Weight};
pub use due::IdleTtl;
pub(crate) use finish::finish;
pub use operate::{Existing, NotAdopted, SavedSession, adopt, revoke};
pub use reader::{Item, Reader};
pub use reopen::noted_requests;
pub use session::{CallInfo, Session, SessionInfo};
pub use sessions::{Created, Parts, Sessions, Tallies};
pub use settings::{Metadata, Settings};
pub(crate) use stream::Origin;
pub(crate) use take_back::{Written, is_due, remove, take_back};

pub use crate::call::{CallContext, Caller, Collect, Fanout, News, Outlet};
