//! Where records and events are kept: the port that memory, disk and cluster engines implement.
//!
//! A write ends in one of: done, conflict, fenced, busy, or unknown (it may or may not have happened:
//! read back before deciding). Positions, versions and epochs grow and have gaps; nothing may assume
//! that the next one is one more.

use bytes::Bytes;

use super::BoxFuture;
use super::clock::Time;
use crate::id::{NodeId, Position, SessionKey, StreamId};

/// What a record is about. Engines keep the spaces apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Space {
    /// Sessions, and the tombstones of ended ones.
    Session,
    /// What the store has to know of itself, such as by which key it is sealed. A copy leaves it behind.
    Store,
    /// States that clients name by data sessions and handles, and the tombstones of ended ones.
    State,
    /// What an rmcp server keeps here of its own sessions and streams.
    Rmcp,
    /// Tasks: calls whose clients come back for the outcome.
    Task,
    /// Calls without a session whose clients can come back for the rest of a stream that broke.
    Call,
}

impl Space {
    /// Every space.
    pub const ALL: [Self; 6] = [Self::Session, Self::Store, Self::State, Self::Rmcp, Self::Task, Self::Call];
}

/// The name of a record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RecordKey {
    /// What it is about.
    pub space: Space,
    /// Its hashed name.
    pub key: SessionKey,
}

impl RecordKey {
    /// The record of a session.
    pub const fn session(key: SessionKey) -> Self {
        Self { space: Space::Session, key }
    }

    /// A short name for logs, such as `s-4f3a9c01` for a session. A state is called by the last digits of its key,
    /// such as `d-4f3a9c01`, since the first are its owner's. A task is called like `t-4f3a9c01`.
    pub fn label(&self) -> String {
        match self.space {
            Space::State => format!("d-{}", &self.key.hex()[24..]),
            Space::Task => format!("t-{}", &self.key.hex()[..8]),
            Space::Call => format!("c-{}", &self.key.hex()[..8]),
            Space::Session | Space::Store | Space::Rmcp => self.key.label(),
        }
    }
}

/// The version of a record; every write makes a higher one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Version(pub u64);

/// What the writer believes to be there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expected {
    /// Nothing.
    Absent,
    /// A record of this version.
    Version(Version),
}

/// A record as it is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Its version.
    pub version: Version,
    /// Its content.
    pub value: Bytes,
    /// When it is due to be looked at.
    pub deadline: Option<Time>,
}

/// The fencing number of a node's ownership of a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Epoch(pub u64);

/// What an entry of the log is to its stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Not an event, but a note of what the stream is for. It is kept beside the stream until that ends.
    Note,
    /// An event; more may follow. Without a body it is no message, and says that events are missing here.
    Middle,
    /// An event that completes the stream. Without a body it is no message, and only says so.
    End,
}

/// An event on its way into the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewEvent {
    /// The stream it is on.
    pub stream: StreamId,
    /// The message.
    pub body: Bytes,
    /// What it is to the stream.
    pub place: Place,
    /// When it happened.
    pub at: Time,
}

/// An event in the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Where it is.
    pub position: Position,
    /// The message.
    pub body: Bytes,
    /// What it is to the stream; never a note.
    pub place: Place,
    /// When it happened.
    pub at: Time,
}

/// A stretch of one stream.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stretch {
    /// The events, in order.
    pub events: Vec<Event>,
    /// Events of the stream at or before this position may have been trimmed; those that were read before that are among
    /// `events` all the same. See clauses 19 and 20 of [`Store`].
    pub trimmed: Position,
}

/// How much to read at most. One event is read however large it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadLimit {
    /// At most this many events.
    pub events: usize,
    /// At most this many bytes.
    pub bytes: usize,
}

/// How much of a session's events to keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keep {
    /// At most this many.
    pub events: usize,
    /// At most this many bytes.
    pub bytes: usize,
    /// Only those that happened after this.
    pub since: Time,
}

/// What is left of a session's events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Kept {
    /// How many.
    pub events: usize,
    /// How many bytes.
    pub bytes: usize,
    /// When the oldest of them happened.
    pub oldest: Option<Time>,
    /// Everything at or before this position is gone.
    pub trimmed: Position,
}

