//! The part of the writer that appends, trims, drops and restores events.
//!
//! An append asks for room first; a removal needs little room, because it frees some. A trim goes through the events of
//! a session in the order of arrival (`log`).

use std::sync::atomic::Ordering;

use fjall::Keyspace;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use tenure_session::id::{Position, SessionKey, StreamId};
use tenure_session::port::clock::{Clock, SystemClock};
use tenure_session::port::store::{EntryPlace, Epoch, Keep, KeptEvents, NewEvent, SavedLog, StoreError};

use super::job::failed;
use super::layout;
use super::log::LogIndex;
use super::room::Growth;
use super::writer::StoreWriter;
use crate::numbers;

/// The most events of all sessions together whose order is kept in memory for trims.
const MAX_COUNTED: usize = 1 << 20;

impl StoreWriter {
    pub(super) fn append(
        &mut self,
        session: SessionKey,
        epoch: Epoch,
        batch: Vec<NewEvent>,
        cost: u64,
    ) -> Result<Vec<Position>, StoreError> {
        if !matches!(self.owner(session)?, Some((Some(_), current)) if current == epoch) {
            return Err(StoreError::Fenced);
        }
        self.admit(cost, Growth::Grows)?;
        self.bytes += cost;
        let mut positions = Vec::with_capacity(batch.len());
        for event in batch {
            let position = Position(self.next());
            positions.push(position);
            match event.place {
                EntryPlace::Note => {
                    let key = layout::stream_prefix(&session, event.stream);
                    self.batch.insert(&self.keyspaces.notes, key, event.body.as_ref());
                    continue;
                }
                EntryPlace::End => {
                    let key = layout::stream_prefix(&session, event.stream);
                    self.batch.remove(&self.keyspaces.notes, key);
                }
                EntryPlace::Middle => {}
            }
            let key = layout::event_key(&session, event.stream, position);
            let value = layout::event_value(event.at, event.place, &event.body);
            self.batch.insert(&self.keyspaces.events, key, value);
            if let Some(log) = self.logs.get_mut(&session) {
                log.push(position, event.stream, event.at, event.body.len(), event.place);
            }
        }
        Ok(positions)
    }

    pub(super) fn trim(&mut self, session: SessionKey, keep: Keep) -> Result<KeptEvents, StoreError> {
        self.count(session)?;
        let Some(log) = self.logs.get_mut(&session) else { return Ok(KeptEvents::default()) };
        let mut marks: HashMap<StreamId, Option<Position>, RandomState> = HashMap::default();
        let (mut removed, mut gone) = (Vec::new(), false);
        while let Some(oldest) = log.order.front() {
            let fits = log.order.len() <= keep.events && log.bytes <= keep.bytes && oldest.at > keep.since;
            if fits {
                break;
            }
            let Some(entry) = log.order.pop_front() else { break };
            log.bytes -= entry.bytes;
            log.trimmed = entry.position;
            removed.push(layout::event_key(&session, entry.stream, entry.position));
            // An open stream keeps a mark, so that its next reader learns of the gap. Complete streams share one entry,
            // which tells their readers the same and reserves their numbers.
            if entry.place == EntryPlace::End {
                log.next_stream = log.next_stream.max(entry.stream.number() + 1);
                gone = true;
            }
            marks.insert(entry.stream, (entry.place == EntryPlace::Middle).then_some(entry.position));
        }
        log.marked_in = Some(self.progress.batch.load(Ordering::Acquire));
        // Order: the shared entry of complete streams, then their own marks, then the events. So a reader that misses
        // an event finds the position that covers it (`read::trimmed`).
        if gone {
            let gone = layout::Gone { next_stream: log.next_stream, trimmed: log.trimmed };
            self.batch.insert(&self.keyspaces.events, layout::gone_key(&session), layout::gone_value(gone));
        }
        for (stream, mark) in marks {
            let key = layout::event_key(&session, stream, Position::START);
            match mark {
                Some(position) => self.batch.insert(&self.keyspaces.events, key, position.0.to_be_bytes()),
                None => self.batch.remove(&self.keyspaces.events, key),
            }
        }
        self.progress.removed.fetch_add(removed.len() as u64, Ordering::AcqRel);
        for key in removed {
            self.batch.remove(&self.keyspaces.events, key);
        }
        Ok(log.kept())
    }

