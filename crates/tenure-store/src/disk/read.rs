//! Reads from the engine, on threads that may wait for the disk.
//!
//! Readers do not wait for the writer. The engine applies the entries of a batch to its memory in the order in which
//! the writer added them, and a read returns the newest entry of a key even if the rest of its batch is not applied
//! yet. So a read that needs several entries of one moment relies only on two orders: the order of writing and the
//! order of reading. Once a reader has seen an entry, it can read every earlier entry of the same batch. Where that is
//! not enough, the reader asks the writer for a snapshot between two batches.

use std::collections::BTreeMap;

use bytes::Bytes;
use fjall::{Readable, Snapshot};
use tenure_session::id::{Position, SessionKey, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{
    EntryPlace, ReadLimit, Record, RecordKey, Space, StreamEvents, Survey, Surveyed, Version,
};

use super::layout::{self, Keyspaces};
use super::log::LogIndex;

/// Records are independent, so it does not matter that they are read at different moments: a record that is written
/// meanwhile is listed with its old or its new value.
pub(super) fn list(
    keyspaces: &Keyspaces,
    space: Space,
    after: Option<SessionKey>,
    limit: usize,
) -> Result<Vec<(SessionKey, Record)>, fjall::Error> {
    let prefix = layout::space_prefix(space);
    let start = match after {
        Some(key) => std::ops::Bound::Excluded(layout::record_key(RecordKey { space, key })),
        None => std::ops::Bound::Included(prefix.to_vec()),
    };
    let mut found = Vec::new();
    for entry in keyspaces.records.range((start, std::ops::Bound::Unbounded)) {
        if found.len() == limit {
            break;
        }
        let (key, value) = entry.into_inner()?;
        if !key.starts_with(&prefix) {
            break;
        }
        if let (Some(key), Some(record)) = (layout::session_of_record(&key), layout::read_record(&value)) {
            found.push((key, record));
        }
    }
    Ok(found)
}

pub(super) fn expired(
    keyspaces: &Keyspaces,
    space: Space,
    now: Time,
    limit: usize,
) -> Result<Vec<(RecordKey, Version)>, fjall::Error> {
    let mut found = Vec::new();
    for entry in keyspaces.deadlines.iter() {
        let key = entry.key()?;
        let Some((at, key)) = layout::read_deadline_key(&key) else { continue };
        if at > now || found.len() == limit {
            break;
        }
        if key.space != space {
            continue;
        }
        // The record is read after the index. If it was renewed meanwhile, it has another deadline, and its new version
        // must not be reported as due.
        let record = keyspaces.records.get(layout::record_key(key))?;
        let record = record.and_then(|record| layout::read_record(&record));
        if let Some(record) = record.filter(|record| record.deadline == Some(at)) {
            found.push((key, record.version));
        }
    }
    Ok(found)
}

pub(super) fn read(
    keyspaces: &Keyspaces,
    session: &SessionKey,
    stream: StreamId,
    after: Position,
    limit: ReadLimit,
) -> Result<StreamEvents, fjall::Error> {
    let mut stretch = StreamEvents::default();
    let mut bytes = 0;
    for entry in events_after(keyspaces, session, stream, after) {
        if stretch.events.len() == limit.events {
            break;
        }
        let (key, value) = entry.into_inner()?;
        let Some((_, position)) = layout::place_of_event(&key) else { continue };
        let Some(event) = layout::read_event(position, &value) else { continue };
        bytes += event.body.len();
        if bytes > limit.bytes && !stretch.events.is_empty() {
            break;
        }
        stretch.events.push(event);
    }
    let first = stretch.events.first().map(|event| event.position);
    let trimmed = trimmed(keyspaces, session, stream, first)?;
    // Events that are missing from this stretch lie before its last event. A trim that has passed that event meanwhile
    // is reported by the next read. Reading again until no trim comes in between might never end.
    stretch.trimmed = stretch.events.last().map_or(trimmed, |last| trimmed.min(last.position));
    Ok(stretch)
}

/// The trimmed position of a stream whose events were just read; `first` is the first event found.
///
/// Call this after reading the events. A trim writes the position before it removes events (`StoreWriter::trim`), so
/// if an event was missing because it was removed, the position that covers it can be read now. In the other order, a
/// trim between the two reads would remove events without any sign of it.
fn trimmed(
    keyspaces: &Keyspaces,
    session: &SessionKey,
    stream: StreamId,
    first: Option<Position>,
) -> Result<Position, fjall::Error> {
    let mark = keyspaces.events.get(layout::event_key(session, stream, Position::START))?;
    if let Some(mark) = mark.and_then(|mark| layout::read_u64(&mark, 0)) {
        return Ok(Position(mark));
    }
    // Without a mark, either nothing of the stream was trimmed or all of it: a trim removes the mark of a complete
    // stream after it has written this shared entry.
    let gone = keyspaces.events.get(layout::gone_key(session))?;
    let gone = gone.and_then(|gone| layout::read_gone(&gone)).unwrap_or_default();
    if gone.trimmed == Position::START {
        return Ok(Position::START);
    }
    let first = match first {
        Some(first) => Some(first),
        // All remaining events of the stream may lie before the requested position.
        None => {
            let first = events_after(keyspaces, session, stream, Position::START).next();
            let key = first.map(fjall::Guard::key).transpose()?;
            key.and_then(|key| layout::place_of_event(&key)).map(|(_, position)| position)
        }
    };
    let is_gone = match first {
        // No event at or before this position is kept, so this event was removed while it was read.
        Some(first) => first <= gone.trimmed,
        // An open stream without events has a note.
        None => !keyspaces.notes.contains_key(layout::stream_prefix(session, stream))?,
    };
    Ok(if is_gone { gone.trimmed } else { Position::START })
}

fn events_after(
    keyspaces: &Keyspaces,
    session: &SessionKey,
    stream: StreamId,
    after: Position,
) -> fjall::Iter {
    let start = layout::event_key(session, stream, Position(after.0.saturating_add(1)));
    let end = layout::event_key(session, stream, Position(u64::MAX));
    keyspaces.events.range(start..=end)
}

/// Reads all streams of a session. No order of reads is enough for that, so it needs a snapshot between two batches.
pub(super) fn survey(
    keyspaces: &Keyspaces,
    view: &Snapshot,
    session: &SessionKey,
) -> Result<Survey, fjall::Error> {
    let log = LogIndex::count(keyspaces, view, session)?;
    let mut streams: BTreeMap<StreamId, Surveyed> = BTreeMap::new();
    let fresh = |stream| Surveyed { stream, last: Position::START, ended: false, note: None };
    for (stream, trimmed) in &log.marks {
        streams.entry(*stream).or_insert_with(|| fresh(*stream)).last = *trimmed;
    }
    for entry in &log.order {
        let known = streams.entry(entry.stream).or_insert_with(|| fresh(entry.stream));
        known.last = entry.position;
        known.ended |= entry.place == EntryPlace::End;
    }
    for entry in view.prefix(&keyspaces.notes, session.as_bytes()) {
        let (key, note) = entry.into_inner()?;
        let Some(stream) = layout::stream_of_note(&key) else { continue };
        let note = Some(Bytes::copy_from_slice(&note));
        streams.entry(stream).or_insert_with(|| fresh(stream)).note = note;
    }
    let highest = streams.keys().next_back().map_or(0, |stream| stream.number() + 1);
    let next_stream = highest.max(log.next_stream);
    Ok(Survey { streams: streams.into_values().collect(), next_stream, kept: log.kept() })
}

pub(super) fn tail(
    keyspaces: &Keyspaces,
    view: &Snapshot,
    session: &SessionKey,
) -> Result<Position, fjall::Error> {
    let log = LogIndex::count(keyspaces, view, session)?;
    Ok(log.order.back().map_or(log.trimmed, |last| last.position))
}
