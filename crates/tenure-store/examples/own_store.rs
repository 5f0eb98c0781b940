//! A store of your own: the whole port, over the tables that an engine with transactions would have.
//!
//! The tables are maps and every method is one transaction, for which a lock stands in here. With another engine, the
//! tables, their keys and the steps of each method stay the same; `docs/own-store.md` explains them.
//! `cargo run -p tenure-store --example own_store` runs the contract suite, and so does `tests/contract.rs`.

#![expect(clippy::print_stdout, reason = "an example says how it went")]

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tenure_session::id::{NodeId, Position, SessionKey, StreamId};
use tenure_session::port::clock::{Clock, SystemClock, Time};
use tenure_session::port::store::{
    EntryPlace, Epoch, Event, Expected, Keep, KeptEvents, NewEvent, ReadLimit, Record, RecordKey, SavedLog,
    SavedStream, Space, Store, StoreCapabilities, StoreDurability, StoreError, Stored, StreamEvents, Survey,
    Surveyed, Version,
};

#[tokio::main]
async fn main() {
    tenure_testkit::store_contract::all(|| Arc::new(OwnStore::default())).await;
    println!("the store keeps the contract");
}

/// The store.
#[derive(Default)]
pub(crate) struct OwnStore {
    tables: Mutex<Tables>,
}

#[derive(Default)]
struct Tables {
    /// By space and key, with an index of deadlines where there are many.
    records: BTreeMap<RecordKey, Record>,
    /// By session. A released session keeps its epoch, so that the epoch is never used again.
    owners: BTreeMap<SessionKey, (Option<NodeId>, Epoch)>,
    /// By session.
    logs: BTreeMap<SessionKey, Log>,
    /// By session and number: streams that are open or have events.
    streams: BTreeMap<(SessionKey, StreamId), Stream>,
    /// By session and position: the order in which they arrived and are trimmed.
    events: BTreeMap<(SessionKey, Position), (StreamId, Event)>,
    /// One sequence for versions, epochs and positions: they grow, and may have gaps.
    last: u64,
}

#[derive(Default)]
struct Log {
    tail: Position,
    trimmed: Position,
    /// One more than the highest stream there ever was.
    next_stream: u32,
}

#[derive(Default)]
struct Stream {
    last: Position,
    trimmed: Position,
    ended: bool,
    note: Option<Bytes>,
}

impl Tables {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Clauses 1 to 4: a write names the version it expects, and changes nothing if another one is there.
    fn expect(&self, key: &RecordKey, expected: Expected) -> Result<(), StoreError> {
        let current = self.records.get(key).map(|record| record.version);
        let found = current.map_or(Expected::Absent, Expected::Version);
        if found == expected { Ok(()) } else { Err(StoreError::Conflict { current }) }
    }

    fn put(
        &mut self,
        key: RecordKey,
        value: Bytes,
        expected: Expected,
        deadline: Option<Time>,
    ) -> Result<Version, StoreError> {
        self.expect(&key, expected)?;
        let version = Version(self.next());
        self.records.insert(key, Record { version, value, deadline });
        Ok(version)
    }

    fn expired(&self, space: Space, now: Time, limit: usize) -> Vec<(RecordKey, Version)> {
        let due = self.records.iter().filter(|(key, _)| key.space == space);
        let due = due.filter_map(|(key, record)| Some((record.deadline?, *key, record.version)));
        let mut due: Vec<_> = due.filter(|(at, ..)| *at <= now).collect();
        due.sort_unstable();
        due.into_iter().take(limit).map(|(_, key, version)| (key, version)).collect()
    }

    fn list(&self, space: Space, after: Option<SessionKey>, limit: usize) -> Vec<(SessionKey, Record)> {
        let wanted = |key: &RecordKey| key.space == space && after.is_none_or(|after| key.key > after);
        let found = self.records.iter().filter(|(key, _)| wanted(key)).take(limit);
        found.map(|(key, record)| (key.key, record.clone())).collect()
    }

    fn claim(
        &mut self,
        session: SessionKey,
        node: NodeId,
        expected: Option<Epoch>,
    ) -> Result<Epoch, StoreError> {
        let owned = self.owners.get(&session).filter(|(node, _)| node.is_some());
        if owned.map(|(_, epoch)| *epoch) != expected {
            return Err(StoreError::Fenced);
        }
        let epoch = Epoch(self.next());
        self.owners.insert(session, (Some(node), epoch));
        Ok(epoch)
    }

    fn release(&mut self, session: SessionKey, epoch: Epoch) -> Result<(), StoreError> {
        match self.owners.get_mut(&session) {
            Some((owner @ Some(_), current)) if *current == epoch => *owner = None,
            _ => return Err(StoreError::Fenced),
        }
        Ok(())
    }

