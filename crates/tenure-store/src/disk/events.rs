//! How the writer deals with events: appending, trimming, dropping and restoring them.
//!
//! Appending asks for room first; what removes needs little of it, because it makes room. Trimming goes by a list of
//! what a session has, in the order it came, which is read once and then kept up to date.

use std::sync::atomic::Ordering;

use fjall::Keyspace;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use tenure_session::id::{Position, SessionKey, StreamId};
use tenure_session::port::clock::{Clock, SystemClock};
use tenure_session::port::store::{Epoch, Keep, Kept, NewEvent, Place, SavedLog, StoreError};

use super::job::failed;
use super::layout;
use super::log::Log;
use super::room::Growth;
use super::writer::Writer;
use crate::numbers;

/// Events of all sessions together whose order is kept at hand for trimming.
const MAX_COUNTED: usize = 1 << 20;

impl Writer {
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
                Place::Note => {
                    let key = layout::stream_prefix(&session, event.stream);
                    self.batch.insert(&self.keyspaces.notes, key, event.body.as_ref());
                    continue;
                }
                Place::End => {
                    let key = layout::stream_prefix(&session, event.stream);
                    self.batch.remove(&self.keyspaces.notes, key);
                }
                Place::Middle => {}
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

    pub(super) fn trim(&mut self, session: SessionKey, keep: Keep) -> Result<Kept, StoreError> {
        self.count(session)?;
        let Some(log) = self.logs.get_mut(&session) else { return Ok(Kept::default()) };
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
            // An open stream keeps a mark, so that its next reader learns of the gap. Complete ones share an entry,
            // which tells their readers the same, and keeps later streams from taking their numbers.
            if entry.place == Place::End {
                log.next_stream = log.next_stream.max(entry.stream.number() + 1);
                gone = true;
            }
            marks.insert(entry.stream, (entry.place == Place::Middle).then_some(entry.position));
        }
        log.marked_in = Some(self.progress.batch.load(Ordering::Acquire));
        // What is said of complete streams comes before their own marks go, and all of it before any event goes: a
        // reader that misses an event finds what covers it (`read::trimmed`).
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

    /// Sees that the order of a session's events is at hand, and that the batch has no marks of the session yet.
    fn count(&mut self, session: SessionKey) -> Result<(), StoreError> {
        if let Some(log) = self.logs.get(&session) {
            // A mark that is written twice in one batch is taken away before it is there again, and a reader must
            // not find it missing.
            if log.marked_in == Some(self.progress.batch.load(Ordering::Acquire)) {
                self.commit();
            }
            return Ok(());
        }
        // Counting reads what is committed, so what is in the batch has to be committed first.
        self.commit();
        let view = self.keyspaces.database.snapshot();
        let log = Log::count(&self.keyspaces, &view, &session).map_err(failed)?;
        // It can always be counted anew, so it is not kept of everyone who was ever trimmed.
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
        // There is no delete of a range: every key is removed by itself, so all must be visible.
        self.commit();
        self.logs.remove(&session);
        // All keys are read before the first goes into the batch: if reading fails, nothing is removed.
        let keys = |keyspace: &Keyspace| -> Result<Vec<_>, StoreError> {
            keyspace.prefix(session.as_bytes()).map(|entry| entry.key().map_err(failed)).collect()
        };
        let (events, notes) = (keys(&self.keyspaces.events)?, keys(&self.keyspaces.notes)?);
        self.progress.removed.fetch_add((events.len() + notes.len()) as u64, Ordering::AcqRel);
        for (keyspace, keys) in [(&self.keyspaces.events, events), (&self.keyspaces.notes, notes)] {
            // The last first: a reader goes the other way, so what it finds of a stream has no hole.
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
        // The store that the session comes from may have given out more since it was saved.
        self.sequence = self.sequence.max(gone.trimmed.0).max(numbers::at(SystemClock.now()));
        Ok(())
    }
}
