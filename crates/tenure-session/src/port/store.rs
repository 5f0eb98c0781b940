//! The store of records and events: the port that memory, disk and cluster engines implement.
//!
//! A write ends in one of: done, conflict, fenced, busy, or unknown (it may or may not have happened, or may still
//! happen; see clause 22). Positions, versions and epochs grow and have gaps; no
//! code may assume that the next one is one more.

use bytes::Bytes;

use super::BoxFuture;
use super::clock::Time;
use crate::id::{NodeId, Position, SessionKey, StreamId};

/// The kind of a record. Each space has its own keys.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Space {
    /// Sessions, and the tombstones of ended ones.
    Session,
    /// The store's own data, such as the id of the key that it is sealed with. A copy of a store does not include it.
    Store,
    /// States that clients name by data sessions and handles, and the tombstones of ended ones.
    State,
    /// The sessions and streams of an rmcp server that uses this store.
    Rmcp,
    /// Tasks: calls whose clients come back for the outcome.
    Task,
    /// Calls without a session whose clients can come back for the rest of a broken stream.
    Call,
    /// Principals whose credentials were revoked.
    Principal,
    /// Calls of a day, counted for each principal.
    Quota,
}

impl Space {
    /// Every space.
    pub const ALL: [Self; 8] = [
        Self::Session,
        Self::Store,
        Self::State,
        Self::Rmcp,
        Self::Task,
        Self::Call,
        Self::Principal,
        Self::Quota,
    ];
}

/// The name of a record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RecordKey {
    /// The kind of the record.
    pub space: Space,
    /// Its hashed name.
    pub key: SessionKey,
}

impl RecordKey {
    /// The record of a session.
    pub const fn session(key: SessionKey) -> Self {
        Self { space: Space::Session, key }
    }

    /// A short name for logs, such as `s-4f3a9c01` for a session, `t-4f3a9c01` for a task, `c-4f3a9c01` for a call
    /// and `q-4f3a9c01` for a quota.
    /// The name of a state, such as `d-4f3a9c01`, has the last digits of its key, since the first digits are its
    /// owner's.
    pub fn label(&self) -> String {
        match self.space {
            Space::State => format!("d-{}", &self.key.hex()[24..]),
            Space::Task => format!("t-{}", &self.key.hex()[..8]),
            Space::Call => format!("c-{}", &self.key.hex()[..8]),
            Space::Principal => format!("p-{}", &self.key.hex()[..8]),
            Space::Quota => format!("q-{}", &self.key.hex()[..8]),
            Space::Session | Space::Store | Space::Rmcp => self.key.label(),
        }
    }
}

/// The version of a record; every write makes a higher one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Version(pub u64);

/// The current record as the writer expects it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expected {
    /// No record.
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
    /// When it is due: [`Store::expired`] lists it from then on.
    pub deadline: Option<Time>,
}

/// The fencing number of a node's ownership of a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Epoch(pub u64);

/// The role of a log entry in its stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryPlace {
    /// Not an event, but a note on the purpose of the stream. It is kept until the stream ends.
    Note,
    /// An event; more may follow. Without a body it is not a message, but marks that events are missing here.
    Middle,
    /// An event that completes the stream. Without a body it is not a message, but only marks the end.
    End,
}

/// An event to be appended to the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewEvent {
    /// The stream it is on.
    pub stream: StreamId,
    /// The message.
    pub body: Bytes,
    /// Its role in the stream.
    pub place: EntryPlace,
    /// When it happened.
    pub at: Time,
}

/// An event in the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Its position in the log.
    pub position: Position,
    /// The message.
    pub body: Bytes,
    /// Its role in the stream; never a note.
    pub place: EntryPlace,
    /// When it happened.
    pub at: Time,
}

/// Events that were read from one stream.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StreamEvents {
    /// The events, in order.
    pub events: Vec<Event>,
    /// Events of the stream at or before this position may have been trimmed. `events` may still contain some of them,
    /// if they were read before the trim. See clauses 19 and 20 of [`Store`].
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
    /// Only events that happened after this time.
    pub since: Time,
}

