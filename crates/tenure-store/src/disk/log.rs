//! The kept events of one session in the order of arrival, without their bodies. The writer reads them once from the
//! disk and then keeps them up to date.

use std::collections::VecDeque;

use fjall::{Readable, Snapshot};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use tenure_session::id::{Position, SessionKey, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{EntryPlace, KeptEvents};

use super::layout::{self, Keyspaces};

#[derive(Default)]
pub(super) struct LogIndex {
    pub(super) order: VecDeque<IndexedEvent>,
    pub(super) bytes: usize,
    pub(super) trimmed: Position,
    /// The trimmed positions of streams, as they were on the disk when this was read.
    pub(super) marks: HashMap<StreamId, Position, RandomState>,
    /// One more than the highest stream that was trimmed away.
    pub(super) next_stream: u32,
    /// The last committed batch at the time when a trim last wrote marks of this session into the next batch.
    pub(super) marked_in: Option<u64>,
}

pub(super) struct IndexedEvent {
    pub(super) position: Position,
    pub(super) stream: StreamId,
    pub(super) at: Time,
    pub(super) bytes: usize,
    pub(super) place: EntryPlace,
}

impl LogIndex {
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
                entries.push(IndexedEvent { position, stream, at, bytes, place });
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
        place: EntryPlace,
    ) {
        self.bytes += bytes;
        self.order.push_back(IndexedEvent { position, stream, at, bytes, place });
    }

    pub(super) fn kept(&self) -> KeptEvents {
        let oldest = self.order.front().map(|entry| entry.at);
        KeptEvents { events: self.order.len(), bytes: self.bytes, oldest, trimmed: self.trimmed }
    }
}
