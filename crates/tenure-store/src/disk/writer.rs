//! The one thread that writes: takes all queued jobs and commits them as one batch.
//!
//! While one batch is written, the next jobs queue up, so callers share a sync without any timer. The engine does not
//! show an uncommitted batch, so the writer keeps the changes of the current batch in maps of its own. After a failed
//! commit the engine is not trusted again: it takes no more writes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use fjall::{AbstractTree, OwnedWriteBatch as WriteBatch, PersistMode, Snapshot};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use tenure_session::id::{NodeId, SessionKey};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{Epoch, Expected, Record, RecordKey, StoreError, Version};
use tokio::sync::{Notify, mpsc};

use super::job::{DoneSender, ENTRY_BYTES, Write, WriterProgress, failed, poisoned};
use super::layout::{self, Keyspaces};
use super::log::LogIndex;
use super::recent::Recent;
use super::room::{Growth, Room};

/// The most jobs in one commit.
const MAX_JOBS: usize = 1024;

/// The most bytes in one commit; a single job may be larger.
const MAX_BYTES: u64 = 8 << 20;

/// Bytes that a keyspace may have in memory before they are written into a table. The engine does that by itself too,
/// but only when its threads have time: until then its memory grows, and after a kill all of it is read again.
///
/// Four times as much can be in memory: the table that is written to, one that waits, one on its way to the disk, and the
/// last one that came there, which the engine keeps until it begins the next.
pub(super) const MEMORY_BYTES: u64 = 8 << 20;

/// The most tables of a keyspace on their way to the disk when another one is begun. The engine itself allows four, and
/// then sleeps for 100 ms at a time.
pub(super) const MAX_SEALED: usize = 1;

/// The pause between two looks whether they have come there.
const SEALED_LOOK: Duration = Duration::from_millis(1);

/// The most looks. A disk that takes longer than this for a table gets the engine's own bound. Short beside the five seconds
/// that a stop waits for the store.
const SEALED_LOOKS: u32 = 1000;

/// The writer checks the memory of the keyspaces after this many bytes.
const LOOK_BYTES: u64 = 1 << 20;

/// The most owners in the cache.
const MAX_OWNERS: usize = 1 << 16;

/// The stored record, as far as a write that replaces it needs to know it.
#[derive(Clone, Copy)]
struct CurrentRecord {
    version: Version,
    deadline: Option<Time>,
    bytes: usize,
}

impl CurrentRecord {
    fn of(record: &Record) -> Self {
        Self { version: record.version, deadline: record.deadline, bytes: record.value.len() }
    }
}

pub(super) struct StoreWriter {
    pub(super) keyspaces: Arc<Keyspaces>,
    pub(super) progress: Arc<WriterProgress>,
    room: Arc<Room>,
    recent: Arc<Recent>,
    persist: PersistMode,
    /// The last number that was given to a version or a position.
    pub(super) sequence: u64,
    pub(super) batch: WriteBatch,
    /// Estimated journal bytes of the batch.
    pub(super) bytes: u64,
    /// Bytes written since the memory of the keyspaces was last checked.
    unseen: u64,
    /// Records that the batch changes, for later writes of the same batch.
    records: HashMap<RecordKey, Option<Record>, RandomState>,
    /// Owners of sessions that were used lately.
    pub(super) owners: HashMap<SessionKey, Option<(Option<NodeId>, Epoch)>, RandomState>,
    /// Called when the batch is committed or has failed.
    answers: Vec<Box<dyn FnOnce(bool) + Send>>,
    /// Callers that wait for a snapshot after the batch.
    views: Vec<DoneSender<Snapshot>>,
    /// The kept events of sessions that were trimmed before; a first trim reads them from the engine.
    pub(super) logs: HashMap<SessionKey, LogIndex, RandomState>,
}

impl StoreWriter {
    pub(super) fn new(
        keyspaces: Arc<Keyspaces>,
        progress: Arc<WriterProgress>,
        room: Arc<Room>,
        recent: Arc<Recent>,
        persist: PersistMode,
        sequence: u64,
    ) -> Result<Self, fjall::Error> {
        progress.batch.store(keyspaces.number(layout::META_BATCH)?.unwrap_or(0), Ordering::Release);
        let batch = keyspaces.database.batch();
        Ok(Self {
            keyspaces,
            progress,
            room,
            recent,
            persist,
            sequence,
            batch,
            bytes: 0,
            unseen: 0,
            records: HashMap::default(),
            owners: HashMap::default(),
            answers: Vec::new(),
            views: Vec::new(),
            logs: HashMap::default(),
        })
    }