/// What is known of one stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Surveyed {
    /// Which.
    pub stream: StreamId,
    /// The position of its last event, also if that was trimmed.
    pub last: Position,
    /// Whether it is complete.
    pub ended: bool,
    /// What it is for; only while it is open.
    pub note: Option<Bytes>,
}

/// What is known of a session's streams, without their events.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Survey {
    /// Streams that are open or have events, by number.
    pub streams: Vec<Surveyed>,
    /// No stream of this number or a higher one ever had an entry.
    pub next_stream: u32,
    /// What is kept of all of them.
    pub kept: Kept,
}

/// One stream with everything that is kept of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedStream {
    /// Which.
    pub stream: StreamId,
    /// What it is for, if it is open.
    pub note: Option<Bytes>,
    /// Events at or before this position were trimmed.
    pub trimmed: Position,
    /// Its events, in order.
    pub events: Vec<Event>,
}

/// All streams of a session with everything that is kept of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SavedLog {
    /// The streams.
    pub streams: Vec<SavedStream>,
    /// See [`Survey::next_stream`].
    pub next_stream: u32,
    /// Everything at or before this position is gone, and with it the streams that were trimmed away.
    pub trimmed: Position,
}

/// How an engine keeps what it was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// Until the process ends.
    Process,
    /// Until the machine loses power.
    Machine,
    /// Until the disk breaks.
    Disk,
}

/// What an engine can do.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// What a finished write survives.
    pub durability: Durability,
    /// The most events in one append.
    pub max_batch: usize,
    /// The largest record or event.
    pub max_value_bytes: usize,
}

/// What is wrong with an engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trouble {
    /// In words for operators.
    pub what: String,
    /// How bad it is.
    pub grade: Grade,
}

/// How bad it is what is wrong with an engine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Grade {
    /// It does some of its work, and all of it again by itself when what is wrong is over. A restart would not help.
    Degraded,
    /// It does none of its work, and tries to. Nobody knows whether a restart would help.
    Down,
    /// It does not come back by itself: the process has to be started anew.
    Lost,
}

/// Why a store did not do what it was asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The record is not what the writer believed; nothing was changed.
    #[error("the record has changed meanwhile")]
    Conflict {
        /// What is there now.
        current: Option<Version>,
    },
    /// Another node owns the session; nothing was changed.
    #[error("another node owns the session")]
    Fenced,
    /// Too much to do; nothing was changed.
    #[error("the store is busy")]
    Busy,
    /// There is no room for anything that grows; nothing was changed. What removes something still works.
    #[error("the disk is full")]
    Full,
    /// The record, event or batch is larger than the engine takes; nothing was changed.
    #[error("too large for the store")]
    TooLarge,
    /// The write may or may not have happened.
    #[error("the outcome of the write is unknown")]
    Unknown,
    /// The engine is broken or gone.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
}

/// A store's answer, later.
pub type Stored<T> = BoxFuture<Result<T, StoreError>>;

