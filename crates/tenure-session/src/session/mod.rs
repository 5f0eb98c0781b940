//! The session runtime: which task owns what, and in which order things happen.
//!
//! A session is a record and some state behind a short lock; an idle session has no task. A request runs inside the
//! task of the connection that brought it. It moves to a tracked task when that connection closes or the answer
//! becomes a stream. A write that has to be counted or undone also runs in a tracked task. No lock is held across an
//! await.
//!
//! Reading order: [`Sessions`] (create, find, list), `create` (undoes an unfinished create), [`Session`] (state of one
//! session), `registry` (sessions in memory), `phase` and `rules` (what is allowed when), `share` (whose budget pays),
//! `link` (to the server), `request` (from the client), `on_success` (what it changes), `ask` (to the client), `server_side` and `news` (messages from
//! servers), `stream`, `event_id` and `reader` (events to the client), `settle_append` and `backlog` (events that the log did not
//! take),
//! `save` (the record), `figures` (counters), `settings` and `change_settings` (metadata and idle time), `sleep`, `wake`, `place`, `claim`, `give_up`, `unreleased`, `other_server` and
//! `recover` (dormant and back), `relink` (a new server), `again` (requests that another node may have begun), `deadline`, `use_guard`, `handshake_ttl` and `sweep` (expiry), `end` (of
//! one session), `operator` (commands of operators), `drain` (shutdown), `give_away` (of sessions, to other nodes).

mod sessions;
mod create;
mod live_session;
mod registry;
mod phase;
mod rules;
mod share;
mod link;
mod request;
mod on_success;
mod ask;
mod server_side;
mod news;
mod stream;
mod event_id;
mod reader;
mod settle_append;
mod backlog;
mod save;
mod figures;
mod settings;
mod change_settings;
mod sleep;
mod wake;
mod place;
mod claim;
mod give_up;
mod unreleased;
mod other_server;
mod recover;
mod relink;
mod again;
mod deadline;
mod use_guard;
mod handshake_ttl;
mod sweep;
mod end;
mod operator;
mod attached;
mod drain;
mod give_away;

pub use attached::ReaderInfo;
pub use change_settings::{Changes, annotate};
pub use event_id::{EventId, EventNames, EventSecret};
pub use live_session::{CallInfo, Session, SessionInfo};
pub use operator::{Existing, Glance, NotAdopted, SavedSession, adopt, revoke};
pub use phase::Phase;
pub use reader::{Item, Reader};
pub use recover::noted_requests;
pub use request::Answer;
pub use sessions::{Created, SessionParts, Sessions, Tallies};
pub use use_guard::UseGuard;
