//! The engine that keeps everything in memory and loses it when the process ends.
//!
//! Sharded by session, so that sessions do not wait for each other. Every operation is complete when the call
//! returns: its future is ready.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::ready;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tenure_session::id::{NodeId, Position, SessionKey, StreamId};
use tenure_session::port::clock::{Clock, SystemClock, Time};
use tenure_session::port::store::{
    EntryPlace, Epoch, Event, Expected, Keep, KeptEvents, NewEvent, ReadLimit, Record, RecordKey, SavedLog,
    Space, Store, StoreCapabilities, StoreDurability, StoreError, Stored, StreamEvents, Survey, Surveyed,
    Version,
};

use crate::numbers;

const SHARDS: usize = 32;

/// The memory engine.
pub struct Memory {
    shards: Box<[Mutex<Shard>]>,
    /// Deadlines of all records, in order.
    deadlines: Mutex<BTreeSet<(Time, RecordKey)>>,
    /// Bytes of the events of all sessions, bounded by `max_bytes`.
    bytes: AtomicUsize,
    max_bytes: usize,
}

#[derive(Default)]
struct Shard {
    records: BTreeMap<RecordKey, Record>,
    logs: HashMap<SessionKey, MemoryLog, RandomState>,
    owners: HashMap<SessionKey, (NodeId, Epoch), RandomState>,
    /// Versions only grow, also across a delete, so all records of a shard share one counter.
    last_version: u64,
    /// Epochs only grow, also after a session is released or dropped: a node that owned it before must stay fenced.
    last_epoch: u64,
}

/// The events of one session.
#[derive(Default)]
struct MemoryLog {
    streams: HashMap<StreamId, MemoryStream, RandomState>,
    /// The events of all streams in the order of arrival, which is the order in which they are trimmed.
    order: VecDeque<TrimEntry>,
    bytes: usize,
    last: u64,
    trimmed: Position,
    /// One more than the highest stream there ever was.
    next_stream: u32,
}

#[derive(Default)]
struct MemoryStream {
    events: VecDeque<Event>,
    trimmed: Position,
    note: Option<Bytes>,
}

struct TrimEntry {
    stream: StreamId,
    at: Time,
}

impl Memory {
    /// An empty store.
    pub fn new() -> Self {
        Self::bounded(usize::MAX)
    }