    /// Runs until `close` is notified, and writes every job that was sent before.
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
            self.take(first);
            let mut taken = 1;
            while taken < MAX_JOBS && self.bytes < MAX_BYTES {
                let Ok(job) = jobs.try_recv() else { break };
                self.take(job);
                taken += 1;
            }
            self.commit();
        }
        // A store that is closed in good order is synced as a whole.
        if !self.progress.is_poisoned()
            && let Err(error) = self.keyspaces.database.persist(PersistMode::SyncAll)
        {
            tracing::error!(%error, "could not sync the store when it was closed");
        }
    }

    /// Puts a write into the batch, or refuses it.
    fn take(&mut self, write: Write) {
        if self.progress.is_poisoned() {
            return write.refuse(&poisoned());
        }
        let bytes = write.bytes();
        if write.only_removes()
            && let Err(error) = self.admit(bytes, Growth::Shrinks)
        {
            return write.refuse(&error);
        }
        match write {
            Write::Put { key, value, expected, deadline, done } => {
                let outcome = self.put(key, &value, expected, deadline, bytes);
                self.answer(done, outcome);
            }
            Write::Delete { key, expected, done } => {
                let outcome = self.delete(key, expected);
                self.answer(done, outcome);
            }
            Write::Claim { session, node, expected, done } => {
                let outcome = self.claim(session, node, expected, bytes);
                self.answer(done, outcome);
            }
            Write::Release { session, epoch, done } => {
                let outcome = self.release(session, epoch);
                self.answer(done, outcome);
            }
            Write::Append { session, epoch, batch, done } => {
                let outcome = self.append(session, epoch, batch, bytes);
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
                let outcome = self.restore(session, log, bytes);
                self.answer(done, outcome);
            }
            Write::Freeze { done } => self.views.push(done),
        }
    }

    /// Whether there is room for a write beside what the batch already holds.
    pub(super) fn admit(&self, bytes: u64, growth: Growth) -> Result<(), StoreError> {
        self.room.admit(self.bytes + bytes, growth)
    }

    /// Queues an answer until the batch is committed. Refusals wait too: the reason may be another write of the same
    /// batch, and the refused caller must be able to read that write.
    fn answer<T: Send + 'static>(&mut self, done: DoneSender<T>, outcome: Result<T, StoreError>) {
        self.answers.push(Box::new(move |committed| {
            let outcome = match outcome {
                Ok(_) if !committed => Err(StoreError::Unknown),
                outcome => outcome,
            };
            // Sending fails if the caller has gone, which does not matter.
            drop(done.send(outcome));
        }));
    }

    pub(super) fn commit(&mut self) {
        let answers = std::mem::take(&mut self.answers);
        // Every claim goes through this writer, so the cached owners stay true. The cache saves a read per append.
        if self.owners.len() > MAX_OWNERS {
            self.owners.clear();
        }
        let mut batch = std::mem::replace(&mut self.batch, self.keyspaces.database.batch());
        let bytes = std::mem::take(&mut self.bytes).max(batch.len() as u64 * ENTRY_BYTES);
        let (mut committed, mut written) = (true, 0);
        if !batch.is_empty() {
            let number = self.progress.batch.load(Ordering::Acquire) + 1;
            batch.insert(&self.keyspaces.meta, layout::META_SEQUENCE, self.sequence.to_be_bytes());
            batch.insert(&self.keyspaces.meta, layout::META_BATCH, number.to_be_bytes());
            self.progress.committing.store(true, Ordering::Release);
            let outcome = batch.durability(Some(self.persist)).commit();
            self.progress.committing.store(false, Ordering::Release);
            self.room.wrote(bytes);
            match outcome {
                Ok(()) => {
                    self.progress.batch.store(number, Ordering::Release);
                    self.progress.written.fetch_add(bytes, Ordering::AcqRel);
                    written = bytes;
                }
                Err(error) => {
                    tracing::error!(%error, "a commit failed: the store takes no more writes");
                    self.progress.poison();
                    committed = false;
                }
            }
        }
        for (key, record) in self.records.drain() {
            match record {
                Some(record) if committed => self.recent.written(key, record),
                _ => self.recent.forget(&key),
            }
        }
        for answer in answers {
            answer(committed);
        }
        // A snapshot can show part of a batch that is being committed, because a merge that ends meanwhile makes its
        // entries visible. Here no commit is under way, so the snapshot holds whole batches only.
        for done in self.views.drain(..) {
            drop(done.send(Ok(self.keyspaces.database.snapshot())));
        }
        // Last, because it may wait: callers whose writes are done do not wait with it.
        self.empty_memory(written);
    }

    /// Makes the engine write the memory of large keyspaces into tables. Waits while too many tables are on their way to the
    /// disk already, and later writes wait with it.
    fn empty_memory(&mut self, written: u64) {
        self.unseen += written;
        if self.unseen < LOOK_BYTES {
            return;
        }
        self.unseen = 0;
        for keyspace in self.keyspaces.all() {
            if keyspace.tree.active_memtable().size() < MEMORY_BYTES {
                continue;
            }
            // A failed engine writes no more tables; the keeper notices that, and the writer has to refuse then.
            let is_behind = || keyspace.sealed_memtable_count() > MAX_SEALED && !self.progress.is_poisoned();
            for _ in 0..SEALED_LOOKS {
                if !is_behind() {
                    break;
                }
                std::thread::sleep(SEALED_LOOK);
            }
            // This also lets the engine drop what only old versions of its trees hold: tables in memory that are on the
            // disk by now, and files that were merged.
            if let Err(error) = keyspace.rotate_memtable() {
                // The keeper notices this failure of the engine.
                tracing::warn!(%error, "could not begin to write a table");
            }
        }
    }

    pub(super) fn next(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn record(&self, key: RecordKey) -> Result<Option<CurrentRecord>, StoreError> {
        if let Some(changed) = self.records.get(&key) {
            return Ok(changed.as_ref().map(CurrentRecord::of));
        }
        if let Some(record) = self.recent.get(&key) {
            return Ok(Some(CurrentRecord::of(&record)));
        }
        let value = self.keyspaces.records.get(layout::record_key(key)).map_err(failed)?;
        Ok(value.and_then(|value| layout::read_record(&value)).as_ref().map(CurrentRecord::of))
    }

    fn put(
        &mut self,
        key: RecordKey,
        value: &Bytes,
        expected: Expected,
        deadline: Option<Time>,
        cost: u64,
    ) -> Result<Version, StoreError> {
        let current = self.record(key)?;
        let fits = match (expected, current) {
            (Expected::Absent, None) => true,
            (Expected::Version(version), Some(current)) => version == current.version,
            _ => false,
        };
        if !fits {
            return Err(StoreError::Conflict { current: current.map(|known| known.version) });
        }
        let grows = current.is_none_or(|current| value.len() > current.bytes);
        self.admit(cost, if grows { Growth::Grows } else { Growth::Stays })?;
        self.bytes += cost;
        let version = Version(self.next());
        self.move_deadline(key, current.and_then(|known| known.deadline), deadline);
        let written = layout::record_value(version, deadline, value);
        self.batch.insert(&self.keyspaces.records, layout::record_key(key), written);
        self.records.insert(key, Some(Record { version, deadline, value: value.clone() }));
        Ok(version)
    }

    fn delete(&mut self, key: RecordKey, expected: Version) -> Result<(), StoreError> {
        match self.record(key)? {
            Some(known) if known.version == expected => {
                self.move_deadline(key, known.deadline, None);
                self.batch.remove(&self.keyspaces.records, layout::record_key(key));
                self.progress.removed.fetch_add(1, Ordering::AcqRel);
                self.records.insert(key, None);
                Ok(())
            }
            other => Err(StoreError::Conflict { current: other.map(|known| known.version) }),
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

    pub(super) fn owner(&self, session: SessionKey) -> Result<Option<(Option<NodeId>, Epoch)>, StoreError> {
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
        cost: u64,
    ) -> Result<Epoch, StoreError> {
        let last = self.owner(session)?;
        let current = last.and_then(|(owner, epoch)| owner.map(|_| epoch));
        if current != expected {
            return Err(StoreError::Fenced);
        }
        // Waking a session needs no more room than it has, and must work on a full disk too. A released session still
        // has its place here.
        let growth = if last.is_some() { Growth::Stays } else { Growth::Grows };
        self.admit(cost, growth)?;
        self.bytes += cost;
        let epoch = Epoch(self.next());
        self.set_owner(session, Some(node), epoch);
        Ok(epoch)
    }

    fn release(&mut self, session: SessionKey, epoch: Epoch) -> Result<(), StoreError> {
        match self.owner(session)? {
            Some((Some(_), current)) if current == epoch => {
                self.set_owner(session, None, epoch);
                // The next owner's first trim counts the events anew.
                self.logs.remove(&session);
                Ok(())
            }
            _ => Err(StoreError::Fenced),
        }
    }
}
