//! How sessions move: who owns what, and in which order things happen.
//!
//! A session is a record and some state behind a short lock; it has no task of its own while nothing
//! happens. A request runs inside the task of the connection that brought it, and is handed to a
//! tracked task when that connection goes away or the answer becomes a stream. So is a write that has to be
//! counted, or taken back. No lock is held across an await anywhere.
//!
//! Reading order: [`Sessions`] (create, find, list), `create` (one of them), [`Session`] (what one holds), `registry` (those in
//! memory), `phase` and `rules` (what is allowed when), `share` (whose memory it takes), `link` (to the server behind), `request`
//! (from the client), `ask` (to the client), `server_side` and `news` (what servers say), `stream`, `event_id` and `reader` (events
//! out), `backlog` (events that the log did not take), `save` (the record), `settings` and `change_settings` (what users say of
//! it), `sleep`, `wake`, `other_server` and `recover` (dormant and back), `relink` (another server), `deadline`, `idle_ttl`,
//! `handshake_ttl` and `sweep` (expiry), `end` (of one session), `operator` (what operators do), `drain` (shutdown).

mod ask;
mod backlog;
mod change_settings;
mod create;
mod deadline;
mod drain;
mod end;
mod event_id;
mod handshake_ttl;
mod idle_ttl;
mod link;
mod news;
mod operator;
mod other_server;
mod phase;
mod reader;
mod recover;
mod registry;
mod relink;
mod request;
mod rules;
mod save;
mod server_side;
mod session;
mod sessions;
mod settings;
mod share;
mod sleep;
mod stream;
mod sweep;
mod wake;

pub use change_settings::{Changes, annotate};
pub use event_id::{EventId, EventNames, EventSecret};
pub use idle_ttl::IdleTtl;
pub use operator::{Existing, NotAdopted, SavedSession, adopt, revoke};
pub use phase::{Phase, Step};
pub use reader::{Item, Reader};
pub use recover::noted_requests;
pub use request::Answer;
pub use session::{CallInfo, Session, SessionInfo};
pub use sessions::{Created, Parts, Sessions, Tallies};
pub use settings::{Metadata, Settings};
pub(crate) use stream::Origin;