/// The kept events of a session, in numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeptEvents {
    /// How many.
    pub events: usize,
    /// How many bytes.
    pub bytes: usize,
    /// The time of the oldest event.
    pub oldest: Option<Time>,
    /// Everything at or before this position is gone.
    pub trimmed: Position,
}

/// One stream of a [`Survey`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Surveyed {
    /// The stream.
    pub stream: StreamId,
    /// The position of its last event, also if that was trimmed.
    pub last: Position,
    /// Whether it is complete.
    pub ended: bool,
    /// Its note; only while it is open.
    pub note: Option<Bytes>,
}

/// The streams of a session, without their events.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Survey {
    /// Streams that are open or have events, by number.
    pub streams: Vec<Surveyed>,
    /// No stream of this number or a higher one ever had an entry.
    pub next_stream: u32,
    /// The kept events of all streams, in numbers.
    pub kept: KeptEvents,
}

/// One stream with all its kept events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedStream {
    /// The stream.
    pub stream: StreamId,
    /// Its note, if it is open.
    pub note: Option<Bytes>,
    /// Events at or before this position were trimmed.
    pub trimmed: Position,
    /// Its events, in order.
    pub events: Vec<Event>,
}

/// All streams of a session with all their kept events.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SavedLog {
    /// The streams.
    pub streams: Vec<SavedStream>,
    /// See [`Survey::next_stream`].
    pub next_stream: u32,
    /// Everything at or before this position is gone, and with it the streams that were trimmed away.
    pub trimmed: Position,
}

/// How long an engine keeps a finished write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreDurability {
    /// Until the process ends.
    Process,
    /// Until the machine loses power.
    Machine,
    /// Until the disk breaks.
    Disk,
    /// Until a majority of the engine's machines is lost.
    Replicated {
        /// Until their disks break: a write is on the disks of a majority before it is answered. Otherwise a majority
        /// that loses power at the same moment loses the last writes.
        majority_synced: bool,
    },
}

impl StoreDurability {
    /// Whether a finished write can be lost while clients still know of it. Positions and stream numbers may then be
    /// given out again.
    pub fn may_lose(self) -> bool {
        !matches!(self, Self::Replicated { .. })
    }
}

/// The properties of an engine.
#[derive(Clone, Copy, Debug)]
pub struct StoreCapabilities {
    /// How long a finished write lasts.
    pub durability: StoreDurability,
    /// The most events in one append.
    pub max_batch: usize,
    /// The most bytes of events in one append. One event may be as large as `max_value_bytes`.
    pub max_batch_bytes: usize,
    /// The largest record or event.
    pub max_value_bytes: usize,
}

/// The trouble of an engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trouble {
    /// A text for operators.
    pub what: String,
    /// How bad it is.
    pub grade: Grade,
}

/// How serious the trouble of an engine is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Grade {
    /// The engine does a part of its work, and recovers by itself when the trouble is over. A restart would not help.
    Degraded,
    /// The engine does none of its work, and keeps trying. It is unknown whether a restart would help.
    Down,
    /// The engine does not recover by itself: the process has to be restarted.
    Lost,
}

/// Why a store operation failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The record is not the one that the writer expected; nothing was changed.
    #[error("the record has changed meanwhile")]
    Conflict {
        /// The version of the current record.
        current: Option<Version>,
    },
    /// Another node owns the session; nothing was changed.
    #[error("another node owns the session")]
    Fenced,
    /// Too much to do; nothing was changed.
    #[error("the store is busy")]
    Busy,
    /// The disk has no room for more data; nothing was changed. Operations that remove data still work.
    #[error("the disk is full")]
    Full,
    /// The record, event or batch is larger than the engine takes; nothing was changed.
    #[error("too large for the store")]
    TooLarge,
    /// The write may or may not have happened, or may still happen. See clause 22 of [`Store`].
    #[error("the outcome of the write is unknown")]
    Unknown,
    /// The engine is broken or gone.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
}

