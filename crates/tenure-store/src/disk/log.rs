//! What is kept of a session's events, in the order they came: read once from the disk, then kept up to date.

use std::collections::VecDeque;

use fjall::{Readable, Snapshot};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use tenure_session::id::{Position, SessionKey, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{Kept, Place};

use super::layout::{self, Keyspaces};

#[derive(Default)]
pub(super) struct Log {
    pub(super) order: VecDeque<Entry>,
    pub(super) bytes: usize,
    pub(super) trimmed: Position,
    /// Up to where streams were trimmed, as it stood on the disk when this was read.
    pub(super) marks: HashMap<StreamId, Position, RandomState>,
    /// One more than the highest stream that was trimmed away.
    pub(super) next_stream: u32,
    /// The last batch that was committed when marks of this session were last put into the next one.
    pub(super) marked_in: Option<u64>,
}

pub(super) struct Entry {
    pub(super) position: Position,
    pub(super) stream: StreamId,
    pub(super) at: Time,
    pub(super) bytes: usize,
    pub(super) place: Place,
}

impl Log {
    pub(super) fn count(
        keyspaces: &Keyspaces,
        view: &Snapshot,
        session: &SessionKey,
    ) -> Result<Self, fjall::Error> {
        let mut log = Self::default();
        let mut entries = Vec::new();
        for entry in view.prefix(&keyspaces.events, session.as_bytes()) {
            let (key, value) = entry.into_inner()?;
            let Some((stream, position)) = layout::place_of_event(&key) else { continue };
            if stream == layout::NO_STREAM {
                let gone = layout::read_gone(&value).unwrap_or_default();
                log.next_stream = gone.next_stream;
                log.trimmed = log.trimmed.max(gone.trimmed);
            } else if position == Position::START {
                let mark = Position(layout::read_u64(&value, 0).unwrap_or_default());
                log.trimmed = log.trimmed.max(mark);
                log.marks.insert(stream, mark);
            } else if let Some(event) = layout::read_event(position, &value) {
                let (at, bytes, place) = (event.at, event.body.len(), event.place);
                entries.push(Entry { position, stream, at, bytes, place });
            }
        }
        entries.sort_unstable_by_key(|entry| entry.position);
        log.bytes = entries.iter().map(|entry| entry.bytes).sum();
        log.order = entries.into();
        Ok(log)
    }

    pub(super) fn push(
        &mut self,
        position: Position,
        stream: StreamId,
        at: Time,
        bytes: usize,
        place: Place,
    ) {
        self.bytes += bytes;
        self.order.push_back(Entry { position, stream, at, bytes, place });
    }

    pub(super) fn kept(&self) -> Kept {
        let oldest = self.order.front().map(|entry| entry.at);
        Kept { events: self.order.len(), bytes: self.bytes, oldest, trimmed: self.trimmed }
    }
}