    /// Clauses 8, 9 and 13. The epoch is compared in the transaction that writes: a node that lost the session must not
    /// add to it, however late its write arrives.
    fn append(
        &mut self,
        session: SessionKey,
        epoch: Epoch,
        batch: Vec<NewEvent>,
    ) -> Result<Vec<Position>, StoreError> {
        match self.owners.get(&session) {
            Some((Some(_), current)) if *current == epoch => {}
            _ => return Err(StoreError::Fenced),
        }
        Ok(batch.into_iter().map(|event| self.add(session, event)).collect())
    }

    fn add(&mut self, session: SessionKey, event: NewEvent) -> Position {
        let position = Position(self.next());
        let log = self.logs.entry(session).or_default();
        log.tail = position;
        log.next_stream = log.next_stream.max(event.stream.number() + 1);
        let stream = self.streams.entry((session, event.stream)).or_default();
        if event.place == EntryPlace::Note {
            stream.note = Some(event.body);
            return position;
        }
        stream.last = position;
        stream.ended = event.place == EntryPlace::End;
        if stream.ended {
            stream.note = None;
        }
        let kept = Event { position, body: event.body, place: event.place, at: event.at };
        self.events.insert((session, position), (event.stream, kept));
        position
    }

    /// The events of a session after a position, in order.
    fn after(
        &self,
        session: SessionKey,
        after: Position,
    ) -> impl Iterator<Item = (StreamId, &Event)> + use<'_> {
        // After the last possible position there are no events; a range that starts after its end would panic.
        let first = after.0.checked_add(1).map(|first| (session, Position(first)));
        let found = first.map(|first| self.events.range(first..=(session, Position(u64::MAX))));
        found.into_iter().flatten().map(|(_, (stream, event))| (*stream, event))
    }

    /// Clauses 10, 19 and 20. A stream that is gone reports the trimmed position of its session.
    fn read(&self, session: SessionKey, stream: StreamId, after: Position, limit: ReadLimit) -> StreamEvents {
        let mut events: Vec<Event> = Vec::new();
        let mut bytes = 0;
        let of_stream = self.after(session, after).filter(|(of, _)| *of == stream);
        for (_, event) in of_stream.take(limit.events) {
            bytes += event.body.len();
            if bytes > limit.bytes && !events.is_empty() {
                break;
            }
            events.push(event.clone());
        }
        let of_log = self.logs.get(&session).map_or(Position::START, |log| log.trimmed);
        let trimmed = self.streams.get(&(session, stream)).map_or(of_log, |stream| stream.trimmed);
        StreamEvents { events, trimmed }
    }

    fn kept(&self, session: SessionKey) -> KeptEvents {
        let events = || self.after(session, Position::START).map(|(_, event)| event);
        KeptEvents {
            events: events().count(),
            bytes: events().map(|event| event.body.len()).sum(),
            oldest: events().next().map(|event| event.at),
            trimmed: self.logs.get(&session).map_or(Position::START, |log| log.trimmed),
        }
    }

    /// Clause 11. Both trimmed positions are written with the removals: a reader that misses an event must learn of it.
    fn trim(&mut self, session: SessionKey, keep: Keep) -> KeptEvents {
        let KeptEvents { mut events, mut bytes, .. } = self.kept(session);
        loop {
            let oldest = self.after(session, Position::START).next();
            let Some((stream, event)) = oldest.map(|(stream, event)| (stream, event.clone())) else { break };
            if events <= keep.events && bytes <= keep.bytes && event.at > keep.since {
                break;
            }
            (events, bytes) = (events - 1, bytes - event.body.len());
            self.events.remove(&(session, event.position));
            self.logs.entry(session).or_default().trimmed = event.position;
            // A stream whose end was trimmed is removed; the trimmed position of the log stands for it.
            if event.place == EntryPlace::End {
                self.streams.remove(&(session, stream));
            } else if let Some(stream) = self.streams.get_mut(&(session, stream)) {
                stream.trimmed = event.position;
            }
        }
        self.kept(session)
    }

    fn survey(&self, session: SessionKey) -> Survey {
        let all = (session, StreamId::STANDALONE)..=(session, StreamId::new(u32::MAX));
        let streams = self.streams.range(all).map(|((_, id), stream)| Surveyed {
            stream: *id,
            last: stream.last,
            ended: stream.ended,
            note: stream.note.clone(),
        });
        let next_stream = self.logs.get(&session).map_or(0, |log| log.next_stream);
        Survey { streams: streams.collect(), next_stream, kept: self.kept(session) }
    }

    fn forget(&mut self, session: SessionKey) {
        self.logs.remove(&session);
        self.streams.retain(|(of, _), _| *of != session);
        self.events.retain(|(of, _), _| *of != session);
    }

    /// Clauses 15 and 21.
    fn restore(&mut self, session: SessionKey, saved: SavedLog, now: Time) {
        self.forget(session);
        // The store that the log was saved from may have given out more positions since, and clients hold them. Every
        // store gives out at most 2048 numbers per millisecond, so the number of this moment is above all of them.
        self.last = self.last.max(now.0 << 11);
        let mut log = Log { trimmed: saved.trimmed, next_stream: saved.next_stream, ..Log::default() };
        for SavedStream { stream: id, note, trimmed, events } in saved.streams {
            let last = events.last().map_or(trimmed, |event| event.position);
            let ended = events.last().is_some_and(|event| event.place == EntryPlace::End);
            log.tail = log.tail.max(last);
            self.streams.insert((session, id), Stream { last, trimmed, ended, note });
            let events = events.into_iter().map(|event| ((session, event.position), (id, event)));
            self.events.extend(events);
        }
        self.logs.insert(session, log);
    }
}

