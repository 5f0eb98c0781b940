//! The one thread that writes: takes what has queued up and commits it at once.
//!
//! While one batch is on its way to the disk the next one collects, so writers share a sync without any
//! timer. A batch does not see its own writes, so what it changes is remembered beside it until it is
//! committed. An engine that fails a commit is not trusted again: it is closed for writing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use fjall::{OwnedWriteBatch as WriteBatch, PersistMode};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use tenure_session::id::{NodeId, Position, SessionKey, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{
    Epoch, Expected, Keep, Kept, NewEvent, Place, RecordKey, SavedLog, StoreError, Version,
};
use tokio::sync::{Notify, mpsc, oneshot};

use super::layout::{self, Keyspaces};
use super::log::Log;

/// Writes that share a commit, at most.
const MAX_JOBS: usize = 1024;

/// Bytes that share a commit, at most; one write always fits.
const MAX_BYTES: usize = 8 << 20;

/// How far numbers leap when a store is opened: more than can be written between two syncs.
const LEAP: u64 = 1 << 20;

type Done<T> = oneshot::Sender<Result<T, StoreError>>;

/// Something to write, and whom to tell.
pub(super) enum Write {
    Put { key: RecordKey, value: Bytes, expected: Expected, deadline: Option<Time>, done: Done<Version> },
    Delete { key: RecordKey, expected: Version, done: Done<()> },
    Claim { session: SessionKey, node: NodeId, expected: Option<Epoch>, done: Done<Epoch> },
    Release { session: SessionKey, epoch: Epoch, done: Done<()> },
    Append { session: SessionKey, epoch: Epoch, batch: Vec<NewEvent>, done: Done<Vec<Position>> },
    Trim { session: SessionKey, keep: Keep, done: Done<Kept> },
    Drop { session: SessionKey, done: Done<()> },
    Restore { session: SessionKey, log: SavedLog, done: Done<()> },
}

impl Write {
    fn bytes(&self) -> usize {
        match self {
            Self::Put { value, .. } => value.len(),
            Self::Append { batch, .. } => batch.iter().map(|event| event.body.len()).sum(),
            Self::Restore { log, .. } => {
                log.streams.iter().flat_map(|stream| &stream.events).map(|event| event.body.len()).sum()
            }
            _ => 0,
        }
    }
}

/// What others see of the writer.
#[derive(Default)]
pub(super) struct Progress {
    /// The number of the last batch that was committed.
    pub(super) batch: AtomicU64,
    /// A commit failed: nothing is written any more.
    pub(super) poisoned: AtomicBool,
}

pub(super) struct Writer {
    keyspaces: Arc<Keyspaces>,
    progress: Arc<Progress>,
    persist: PersistMode,
    /// The last number that was given to a version or a position.
    sequence: u64,
    batch: WriteBatch,
    /// What the batch changes, as later writes of the same batch must see it.
    records: HashMap<RecordKey, Option<(Version, Option<Time>)>, RandomState>,
    owners: HashMap<SessionKey, Option<(Option<NodeId>, Epoch)>, RandomState>,
    /// Called when the batch is committed, or has failed.
    answers: Vec<Box<dyn FnOnce(bool) + Send>>,
    /// What is kept of sessions that were trimmed before; the others are counted when first asked for.
    logs: HashMap<SessionKey, Log, RandomState>,
}

impl Writer {
    pub(super) fn new(
        keyspaces: Arc<Keyspaces>,
        progress: Arc<Progress>,
        persist: PersistMode,
    ) -> Result<Self, fjall::Error> {
        // A loss of power may have taken writes whose numbers were already told to clients. The leap is wider
        // than what can be lost, so that no number ever means two things.
        let sequence = keyspaces.number(layout::META_SEQUENCE)?.map_or(0, |last| last + LEAP);
        progress.batch.store(keyspaces.number(layout::META_BATCH)?.unwrap_or(0), Ordering::Release);
        let batch = keyspaces.database.batch();
        Ok(Self {
            keyspaces,
            progress,
            persist,
            sequence,
            batch,
            records: HashMap::default(),
            owners: HashMap::default(),
            answers: Vec::new(),
            logs: HashMap::default(),
        })
    }