/// Keeps records and events.
///
/// Every clause has a test in the testkit's `store_contract`.
///
/// 1. `put` with `Expected::Absent` creates; it conflicts if a record is there, naming its version.
/// 2. `put` with `Expected::Version` replaces exactly that version; otherwise it conflicts and changes
///    nothing.
/// 3. `get` returns the newest finished `put`; versions of one record only grow, also across a delete.
/// 4. `delete` removes exactly the version named; otherwise it conflicts. Absent is a conflict.
/// 5. `expired(space, now, limit)` lists records of a space whose deadline is at or before `now`, earliest
///    first, at most `limit`, each with the version that has this deadline: a record that is renewed meanwhile
///    is never listed with its new version. It removes nothing; `get` still returns such a record.
/// 6. `list(after, limit)` walks all records of a space in key order without repeats.
/// 7. `claim` with the current epoch (or `None` where nobody ever claimed) makes a higher epoch; with
///    any other it is `Fenced`.
/// 8. `append` with an epoch other than the current one is `Fenced` and changes nothing.
/// 9. `append` is atomic and assigns growing positions, in the order of the batch, unique in the
///    session.
/// 10. `read(after)` yields the events of exactly that stream and session with a higher position, in
///     order, none left out but trimmed ones, as many as the limit allows but at least one, and says up
///     to where it was trimmed.
/// 11. `trim` forgets the oldest events of the session first, whatever their stream, until all bounds
///     of [`Keep`] hold.
/// 12. `drop_session` forgets all events and the ownership of the session, and nothing else. A read beside it
///     returns the events after `after` or the first of them, without a hole.
/// 13. An entry with [`Place::Note`] stands beside its stream until an entry with [`Place::End`] is appended
///     to it: `survey` shows it, `read` does not yield it, `trim` does not forget it, a later one replaces it.
/// 14. `survey` tells of every stream that is open or has events, where it ends, and a number that no stream
///     ever reached, also if that stream was trimmed away long ago. All of it is of one moment.
/// 15. `restore` gives a session exactly these streams and events, at these positions, in place of what it
///     had; whatever is appended later comes after them.
/// 16. When a write has answered `Ok`, its effect survives what `capabilities().durability` promises.
/// 17. A future that is dropped early leaves the write done or undone, never half done.
/// 18. `peek` says what `get` would say, or nothing.
/// 19. A read beside a trim tells of every gap: an event after `after` that is left out, and that comes before
///     the last event of the stretch (or anywhere, if the stretch is empty), is at or before its `trimmed`.
/// 20. A stream that was complete and was trimmed away whole does not look as if it had never been: `read` says
///     that it was trimmed at or beyond its last event, also after a `restore`, until `drop_session`.
/// 21. A session that is restored goes on behind every position that the store it was saved from has given out, also
///     behind those from after it was saved: clients hold them. The same holds of a whole store that is opened from a
///     backup. It takes clocks that are not behind.
pub trait Store: Send + Sync + 'static {
    /// Writes a record. See clauses 1–3.
    fn put(
        &self,
        key: RecordKey,
        value: Bytes,
        expected: Expected,
        deadline: Option<Time>,
    ) -> Stored<Version>;
    /// Reads a record.
    fn get(&self, key: RecordKey) -> Stored<Option<Record>>;
    /// What [`Store::get`] would say, if it can be said on the spot; `None` if it has to be waited for. See clause 18.
    fn peek(&self, key: RecordKey) -> Option<Result<Option<Record>, StoreError>> {
        let _ = key;
        None
    }
    /// Removes a record. See clause 4.
    fn delete(&self, key: RecordKey, expected: Version) -> Stored<()>;
    /// Lists records that are due. See clause 5.
    fn expired(&self, space: Space, now: Time, limit: usize) -> Stored<Vec<(RecordKey, Version)>>;
    /// Lists records in key order, after a key.
    fn list(
        &self,
        space: Space,
        after: Option<SessionKey>,
        limit: usize,
    ) -> Stored<Vec<(SessionKey, Record)>>;

    /// Takes ownership of a session. See clause 7.
    fn claim(&self, session: SessionKey, node: NodeId, expected: Option<Epoch>) -> Stored<Epoch>;
    /// Who owns a session.
    fn owner(&self, session: SessionKey) -> Stored<Option<(NodeId, Epoch)>>;
    /// Gives ownership back; the epoch is not used again.
    fn release(&self, session: SessionKey, epoch: Epoch) -> Stored<()>;

    /// Adds events. See clauses 8 and 9.
    fn append(&self, session: SessionKey, epoch: Epoch, batch: Vec<NewEvent>) -> Stored<Vec<Position>>;
    /// Reads a stretch of a stream. See clauses 10, 19 and 20.
    fn read(
        &self,
        session: SessionKey,
        stream: StreamId,
        after: Position,
        limit: ReadLimit,
    ) -> Stored<Stretch>;
    /// Forgets old events. See clause 11.
    fn trim(&self, session: SessionKey, keep: Keep) -> Stored<Kept>;
    /// Forgets all events of a session. See clause 12.
    fn drop_session(&self, session: SessionKey) -> Stored<()>;
    /// The highest position of a session, also if nothing is left there.
    fn tail(&self, session: SessionKey) -> Stored<Position>;
    /// What is known of a session's streams. See clause 14.
    fn survey(&self, session: SessionKey) -> Stored<Survey>;
    /// Puts back what was saved of a session. See clause 15.
    fn restore(&self, session: SessionKey, log: SavedLog) -> Stored<()>;

    /// What the engine can do.
    fn capabilities(&self) -> Capabilities;

    /// What is wrong with the engine right now; nothing while it works.
    fn trouble(&self) -> Option<Trouble> {
        None
    }
}
