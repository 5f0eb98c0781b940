//! The keys and values of records and events on disk; no other file knows them.
//!
//! Numbers are big-endian, so that keys sort like numbers. The events of a stream lie together, in order. A stream may
//! have an entry at position 0, where no event is: its trimmed position. Streams that were trimmed away as a whole
//! share one such entry per session, because entries of their own would never be removed ([`Gone`]). A store of an
//! earlier version can be opened if later versions only added to its layout; see [`FORMAT`].

use bytes::Bytes;
use fjall::config::{CompressionPolicy, PartitioningPolicy};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions};
use tenure_session::id::{NodeId, Position, SessionKey, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{EntryPlace, Epoch, Event, Record, RecordKey, Space, Version};

/// The number of this layout. A store of another number is not opened.
pub(super) const FORMAT: u64 = 1;

pub(super) const META_FORMAT: &[u8] = b"format";
pub(super) const META_SEQUENCE: &[u8] = b"sequence";
pub(super) const META_BATCH: &[u8] = b"batch";
/// Has no meaning; `tidy` writes it so that a memtable is not empty.
pub(super) const META_TIDIED: &[u8] = b"tidied";

/// The names of the keyspaces, in the order in which a new store makes them.
pub(super) const NAMES: [&str; 6] = ["meta", "records", "deadlines", "owners", "events", "notes"];

/// The engine's keyspaces.
pub(super) struct Keyspaces {
    pub(super) database: Database,
    /// Counters of the store itself.
    pub(super) meta: Keyspace,
    /// Space and key → version, deadline, value.
    pub(super) records: Keyspace,
    /// Deadline, space and key → nothing.
    pub(super) deadlines: Keyspace,
    /// Session → owner and epoch.
    pub(super) owners: Keyspace,
    /// Session, stream and position → time, place and body.
    pub(super) events: Keyspace,
    /// Session and stream → the note that says what an open stream is for.
    pub(super) notes: Keyspace,
}

impl Keyspaces {
    pub(super) fn open(database: Database) -> Result<Self, fjall::Error> {
        // A merge keeps the last key of every block until it writes the index, and the key holds the whole block in memory.
        // With one index per table those are all blocks of a table of 64 MiB, which repetitive events make much larger before
        // they are compressed. With parts of 4 KiB it is some fifty blocks.
        //
        // All tables are compressed, also those that are merged soon: messages are text, and under a flood of events the
        // disk writes cost more processor time than the compression. An existing keyspace keeps its own policies.
        let options = || {
            KeyspaceCreateOptions::default()
                .index_block_partitioning_policy(PartitioningPolicy::all(true))
                .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
        };
        let keyspace = |name: &str| database.keyspace(name, options);
        let [meta, records, deadlines, owners, events, notes] = NAMES.map(keyspace);
        Ok(Self {
            meta: meta?,
            records: records?,
            deadlines: deadlines?,
            owners: owners?,
            events: events?,
            notes: notes?,
            database,
        })
    }

    /// All keyspaces, in the order of [`NAMES`].
    pub(super) fn all(&self) -> [&Keyspace; 6] {
        [&self.meta, &self.records, &self.deadlines, &self.owners, &self.events, &self.notes]
    }

    pub(super) fn number(&self, key: &[u8]) -> Result<Option<u64>, fjall::Error> {
        Ok(self.meta.get(key)?.and_then(|value| read_u64(&value, 0)))
    }
}

pub(super) fn read_u64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn space_number(space: Space) -> u8 {
    match space {
        Space::Session => 1,
        Space::Store => 2,
        Space::State => 3,
        Space::Rmcp => 16,
        Space::Task => 17,
        Space::Call => 18,
        Space::Principal => 19,
        Space::Quota => 20,
        // The port may add spaces; a space without a number here cannot be stored.
        _ => 0,
    }
}

fn read_space(number: u8) -> Option<Space> {
    match number {
        1 => Some(Space::Session),
        2 => Some(Space::Store),
        3 => Some(Space::State),
        16 => Some(Space::Rmcp),
        17 => Some(Space::Task),
        18 => Some(Space::Call),
        19 => Some(Space::Principal),
        20 => Some(Space::Quota),
        _ => None,
    }
}

pub(super) fn record_key(key: RecordKey) -> Vec<u8> {
    let mut bytes = vec![space_number(key.space)];
    bytes.extend_from_slice(key.key.as_bytes());
    bytes
}

/// The first byte of all records of a space.
pub(super) fn space_prefix(space: Space) -> [u8; 1] {
    [space_number(space)]
}

/// The session key inside a record's key.
pub(super) fn session_of_record(key: &[u8]) -> Option<SessionKey> {
    Some(SessionKey::from_bytes(key.get(1..17)?.try_into().ok()?))
}

/// Decodes a record's key.
pub(super) fn read_record_key(key: &[u8]) -> Option<RecordKey> {
    Some(RecordKey { space: read_space(*key.first()?)?, key: session_of_record(key)? })
}

const NO_DEADLINE: u64 = u64::MAX;

pub(super) fn record_value(version: Version, deadline: Option<Time>, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16 + value.len());
    bytes.extend_from_slice(&version.0.to_be_bytes());
    bytes.extend_from_slice(&deadline.map_or(NO_DEADLINE, |time| time.0).to_be_bytes());
    bytes.extend_from_slice(value);
    bytes
}