    /// Runs until it is told to close; what was sent until then is written.
    pub(super) async fn run(mut self, mut jobs: mpsc::Receiver<Write>, close: Arc<Notify>) {
        loop {
            let first = tokio::select! {
                first = jobs.recv() => first,
                () = close.notified() => {
                    jobs.close();
                    continue;
                }
            };
            let Some(first) = first else { break };
            let mut bytes = first.bytes();
            self.take(first);
            let mut taken = 1;
            while taken < MAX_JOBS && bytes < MAX_BYTES {
                let Ok(job) = jobs.try_recv() else { break };
                bytes += job.bytes();
                self.take(job);
                taken += 1;
            }
            self.commit();
        }
        // The last word: everything is on the disk when the store is closed in order.
        if let Err(error) = self.keyspaces.database.persist(PersistMode::SyncAll) {
            tracing::error!(%error, "could not sync the store at its end");
        }
    }

    /// Puts a write into the batch, or refuses it.
    fn take(&mut self, write: Write) {
        if self.progress.poisoned.load(Ordering::Acquire) {
            refuse(write, &poisoned());
            return;
        }
        match write {
            Write::Put { key, value, expected, deadline, done } => {
                let outcome = self.put(key, &value, expected, deadline);
                self.answer(done, outcome);
            }
            Write::Delete { key, expected, done } => {
                let outcome = self.delete(key, expected);
                self.answer(done, outcome);
            }
            Write::Claim { session, node, expected, done } => {
                let outcome = self.claim(session, node, expected);
                self.answer(done, outcome);
            }
            Write::Release { session, epoch, done } => {
                let outcome = self.release(session, epoch);
                self.answer(done, outcome);
            }
            Write::Append { session, epoch, batch, done } => {
                let outcome = self.append(session, epoch, batch);
                self.answer(done, outcome);
            }
            Write::Trim { session, keep, done } => {
                let outcome = self.trim(session, keep);
                self.answer(done, outcome);
            }
            Write::Drop { session, done } => {
                let outcome = self.drop_session(session);
                self.answer(done, outcome);
            }
            Write::Restore { session, log, done } => {
                let outcome = self.restore(session, log);
                self.answer(done, outcome);
            }
        }
    }