    /// An empty store that keeps at most this many bytes of events; an append beyond it is `Busy`.
    pub fn bounded(max_bytes: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            deadlines: Mutex::default(),
            bytes: AtomicUsize::new(0),
            max_bytes,
        }
    }

    fn shard(&self, key: &SessionKey) -> &Mutex<Shard> {
        // Keys are hashes already. A state's key begins with bytes of its owner, so only its last bytes spread evenly.
        &self.shards[usize::from(key.as_bytes()[15]) % SHARDS]
    }

    fn get_now(&self, key: RecordKey) -> Option<Record> {
        self.shard(&key.key).lock().records.get(&key).cloned()
    }

    fn put_now(
        &self,
        key: RecordKey,
        value: Bytes,
        expected: Expected,
        deadline: Option<Time>,
    ) -> Result<Version, StoreError> {
        let mut shard = self.shard(&key.key).lock();
        let current = shard.records.get(&key).map(|record| (record.version, record.deadline));
        let matches = match (expected, current) {
            (Expected::Absent, None) => true,
            (Expected::Version(version), Some((current, _))) => version == current,
            _ => false,
        };
        if !matches {
            return Err(StoreError::Conflict { current: current.map(|(version, _)| version) });
        }
        shard.last_version += 1;
        let version = Version(shard.last_version);
        shard.records.insert(key, Record { version, value, deadline });
        self.move_deadline(key, current.and_then(|(_, deadline)| deadline), deadline);
        Ok(version)
    }

    fn delete_now(&self, key: RecordKey, expected: Version) -> Result<(), StoreError> {
        let mut shard = self.shard(&key.key).lock();
        match shard.records.get(&key) {
            Some(record) if record.version == expected => {
                let deadline = record.deadline;
                shard.records.remove(&key);
                self.move_deadline(key, deadline, None);
                Ok(())
            }
            other => Err(StoreError::Conflict { current: other.map(|record| record.version) }),
        }
    }

    fn move_deadline(&self, key: RecordKey, from: Option<Time>, to: Option<Time>) {
        if from == to {
            return;
        }
        let mut deadlines = self.deadlines.lock();
        if let Some(from) = from {
            deadlines.remove(&(from, key));
        }
        if let Some(to) = to {
            deadlines.insert((to, key));
        }
    }

    fn expired_now(&self, space: Space, now: Time, limit: usize) -> Vec<(RecordKey, Version)> {
        let due: Vec<(Time, RecordKey)> = {
            let deadlines = self.deadlines.lock();
            let due = deadlines.iter().take_while(|(at, _)| *at <= now);
            due.filter(|(_, key)| key.space == space).take(limit).copied().collect()
        };
        // A record that was renewed after the index was read has another deadline, and its new version must not be
        // reported as due.
        let version = |(at, key): (Time, RecordKey)| {
            let shard = self.shard(&key.key).lock();
            let record = shard.records.get(&key).filter(|record| record.deadline == Some(at))?;
            Some((key, record.version))
        };
        due.into_iter().filter_map(version).collect()
    }

    /// Reads one shard after the other: records are independent, and a record never changes its shard.
    fn list_now(&self, space: Space, after: Option<SessionKey>, limit: usize) -> Vec<(SessionKey, Record)> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let start = match after {
                Some(key) => std::ops::Bound::Excluded(RecordKey { space, key }),
                None => std::ops::Bound::Unbounded,
            };
            let range = shard.records.range((start, std::ops::Bound::Unbounded));
            let in_space = range.filter(|(key, _)| key.space == space).take(limit);
            found.extend(in_space.map(|(key, record)| (key.key, record.clone())));
        }
        found.sort_unstable_by_key(|(key, _)| *key);
        found.truncate(limit);
        found
    }

    fn claim_now(
        &self,
        session: SessionKey,
        node: NodeId,
        expected: Option<Epoch>,
    ) -> Result<Epoch, StoreError> {
        let mut shard = self.shard(&session).lock();
        let current = shard.owners.get(&session).map(|(_, epoch)| *epoch);
        if current != expected {
            return Err(StoreError::Fenced);
        }
        shard.last_epoch += 1;
        let epoch = Epoch(shard.last_epoch);
        shard.owners.insert(session, (node, epoch));
        Ok(epoch)
    }

    fn append_now(
        &self,
        session: SessionKey,
        epoch: Epoch,
        batch: Vec<NewEvent>,
    ) -> Result<Vec<Position>, StoreError> {
        let mut shard = self.shard(&session).lock();
        if shard.owners.get(&session).is_none_or(|(_, current)| *current != epoch) {
            return Err(StoreError::Fenced);
        }
        // Notes are not counted: the limit of open streams bounds them, and a note is removed with its stream.
        let events = batch.iter().filter(|event| event.place != EntryPlace::Note);
        let bytes: usize = events.map(|event| event.body.len()).sum();
        // Two concurrent appends may exceed the bound a little; it protects against floods and is not exact.
        if self.bytes.load(Ordering::Relaxed).saturating_add(bytes) > self.max_bytes {
            return Err(StoreError::Busy);
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let log = shard.logs.entry(session).or_default();
        Ok(batch.into_iter().map(|event| log.push(event)).collect())
    }
}

impl MemoryLog {
    fn push(&mut self, event: NewEvent) -> Position {
        self.last += 1;
        let position = Position(self.last);
        self.next_stream = self.next_stream.max(event.stream.number() + 1);
        let stream = self.streams.entry(event.stream).or_default();
        match event.place {
            EntryPlace::Note => {
                stream.note = Some(event.body);
                return position;
            }
            EntryPlace::End => stream.note = None,
            EntryPlace::Middle => {}
        }
        self.bytes += event.body.len();
        self.order.push_back(TrimEntry { stream: event.stream, at: event.at });
        stream.events.push_back(Event { position, body: event.body, place: event.place, at: event.at });
        position
    }