/// The future of a store's answer.
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
///    first (deadlines within ten seconds in any order), at most `limit`, each with the version that has this deadline: a record that is renewed meanwhile
///    is never listed with its new version. It removes nothing; `get` still returns such a record.
/// 6. `list(after, limit)` walks all records of a space in key order without repeats.
/// 7. `claim` with the current epoch, or `None` if the session has no owner, makes a higher epoch; with any other
///    epoch it is `Fenced`. `release` gives a session back once; with an epoch that owns nothing it is `Fenced`. A
///    released session has no owner, as if it was never claimed, but a later epoch is higher than all before.
/// 8. `append` with an epoch other than the current one is `Fenced` and changes nothing.
/// 9. `append` is atomic and assigns growing positions, in the order of the batch, unique in the
///    session.
/// 10. `read(after)` yields the events of exactly that stream and session with a higher position, in
///     order, without gaps except trimmed events, as many as the limit allows but at least one, and
///     returns the position up to which the stream was trimmed.
/// 11. `trim` forgets the oldest events of the session first, whatever their stream, until all bounds
///     of [`Keep`] hold.
/// 12. `drop_session` forgets all events and the ownership of the session, and nothing else: a later first
///     `claim` makes a higher epoch than any before. A read beside it returns the events after `after` or the
///     first of them, without a gap.
/// 13. An entry with [`EntryPlace::Note`] is kept beside its stream until an entry with [`EntryPlace::End`] is appended
///     to the stream: `survey` shows it, `read` does not yield it, `trim` does not remove it, a later note replaces it.
/// 14. `survey` returns every stream that is open or has events, with the position of its last event, and a number
///     that no stream has ever reached, including streams that were trimmed away. It is one consistent snapshot.
/// 15. `restore` gives a session exactly these streams and events, at these positions, in place of what it
///     had; events that are appended later come after them.
/// 16. When a write has answered `Ok`, its effect lasts as long as `capabilities().durability` promises.
/// 17. A future that is dropped early leaves the write done or undone, never half done.
/// 18. `peek` returns the same as `get`, or `None`.
/// 19. A read beside a trim reports every gap: if an event after `after` is missing in the answer, and comes before
///     the last event of the answer (or the answer has no events), then it is at or before the answer's `trimmed`.
/// 20. A complete stream that was trimmed away as a whole is still known: `read` answers that it was trimmed at or
///     beyond its last event, also after a `restore`, until `drop_session`.
/// 21. A restored session assigns only positions higher than any that its former store assigned, also after the save,
///     because clients hold those positions. The same holds for a whole store that is opened from a backup. This needs
///     clocks that are not behind.
/// 22. A write without an answer, or with the answer `Unknown`, may still happen later. The next finished write of the
///     same record settles a `put` or `delete`: afterwards it is done or never will be. The next finished `claim` of the
///     same session settles an `append`, and every other write of its log.
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
    /// The answer of [`Store::get`] if it is available without waiting; otherwise `None`. See clause 18.
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
    /// The owner of a session.
    fn owner(&self, session: SessionKey) -> Stored<Option<(NodeId, Epoch)>>;
    /// Gives ownership back; the epoch is not used again. See clause 7.
    fn release(&self, session: SessionKey, epoch: Epoch) -> Stored<()>;

    /// Adds events. See clauses 8 and 9.
    fn append(&self, session: SessionKey, epoch: Epoch, batch: Vec<NewEvent>) -> Stored<Vec<Position>>;
    /// Reads events of a stream. See clauses 10, 19 and 20.
    fn read(
        &self,
        session: SessionKey,
        stream: StreamId,
        after: Position,
        limit: ReadLimit,
    ) -> Stored<StreamEvents>;
    /// Forgets old events. See clause 11.
    fn trim(&self, session: SessionKey, keep: Keep) -> Stored<KeptEvents>;
    /// Forgets all events of a session. See clause 12.
    fn drop_session(&self, session: SessionKey) -> Stored<()>;
    /// The highest position of a session, also if its event was removed.
    fn tail(&self, session: SessionKey) -> Stored<Position>;
    /// The streams of a session. See clause 14.
    fn survey(&self, session: SessionKey) -> Stored<Survey>;
    /// Puts back the saved streams of a session. See clauses 15 and 21.
    fn restore(&self, session: SessionKey, log: SavedLog) -> Stored<()>;

    /// The properties of the engine.
    fn capabilities(&self) -> StoreCapabilities;

    /// The engine's current trouble; `None` while it works.
    fn trouble(&self) -> Option<Trouble> {
        None
    }
}