    /// Loads the order of a session's events, and makes sure that the batch holds no marks of the session.
    fn count(&mut self, session: SessionKey) -> Result<(), StoreError> {
        if let Some(log) = self.logs.get(&session) {
            // If one batch writes the same mark twice, the mark is missing for a moment in between, and a reader must
            // never find it missing.
            if log.marked_in == Some(self.progress.batch.load(Ordering::Acquire)) {
                self.commit();
            }
            return Ok(());
        }
        // Counting reads committed entries, so commit the batch first.
        self.commit();
        let view = self.keyspaces.database.snapshot();
        let log = LogIndex::count(&self.keyspaces, &view, &session).map_err(failed)?;
        // The order can always be read again, so it is not kept for every session that was ever trimmed.
        let counted: usize = self.logs.values().map(|log| log.order.len()).sum();
        if counted + log.order.len() > MAX_COUNTED {
            self.logs.clear();
        }
        self.logs.insert(session, log);
        Ok(())
    }

    pub(super) fn drop_session(&mut self, session: SessionKey) -> Result<(), StoreError> {
        self.drop_events(session)?;
        self.batch.remove(&self.keyspaces.owners, session.as_bytes().as_slice());
        self.owners.insert(session, None);
        Ok(())
    }

    fn drop_events(&mut self, session: SessionKey) -> Result<(), StoreError> {
        // The engine cannot delete a range: every key is removed by itself, so all keys must be committed.
        self.commit();
        self.logs.remove(&session);
        // Read all keys before the first removal goes into the batch: if reading fails, nothing is removed.
        // Copied: a key that was read is a slice of its block, events included, and the removal would keep the block in
        // memory until it is in a table itself.
        let keys = |keyspace: &Keyspace| -> Result<Vec<Vec<u8>>, StoreError> {
            let entries = keyspace.prefix(session.as_bytes());
            entries.map(|entry| entry.key().map(|key| key.to_vec()).map_err(failed)).collect()
        };
        let (events, notes) = (keys(&self.keyspaces.events)?, keys(&self.keyspaces.notes)?);
        self.progress.removed.fetch_add((events.len() + notes.len()) as u64, Ordering::AcqRel);
        for (keyspace, keys) in [(&self.keyspaces.events, events), (&self.keyspaces.notes, notes)] {
            // Last key first: a reader goes the other way, so the events that it finds have no gap.
            for key in keys.into_iter().rev() {
                self.batch.remove(keyspace, key);
            }
        }
        Ok(())
    }

    pub(super) fn restore(
        &mut self,
        session: SessionKey,
        log: SavedLog,
        cost: u64,
    ) -> Result<(), StoreError> {
        self.admit(cost, Growth::Grows)?;
        self.drop_events(session)?;
        self.bytes += cost;
        let events = &self.keyspaces.events;
        for saved in log.streams {
            let stream = saved.stream;
            if let Some(note) = saved.note {
                let key = layout::stream_prefix(&session, stream);
                self.batch.insert(&self.keyspaces.notes, key, note.as_ref());
            }
            if saved.trimmed > Position::START {
                let key = layout::event_key(&session, stream, Position::START);
                self.batch.insert(events, key, saved.trimmed.0.to_be_bytes());
            }
            for event in saved.events {
                let key = layout::event_key(&session, stream, event.position);
                let value = layout::event_value(event.at, event.place, &event.body);
                self.batch.insert(events, key, value);
                self.sequence = self.sequence.max(event.position.0);
            }
            self.sequence = self.sequence.max(saved.trimmed.0);
        }
        let gone = layout::Gone { next_stream: log.next_stream, trimmed: log.trimmed };
        self.batch.insert(events, layout::gone_key(&session), layout::gone_value(gone));
        // The store that the session was saved from may have given out more numbers since.
        self.sequence = self.sequence.max(gone.trimmed.0).max(numbers::at(SystemClock.now()));
        Ok(())
    }
}