    fn survey(&self) -> Survey {
        let mut streams: Vec<_> = self.streams.iter().map(|(id, stream)| stream.survey(*id)).collect();
        streams.sort_unstable_by_key(|surveyed| surveyed.stream);
        Survey { streams, next_stream: self.next_stream, kept: self.kept() }
    }

    fn restore(saved: SavedLog) -> Self {
        let (next_stream, trimmed) = (saved.next_stream, saved.trimmed);
        let mut log = Self { next_stream, trimmed, ..Self::default() };
        let mut order = Vec::new();
        for stream in saved.streams {
            let id = stream.stream;
            log.trimmed = log.trimmed.max(stream.trimmed);
            log.bytes += stream.events.iter().map(|event| event.body.len()).sum::<usize>();
            order.extend(
                stream.events.iter().map(|event| (event.position, TrimEntry { stream: id, at: event.at })),
            );
            let (events, trimmed, note) = (stream.events.into(), stream.trimmed, stream.note);
            log.streams.insert(id, MemoryStream { events, trimmed, note });
            log.next_stream = log.next_stream.max(id.number() + 1);
        }
        order.sort_unstable_by_key(|(position, _)| *position);
        // The store that the log was saved from may have given out more positions since.
        let given = numbers::at(SystemClock.now());
        log.last = order.last().map_or(0, |(position, _)| position.0).max(log.trimmed.0).max(given);
        log.order = order.into_iter().map(|(_, entry)| entry).collect();
        log
    }

    fn kept(&self) -> KeptEvents {
        let oldest = self.order.front().map(|entry| entry.at);
        KeptEvents { events: self.order.len(), bytes: self.bytes, oldest, trimmed: self.trimmed }
    }

    fn read(&self, stream: StreamId, after: Position, limit: ReadLimit) -> StreamEvents {
        let Some(stream) = self.streams.get(&stream) else {
            // All its events were trimmed, or it never had one.
            return StreamEvents { events: Vec::new(), trimmed: self.trimmed };
        };
        let start = stream.events.partition_point(|event| event.position <= after);
        let mut events: Vec<Event> = Vec::new();
        let mut bytes = 0;
        for event in stream.events.iter().skip(start).take(limit.events) {
            bytes += event.body.len();
            if bytes > limit.bytes && !events.is_empty() {
                break;
            }
            events.push(event.clone());
        }
        StreamEvents { events, trimmed: stream.trimmed }
    }

    fn trim(&mut self, keep: Keep) -> KeptEvents {
        while let Some(oldest) = self.order.front() {
            let fits = self.order.len() <= keep.events && self.bytes <= keep.bytes && oldest.at > keep.since;
            if fits {
                break;
            }
            let id = oldest.stream;
            self.order.pop_front();
            if let Some(stream) = self.streams.get_mut(&id)
                && let Some(event) = stream.events.pop_front()
            {
                self.bytes -= event.body.len();
                stream.trimmed = event.position;
                self.trimmed = event.position;
                // An open stream keeps its `trimmed` position, so that its next reader learns of the gap.
                if event.place == EntryPlace::End {
                    self.streams.remove(&id);
                }
            }
        }
        self.kept()
    }
}