    /// A refusal is told at once; a success only when it is committed.
    fn answer<T: Send + 'static>(&mut self, done: Done<T>, outcome: Result<T, StoreError>) {
        match outcome {
            // Whoever asked may be gone; then nobody wants to know.
            Err(error) => drop(done.send(Err(error))),
            Ok(value) => self.answers.push(Box::new(move |committed| {
                drop(done.send(if committed { Ok(value) } else { Err(StoreError::Unknown) }));
            })),
        }
    }

    fn commit(&mut self) {
        let answers = std::mem::take(&mut self.answers);
        self.records.clear();
        self.owners.clear();
        let mut batch = std::mem::replace(&mut self.batch, self.keyspaces.database.batch());
        let mut committed = true;
        if !batch.is_empty() {
            let number = self.progress.batch.load(Ordering::Acquire) + 1;
            batch.insert(&self.keyspaces.meta, layout::META_SEQUENCE, self.sequence.to_be_bytes());
            batch.insert(&self.keyspaces.meta, layout::META_BATCH, number.to_be_bytes());
            match batch.durability(Some(self.persist)).commit() {
                Ok(()) => self.progress.batch.store(number, Ordering::Release),
                Err(error) => {
                    tracing::error!(%error, "a commit failed: the store takes no more writes");
                    self.progress.poisoned.store(true, Ordering::Release);
                    committed = false;
                }
            }
        }
        for answer in answers {
            answer(committed);
        }
    }

    fn next(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn record(&self, key: RecordKey) -> Result<Option<(Version, Option<Time>)>, StoreError> {
        if let Some(changed) = self.records.get(&key) {
            return Ok(*changed);
        }
        let value = self.keyspaces.records.get(layout::record_key(key)).map_err(failed)?;
        let record = value.and_then(|value| layout::read_record(&value));
        Ok(record.map(|record| (record.version, record.deadline)))
    }

    fn put(
        &mut self,
        key: RecordKey,
        value: &Bytes,
        expected: Expected,
        deadline: Option<Time>,
    ) -> Result<Version, StoreError> {
        let current = self.record(key)?;
        let fits = match (expected, current) {
            (Expected::Absent, None) => true,
            (Expected::Version(version), Some((current, _))) => version == current,
            _ => false,
        };
        if !fits {
            return Err(StoreError::Conflict { current: current.map(|(version, _)| version) });
        }
        let version = Version(self.next());
        self.move_deadline(key, current.and_then(|(_, deadline)| deadline), deadline);
        let written = layout::record_value(version, deadline, value);
        self.batch.insert(&self.keyspaces.records, layout::record_key(key), written);
        self.records.insert(key, Some((version, deadline)));
        Ok(version)
    }

    fn delete(&mut self, key: RecordKey, expected: Version) -> Result<(), StoreError> {
        match self.record(key)? {
            Some((version, deadline)) if version == expected => {
                self.move_deadline(key, deadline, None);
                self.batch.remove(&self.keyspaces.records, layout::record_key(key));
                self.records.insert(key, None);
                Ok(())
            }
            other => Err(StoreError::Conflict { current: other.map(|(version, _)| version) }),
        }
    }

    fn move_deadline(&mut self, key: RecordKey, from: Option<Time>, to: Option<Time>) {
        if from == to {
            return;
        }
        if let Some(from) = from {
            self.batch.remove(&self.keyspaces.deadlines, layout::deadline_key(from, key));
        }
        if let Some(to) = to {
            self.batch.insert(&self.keyspaces.deadlines, layout::deadline_key(to, key), []);
        }
    }

    fn owner(&self, session: SessionKey) -> Result<Option<(Option<NodeId>, Epoch)>, StoreError> {
        if let Some(changed) = self.owners.get(&session) {
            return Ok(*changed);
        }
        let value = self.keyspaces.owners.get(session.as_bytes()).map_err(failed)?;
        Ok(value.and_then(|value| layout::read_owner(&value)))
    }

    fn set_owner(&mut self, session: SessionKey, owner: Option<NodeId>, epoch: Epoch) {
        let value = layout::owner_value(owner, epoch);
        self.batch.insert(&self.keyspaces.owners, session.as_bytes().as_slice(), value);
        self.owners.insert(session, Some((owner, epoch)));
    }

    fn claim(
        &mut self,
        session: SessionKey,
        node: NodeId,
        expected: Option<Epoch>,
    ) -> Result<Epoch, StoreError> {
        let current = self.owner(session)?.map(|(_, epoch)| epoch);
        if current != expected {
            return Err(StoreError::Fenced);
        }
        let epoch = Epoch(self.next());
        self.set_owner(session, Some(node), epoch);
        Ok(epoch)
    }

    fn release(&mut self, session: SessionKey, epoch: Epoch) -> Result<(), StoreError> {
        match self.owner(session)? {
            Some((Some(_), current)) if current == epoch => {
                self.set_owner(session, None, epoch);
                // Whoever claims it next counts its events anew.
                self.logs.remove(&session);
                Ok(())
            }
            _ => Err(StoreError::Fenced),
        }
    }

    fn append(
        &mut self,
        session: SessionKey,
        epoch: Epoch,
        batch: Vec<NewEvent>,
    ) -> Result<Vec<Position>, StoreError> {
        if !matches!(self.owner(session)?, Some((Some(_), current)) if current == epoch) {
            return Err(StoreError::Fenced);
        }
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

    fn trim(&mut self, session: SessionKey, keep: Keep) -> Result<Kept, StoreError> {
        if !self.logs.contains_key(&session) {
            // Counting reads what is committed, so what is in the batch has to be committed first.
            self.commit();
            let log = Log::count(&self.keyspaces, &session).map_err(failed)?;
            self.logs.insert(session, log);
        }
        let Some(log) = self.logs.get_mut(&session) else { return Ok(Kept::default()) };
        let mut marks: HashMap<StreamId, Option<Position>, RandomState> = HashMap::default();
        let mut gone = false;
        while let Some(oldest) = log.order.front() {
            let fits = log.order.len() <= keep.events && log.bytes <= keep.bytes && oldest.at > keep.since;
            if fits {
                break;
            }
            let Some(entry) = log.order.pop_front() else { break };
            log.bytes -= entry.bytes;
            log.trimmed = entry.position;
            let key = layout::event_key(&session, entry.stream, entry.position);
            self.batch.remove(&self.keyspaces.events, key);
            // An open stream keeps a mark, so that its next reader learns of the gap. Of a complete one only
            // its number is remembered, so that no later stream takes it.
            if entry.place == Place::End {
                log.next_stream = log.next_stream.max(entry.stream.number() + 1);
                gone = true;
            }
            marks.insert(entry.stream, (entry.place == Place::Middle).then_some(entry.position));
        }
        if gone {
            let next = u64::from(log.next_stream).to_be_bytes();
            self.batch.insert(&self.keyspaces.events, layout::next_stream_key(&session), next);
        }
        for (stream, mark) in marks {
            let key = layout::event_key(&session, stream, Position::START);
            match mark {
                Some(position) => self.batch.insert(&self.keyspaces.events, key, position.0.to_be_bytes()),
                None => self.batch.remove(&self.keyspaces.events, key),
            }
        }
        Ok(log.kept())
    }

    fn drop_session(&mut self, session: SessionKey) -> Result<(), StoreError> {
        self.drop_events(session)?;
        self.batch.remove(&self.keyspaces.owners, session.as_bytes().as_slice());
        self.owners.insert(session, None);
        Ok(())
    }

    fn drop_events(&mut self, session: SessionKey) -> Result<(), StoreError> {
        // There is no delete of a range: every key is removed by itself, so all must be visible.
        self.commit();
        self.logs.remove(&session);
        for keyspace in [&self.keyspaces.events, &self.keyspaces.notes] {
            for entry in keyspace.prefix(session.as_bytes()) {
                let key = entry.key().map_err(failed)?;
                self.batch.remove(keyspace, key);
            }
        }
        Ok(())
    }

    fn restore(&mut self, session: SessionKey, log: SavedLog) -> Result<(), StoreError> {
        self.drop_events(session)?;
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
        let next = u64::from(log.next_stream).to_be_bytes();
        self.batch.insert(events, layout::next_stream_key(&session), next);
        Ok(())
    }
}

fn refuse(write: Write, error: &StoreError) {
    // Whoever asked may be gone; then nobody wants to know.
    match write {
        Write::Put { done, .. } => drop(done.send(Err(error.clone()))),
        Write::Delete { done, .. } | Write::Release { done, .. } | Write::Drop { done, .. } | Write::Restore { done, .. } => {
            drop(done.send(Err(error.clone())));
        }
        Write::Claim { done, .. } => drop(done.send(Err(error.clone()))),
        Write::Append { done, .. } => drop(done.send(Err(error.clone()))),
        Write::Trim { done, .. } => drop(done.send(Err(error.clone()))),
    }
}

pub(super) fn poisoned() -> StoreError {
    StoreError::Unavailable("an earlier write failed; restart to go on from what is on disk".to_owned())
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
pub(super) fn failed(error: fjall::Error) -> StoreError {
    StoreError::Unavailable(error.to_string())
}