pub(super) fn read_record(bytes: &[u8]) -> Option<Record> {
    let deadline = read_u64(bytes, 8)?;
    Some(Record {
        version: Version(read_u64(bytes, 0)?),
        deadline: (deadline != NO_DEADLINE).then_some(Time(deadline)),
        value: Bytes::copy_from_slice(bytes.get(16..)?),
    })
}

pub(super) fn deadline_key(at: Time, key: RecordKey) -> Vec<u8> {
    let mut bytes = at.0.to_be_bytes().to_vec();
    bytes.extend_from_slice(&record_key(key));
    bytes
}

pub(super) fn read_deadline_key(bytes: &[u8]) -> Option<(Time, RecordKey)> {
    let space = read_space(*bytes.get(8)?)?;
    let key = SessionKey::from_bytes(bytes.get(9..25)?.try_into().ok()?);
    Some((Time(read_u64(bytes, 0)?), RecordKey { space, key }))
}

pub(super) fn owner_value(owner: Option<NodeId>, epoch: Epoch) -> Vec<u8> {
    let mut bytes = epoch.0.to_be_bytes().to_vec();
    if let Some(node) = owner {
        bytes.extend_from_slice(node.as_bytes());
    }
    bytes
}

pub(super) fn read_owner(bytes: &[u8]) -> Option<(Option<NodeId>, Epoch)> {
    let epoch = Epoch(read_u64(bytes, 0)?);
    match bytes.len() {
        8 => Some((None, epoch)),
        _ => Some((Some(NodeId::from_bytes(bytes.get(8..16)?.try_into().ok()?)), epoch)),
    }
}

pub(super) fn stream_prefix(session: &SessionKey, stream: StreamId) -> Vec<u8> {
    let mut bytes = session.as_bytes().to_vec();
    bytes.extend_from_slice(&stream.number().to_be_bytes());
    bytes
}

pub(super) fn event_key(session: &SessionKey, stream: StreamId, position: Position) -> Vec<u8> {
    let mut bytes = stream_prefix(session, stream);
    bytes.extend_from_slice(&position.0.to_be_bytes());
    bytes
}

/// The stream and position inside an event's key.
pub(super) fn place_of_event(key: &[u8]) -> Option<(StreamId, Position)> {
    let stream = u32::from_be_bytes(key.get(16..20)?.try_into().ok()?);
    Some((StreamId::new(stream), Position(read_u64(key, 20)?)))
}

const EVENT_HEAD: usize = 9;

pub(super) fn event_value(at: Time, place: EntryPlace, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(EVENT_HEAD + body.len());
    bytes.extend_from_slice(&at.0.to_be_bytes());
    bytes.push(match place {
        EntryPlace::Middle => 0,
        EntryPlace::End => 1,
        // Notes have a keyspace of their own.
        EntryPlace::Note => 2,
    });
    bytes.extend_from_slice(body);
    bytes
}

pub(super) fn read_event(position: Position, bytes: &[u8]) -> Option<Event> {
    let place = match bytes.get(8)? {
        0 => EntryPlace::Middle,
        _ => EntryPlace::End,
    };
    let body = Bytes::copy_from_slice(bytes.get(EVENT_HEAD..)?);
    Some(Event { position, body, place, at: Time(read_u64(bytes, 0)?) })
}

/// The stream inside a note's key.
pub(super) fn stream_of_note(key: &[u8]) -> Option<StreamId> {
    Some(StreamId::new(u32::from_be_bytes(key.get(16..20)?.try_into().ok()?)))
}

/// One entry for all complete streams of a session that were trimmed away.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Gone {
    /// One more than the highest of their numbers.
    pub(super) next_stream: u32,
    /// None of them had an event after this position. Nothing of the session is kept at or before it.
    pub(super) trimmed: Position,
}

/// The key of that entry: a stream number that is never used.
pub(super) fn gone_key(session: &SessionKey) -> Vec<u8> {
    event_key(session, NO_STREAM, Position::START)
}

pub(super) fn gone_value(gone: Gone) -> Vec<u8> {
    let mut bytes = u64::from(gone.next_stream).to_be_bytes().to_vec();
    bytes.extend_from_slice(&gone.trimmed.0.to_be_bytes());
    bytes
}

/// Earlier versions write and read only the number of the next stream.
pub(super) fn read_gone(bytes: &[u8]) -> Option<Gone> {
    let next_stream = read_u64(bytes, 0)?.try_into().ok()?;
    Some(Gone { next_stream, trimmed: Position(read_u64(bytes, 8).unwrap_or_default()) })
}

/// A number that no stream has.
pub(super) const NO_STREAM: StreamId = StreamId::new(u32::MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_and_later_versions_read_each_others_trimmed_streams() {
        let gone = Gone { next_stream: 7, trimmed: Position(99) };
        assert_eq!(read_gone(&gone_value(gone)), Some(gone));
        // An earlier version reads only this part, and overwrites the entry with only this part.
        assert_eq!(read_u64(&gone_value(gone), 0), Some(7));
        assert_eq!(read_gone(&7_u64.to_be_bytes()), Some(Gone { trimmed: Position::START, ..gone }));
        assert_eq!(read_gone(&[0; 7]), None);
        assert_eq!(read_gone(&u64::MAX.to_be_bytes()), None);
    }
}