impl MemoryStream {
    fn survey(&self, stream: StreamId) -> Surveyed {
        let last = self.events.back();
        Surveyed {
            stream,
            last: last.map_or(self.trimmed, |event| event.position),
            ended: last.is_some_and(|event| event.place == EntryPlace::End),
            note: self.note.clone(),
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for Memory {
    fn put(
        &self,
        key: RecordKey,
        value: Bytes,
        expected: Expected,
        deadline: Option<Time>,
    ) -> Stored<Version> {
        Box::pin(ready(self.put_now(key, value, expected, deadline)))
    }

    fn get(&self, key: RecordKey) -> Stored<Option<Record>> {
        Box::pin(ready(Ok(self.get_now(key))))
    }

    fn peek(&self, key: RecordKey) -> Option<Result<Option<Record>, StoreError>> {
        Some(Ok(self.get_now(key)))
    }

    fn delete(&self, key: RecordKey, expected: Version) -> Stored<()> {
        Box::pin(ready(self.delete_now(key, expected)))
    }

    fn expired(&self, space: Space, now: Time, limit: usize) -> Stored<Vec<(RecordKey, Version)>> {
        Box::pin(ready(Ok(self.expired_now(space, now, limit))))
    }

    fn list(
        &self,
        space: Space,
        after: Option<SessionKey>,
        limit: usize,
    ) -> Stored<Vec<(SessionKey, Record)>> {
        Box::pin(ready(Ok(self.list_now(space, after, limit))))
    }

    fn claim(&self, session: SessionKey, node: NodeId, expected: Option<Epoch>) -> Stored<Epoch> {
        Box::pin(ready(self.claim_now(session, node, expected)))
    }

    fn owner(&self, session: SessionKey) -> Stored<Option<(NodeId, Epoch)>> {
        let owner = self.shard(&session).lock().owners.get(&session).copied();
        Box::pin(ready(Ok(owner)))
    }

    fn release(&self, session: SessionKey, epoch: Epoch) -> Stored<()> {
        let mut shard = self.shard(&session).lock();
        let is_owner = shard.owners.get(&session).is_some_and(|(_, current)| *current == epoch);
        if is_owner {
            shard.owners.remove(&session);
        }
        drop(shard);
        Box::pin(ready(if is_owner { Ok(()) } else { Err(StoreError::Fenced) }))
    }

    fn append(&self, session: SessionKey, epoch: Epoch, batch: Vec<NewEvent>) -> Stored<Vec<Position>> {
        Box::pin(ready(self.append_now(session, epoch, batch)))
    }

    fn read(
        &self,
        session: SessionKey,
        stream: StreamId,
        after: Position,
        limit: ReadLimit,
    ) -> Stored<StreamEvents> {
        let shard = self.shard(&session).lock();
        let stretch = shard.logs.get(&session).map(|log| log.read(stream, after, limit)).unwrap_or_default();
        drop(shard);
        Box::pin(ready(Ok(stretch)))
    }

    fn trim(&self, session: SessionKey, keep: Keep) -> Stored<KeptEvents> {
        let mut shard = self.shard(&session).lock();
        let kept = shard.logs.get_mut(&session).map(|log| {
            let before = log.bytes;
            let kept = log.trim(keep);
            self.bytes.fetch_sub(before - log.bytes, Ordering::Relaxed);
            kept
        });
        let kept = kept.unwrap_or_default();
        drop(shard);
        Box::pin(ready(Ok(kept)))
    }

    fn drop_session(&self, session: SessionKey) -> Stored<()> {
        let mut shard = self.shard(&session).lock();
        let log = shard.logs.remove(&session);
        shard.owners.remove(&session);
        drop(shard);
        self.bytes.fetch_sub(log.as_ref().map_or(0, |log| log.bytes), Ordering::Relaxed);
        // Freed outside the lock, because freeing a long log takes a while.
        drop(log);
        Box::pin(ready(Ok(())))
    }

    fn tail(&self, session: SessionKey) -> Stored<Position> {
        let last = self.shard(&session).lock().logs.get(&session).map_or(0, |log| log.last);
        Box::pin(ready(Ok(Position(last))))
    }

    fn survey(&self, session: SessionKey) -> Stored<Survey> {
        let survey = self.shard(&session).lock().logs.get(&session).map(MemoryLog::survey);
        Box::pin(ready(Ok(survey.unwrap_or_default())))
    }

    fn restore(&self, session: SessionKey, log: SavedLog) -> Stored<()> {
        let log = MemoryLog::restore(log);
        self.bytes.fetch_add(log.bytes, Ordering::Relaxed);
        let replaced = self.shard(&session).lock().logs.insert(session, log);
        self.bytes.fetch_sub(replaced.as_ref().map_or(0, |log| log.bytes), Ordering::Relaxed);
        drop(replaced);
        Box::pin(ready(Ok(())))
    }

    fn capabilities(&self) -> StoreCapabilities {
        StoreCapabilities {
            durability: StoreDurability::Process,
            max_batch: 1024,
            max_batch_bytes: usize::MAX,
            max_value_bytes: usize::MAX,
        }
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Memory")
    }
}
