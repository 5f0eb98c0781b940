//! What is read from the engine, on threads that may wait for the disk.
//!
//! Readers do not wait for the writer. They see the entries of a batch one after the other, in the order in which
//! the writer put them in: the engine applies them in that order to what it holds in memory, and a read takes the
//! newest entry of a key, whether or not the rest of its batch is there yet. So a read that needs several entries
//! to be of one moment relies on two orders and on nothing else: that in which they are written, and that in which
//! it reads them. An entry that was read shows that all entries before it in its batch can be read from then on. Where
//! that is not enough, the writer is asked for a view between two batches.

use std::collections::BTreeMap;

use bytes::Bytes;
use fjall::{Readable, Snapshot};
use tenure_session::id::{Position, SessionKey, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{
    Place, ReadLimit, Record, RecordKey, Space, Stretch, Survey, Surveyed, Version,
};

use super::layout::{self, Keyspaces};
use super::log::Log;

/// Every record stands for itself here, so it does not matter that they are read at different moments: one that is
/// written meanwhile is listed as it was or as it is.
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
        // The record is read later than the index. One that was renewed meanwhile has another deadline by now, and
        // its new version must not be taken for the one that was due.
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
) -> Result<Stretch, fjall::Error> {
    let mut stretch = Stretch::default();
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
    // A trim that has got past the whole stretch meanwhile is for the next read to tell: what is missing of this one
    // lies before its last event. To read again until nothing is trimmed meanwhile might never end.
    stretch.trimmed = stretch.events.last().map_or(trimmed, |last| trimmed.min(last.position));
    Ok(stretch)
}

/// Up to where a stream was trimmed, of which events were read and `first` was the first that was there.
///
/// This comes after the events, and a trim writes what is read here before it removes any of them (`Writer::trim`). So
/// if an event was missing because it is removed, what covers it can be read by now. In the other order a trim between
/// the two reads would take events that nothing tells of.
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
    // Without a mark nothing of the stream was trimmed, or all of it: its mark goes after this entry is there.
    let gone = keyspaces.events.get(layout::gone_key(session))?;
    let gone = gone.and_then(|gone| layout::read_gone(&gone)).unwrap_or_default();
    if gone.trimmed == Position::START {
        return Ok(Position::START);
    }
    let first = match first {
        Some(first) => Some(first),
        // All that is left of the stream may lie before what was asked for.
        None => {
            let first = events_after(keyspaces, session, stream, Position::START).next();
            let key = first.map(fjall::Guard::key).transpose()?;
            key.and_then(|key| layout::place_of_event(&key)).map(|(_, position)| position)
        }
    };
    let is_gone = match first {
        // Nothing at or before this position is kept, so this event was removed while it was read.
        Some(first) => first <= gone.trimmed,
        // A stream that is open and had no event yet has a note.
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

/// Reads all streams of a session. No order of reads would do for that, so it takes a view between two batches.
pub(super) fn survey(
    keyspaces: &Keyspaces,
    view: &Snapshot,
    session: &SessionKey,
) -> Result<Survey, fjall::Error> {
    let log = Log::count(keyspaces, view, session)?;
    let mut streams: BTreeMap<StreamId, Surveyed> = BTreeMap::new();
    let fresh = |stream| Surveyed { stream, last: Position::START, ended: false, note: None };
    for (stream, trimmed) in &log.marks {
        streams.entry(*stream).or_insert_with(|| fresh(*stream)).last = *trimmed;
    }
    for entry in &log.order {
        let known = streams.entry(entry.stream).or_insert_with(|| fresh(entry.stream));
        known.last = entry.position;
        known.ended |= entry.place == Place::End;
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
    let log = Log::count(keyspaces, view, session)?;
    Ok(log.order.back().map_or(log.trimmed, |last| last.position))
}
