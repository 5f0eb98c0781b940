//! Encryption at rest: a store around any store that seals every value on writing and opens it on reading.
//!
//! Contents are sealed (`value`): records, events and notes. Data that the engine needs is not: hashed names,
//! versions, deadlines, owners, positions, times, and the length of each value. Byte bounds of callers and byte
//! counts for callers are in plain bytes, so a caller counts the same with this store as without; bounds of the
//! engine itself, such as the size of a value or of the whole memory, are in sealed bytes.
//!
//! A value that cannot be opened is an error that says why; it is never replaced by another value. This store cannot
//! notice an engine that leaves values out or returns earlier versions.

pub mod keys;
mod check;
mod value;
mod token;

use std::future::ready;
use std::sync::Arc;

use bytes::Bytes;
use tenure_session::forward_store;
use tenure_session::id::{Position, SessionKey, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{
    EntryPlace, Epoch, Event, Expected, Keep, KeptEvents, NewEvent, ReadLimit, Record, RecordKey, SavedLog,
    Space, Store, StoreCapabilities, StoreError, Stored, StreamEvents, Survey, Version,
};

pub use self::check::{SealError, check_plain};
pub use self::keys::SealKeys;
use self::value::{OVERHEAD, ValueBinding};

/// The most events in one read from the engine. The bound for the engine allows the overhead of this many events, so
/// it limits how many bytes are read in vain.
const ROUND: usize = 1024;

/// A sealed store.
pub struct Sealed {
    inner: Arc<dyn Store>,
    keys: SealKeys,
}

impl Sealed {
    /// Opens a sealed store, or seals an empty one.
    ///
    /// # Errors
    /// When the store has plain records, when none of the keys fits, or when the store does not answer.
    pub async fn open(store: Arc<dyn Store>, keys: SealKeys) -> Result<Self, SealError> {
        check::check(store.as_ref(), &keys).await?;
        Ok(Self { inner: store, keys })
    }

    fn engine<T>(&self, operation: impl FnOnce(&dyn Store) -> T) -> T {
        operation(self.inner.as_ref())
    }
}

fn open(keys: &SealKeys, binding: ValueBinding, sealed: Bytes) -> Result<Bytes, StoreError> {
    value::open(keys, binding, sealed).map_err(|unopened| unopened.of(binding))
}

fn open_record(keys: &SealKeys, key: RecordKey, record: Record) -> Result<Record, StoreError> {
    let binding = ValueBinding::Record { key, deadline: record.deadline };
    Ok(Record { value: open(keys, binding, record.value)?, ..record })
}

fn seal_batch(
    keys: &SealKeys,
    session: SessionKey,
    mut batch: Vec<NewEvent>,
) -> Result<Vec<NewEvent>, StoreError> {
    for event in &mut batch {
        let (stream, place, at) = (event.stream, event.place, event.at);
        let binding = match place {
            EntryPlace::Note => ValueBinding::Note { session, stream },
            EntryPlace::Middle | EntryPlace::End => ValueBinding::Event { session, stream, place, at },
        };
        // An empty body means "no message" and is sealed too. Otherwise an attacker could forge one by cutting a
        // message off, and bytes could not be counted.
        event.body = value::seal(keys, binding, &event.body)?;
    }
    Ok(batch)
}

fn binding_of(session: SessionKey, stream: StreamId, event: &Event) -> ValueBinding {
    ValueBinding::Event { session, stream, place: event.place, at: event.at }
}

fn open_event(
    keys: &SealKeys,
    session: SessionKey,
    stream: StreamId,
    event: Event,
) -> Result<Event, StoreError> {
    let binding = binding_of(session, stream, &event);
    Ok(Event { body: open(keys, binding, event.body)?, ..event })
}

fn seal_log(keys: &SealKeys, session: SessionKey, mut log: SavedLog) -> Result<SavedLog, StoreError> {
    for saved in &mut log.streams {
        let stream = saved.stream;
        if let Some(note) = &mut saved.note {
            *note = value::seal(keys, ValueBinding::Note { session, stream }, note)?;
        }
        for event in &mut saved.events {
            event.body = value::seal(keys, binding_of(session, stream, event), &event.body)?;
        }
    }
    Ok(log)
}

/// Converts the kept bytes to plain bytes: sealing adds the same length to every event.
fn plain_kept(kept: KeptEvents) -> KeptEvents {
    KeptEvents { bytes: kept.bytes.saturating_sub(kept.events.saturating_mul(OVERHEAD)), ..kept }
}

fn sealed_bytes(plain: usize, events: usize) -> usize {
    plain.saturating_add(events.saturating_mul(OVERHEAD))
}

/// Reads in rounds until the limit, counted in plain bytes, is reached.
async fn read(
    inner: Arc<dyn Store>,
    keys: SealKeys,
    session: SessionKey,
    stream: StreamId,
    after: Position,
    limit: ReadLimit,
) -> Result<StreamEvents, StoreError> {
    let (mut stretch, mut bytes) = (StreamEvents::default(), 0usize);
    loop {
        let events = (limit.events - stretch.events.len()).min(ROUND);
        let left = limit.bytes.saturating_sub(bytes);
        let bound = ReadLimit { events, bytes: sealed_bytes(left, events) };
        let cursor = stretch.events.last().map_or(after, |event| event.position);
        let round = inner.read(session, stream, cursor, bound).await?;
        if stretch.events.is_empty() {
            stretch.trimmed = round.trimmed;
        } else if round.trimmed > cursor {
            // A trim came between two rounds: the next read from here reports the gap.
            return Ok(stretch);
        }
        // The bound allows the overhead of a full round, so a round that is not full reached the end of the stream or
        // an event that does not fit.
        let full = round.events.len() == events;
        for event in round.events {
            bytes = bytes.saturating_add(event.body.len().saturating_sub(OVERHEAD));
            if bytes > limit.bytes && !stretch.events.is_empty() {
                return Ok(stretch);
            }
            stretch.events.push(open_event(&keys, session, stream, event)?);
        }
        if !full || stretch.events.len() == limit.events {
            return Ok(stretch);
        }
    }
}

/// Trims until the bounds, counted in plain bytes, hold.
///
/// The number of events that will be left is not known in advance, so every round allows the overhead of the largest
/// possible number. So it never trims too much, and the next round has a better number; two or three rounds are usual.
async fn trim(
    inner: Arc<dyn Store>,
    first: Stored<KeptEvents>,
    session: SessionKey,
    keep: Keep,
) -> Result<KeptEvents, StoreError> {
    let mut kept = first.await?;
    while plain_kept(kept).bytes > keep.bytes {
        let bound = Keep { bytes: sealed_bytes(keep.bytes, kept.events), ..keep };
        let next = inner.trim(session, bound).await?;
        // The log was over its bound, so this trim must have removed events. If it did not, another will not either.
        if next.trimmed <= kept.trimmed {
            return Ok(plain_kept(next));
        }
        kept = next;
    }
    Ok(plain_kept(kept))
}

impl Store for Sealed {
    forward_store!(engine: delete, expired, claim, owner, release, drop_session, tail, trouble);

    fn put(
        &self,
        key: RecordKey,
        value: Bytes,
        expected: Expected,
        deadline: Option<Time>,
    ) -> Stored<Version> {
        match value::seal(&self.keys, ValueBinding::Record { key, deadline }, &value) {
            Ok(value) => self.inner.put(key, value, expected, deadline),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn get(&self, key: RecordKey) -> Stored<Option<Record>> {
        let (keys, found) = (self.keys.clone(), self.inner.get(key));
        Box::pin(async move { found.await?.map(|record| open_record(&keys, key, record)).transpose() })
    }

    fn peek(&self, key: RecordKey) -> Option<Result<Option<Record>, StoreError>> {
        let open = |record| open_record(&self.keys, key, record);
        Some(self.inner.peek(key)?.and_then(|found| found.map(open).transpose()))
    }

    fn list(
        &self,
        space: Space,
        after: Option<SessionKey>,
        limit: usize,
    ) -> Stored<Vec<(SessionKey, Record)>> {
        let (keys, found) = (self.keys.clone(), self.inner.list(space, after, limit));
        Box::pin(async move {
            let open = |(key, record)| Ok((key, open_record(&keys, RecordKey { space, key }, record)?));
            found.await?.into_iter().map(open).collect()
        })
    }

    fn append(&self, session: SessionKey, epoch: Epoch, batch: Vec<NewEvent>) -> Stored<Vec<Position>> {
        match seal_batch(&self.keys, session, batch) {
            Ok(batch) => self.inner.append(session, epoch, batch),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn read(
        &self,
        session: SessionKey,
        stream: StreamId,
        after: Position,
        limit: ReadLimit,
    ) -> Stored<StreamEvents> {
        Box::pin(read(Arc::clone(&self.inner), self.keys.clone(), session, stream, after, limit))
    }

    fn trim(&self, session: SessionKey, keep: Keep) -> Stored<KeptEvents> {
        let bound = Keep { bytes: sealed_bytes(keep.bytes, keep.events), ..keep };
        let first = self.inner.trim(session, bound);
        Box::pin(trim(Arc::clone(&self.inner), first, session, keep))
    }

    fn survey(&self, session: SessionKey) -> Stored<Survey> {
        let (keys, found) = (self.keys.clone(), self.inner.survey(session));
        Box::pin(async move {
            let mut survey = found.await?;
            for known in &mut survey.streams {
                let binding = ValueBinding::Note { session, stream: known.stream };
                known.note = known.note.take().map(|note| open(&keys, binding, note)).transpose()?;
            }
            survey.kept = plain_kept(survey.kept);
            Ok(survey)
        })
    }

    fn restore(&self, session: SessionKey, log: SavedLog) -> Stored<()> {
        match seal_log(&self.keys, session, log) {
            Ok(log) => self.inner.restore(session, log),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn capabilities(&self) -> StoreCapabilities {
        let inner = self.inner.capabilities();
        StoreCapabilities { max_value_bytes: inner.max_value_bytes.saturating_sub(OVERHEAD), ..inner }
    }
}

impl std::fmt::Debug for Sealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealed").field("keys", &self.keys).finish_non_exhaustive()
    }
}