/// An answer that is ready. A remote engine returns a future that waits for its answer.
fn done<T: Send + 'static>(outcome: Result<T, StoreError>) -> Stored<T> {
    Box::pin(ready(outcome))
}

impl Store for OwnStore {
    fn put(
        &self,
        key: RecordKey,
        value: Bytes,
        expected: Expected,
        deadline: Option<Time>,
    ) -> Stored<Version> {
        done(self.tables.lock().put(key, value, expected, deadline))
    }

    fn get(&self, key: RecordKey) -> Stored<Option<Record>> {
        done(Ok(self.tables.lock().records.get(&key).cloned()))
    }

    fn delete(&self, key: RecordKey, expected: Version) -> Stored<()> {
        let mut tables = self.tables.lock();
        let outcome = tables.expect(&key, Expected::Version(expected));
        if outcome.is_ok() {
            tables.records.remove(&key);
        }
        done(outcome)
    }

    fn expired(&self, space: Space, now: Time, limit: usize) -> Stored<Vec<(RecordKey, Version)>> {
        done(Ok(self.tables.lock().expired(space, now, limit)))
    }

    fn list(
        &self,
        space: Space,
        after: Option<SessionKey>,
        limit: usize,
    ) -> Stored<Vec<(SessionKey, Record)>> {
        done(Ok(self.tables.lock().list(space, after, limit)))
    }

    fn claim(&self, session: SessionKey, node: NodeId, expected: Option<Epoch>) -> Stored<Epoch> {
        done(self.tables.lock().claim(session, node, expected))
    }

    fn owner(&self, session: SessionKey) -> Stored<Option<(NodeId, Epoch)>> {
        let owner = self.tables.lock().owners.get(&session).copied();
        done(Ok(owner.and_then(|(node, epoch)| Some((node?, epoch)))))
    }

    fn release(&self, session: SessionKey, epoch: Epoch) -> Stored<()> {
        done(self.tables.lock().release(session, epoch))
    }

    fn append(&self, session: SessionKey, epoch: Epoch, batch: Vec<NewEvent>) -> Stored<Vec<Position>> {
        done(self.tables.lock().append(session, epoch, batch))
    }

    fn read(
        &self,
        session: SessionKey,
        stream: StreamId,
        after: Position,
        limit: ReadLimit,
    ) -> Stored<StreamEvents> {
        done(Ok(self.tables.lock().read(session, stream, after, limit)))
    }

    fn trim(&self, session: SessionKey, keep: Keep) -> Stored<KeptEvents> {
        done(Ok(self.tables.lock().trim(session, keep)))
    }

    fn drop_session(&self, session: SessionKey) -> Stored<()> {
        let mut tables = self.tables.lock();
        tables.owners.remove(&session);
        tables.forget(session);
        done(Ok(()))
    }

    fn tail(&self, session: SessionKey) -> Stored<Position> {
        done(Ok(self.tables.lock().logs.get(&session).map_or(Position::START, |log| log.tail)))
    }

    fn survey(&self, session: SessionKey) -> Stored<Survey> {
        done(Ok(self.tables.lock().survey(session)))
    }

    fn restore(&self, session: SessionKey, log: SavedLog) -> Stored<()> {
        self.tables.lock().restore(session, log, SystemClock.now());
        done(Ok(()))
    }

    /// Clause 16: clients may rely on these values.
    fn capabilities(&self) -> StoreCapabilities {
        StoreCapabilities {
            durability: StoreDurability::Process,
            max_batch: 1024,
            max_batch_bytes: usize::MAX,
            max_value_bytes: usize::MAX,
        }
    }
}
