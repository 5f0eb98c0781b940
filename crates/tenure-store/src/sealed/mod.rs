//! Encryption at rest: a store around any store that seals what goes in and opens what comes out.
//!
//! Contents are sealed (`value`): records, events and notes. What the engine needs to do its work is not: hashed
//! names, versions, deadlines, owners, positions, times, and how long each value is. Byte bounds that come in and
//! byte counts that go out are those of the plain values, so callers count the same with this store as without;
//! what the engine itself bounds, such as the size of a value or the whole memory, counts sealed bytes.
//!
//! A value that does not open is an error that says why, never something else in its place. That an engine left
//! something out, or gave back an earlier version, cannot be seen from here.

mod check;
pub mod keys;
mod token;
mod value;

use std::future::ready;
use std::sync::Arc;

use bytes::Bytes;
use tenure_session::id::{NodeId, Position, SessionKey, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{
    Capabilities, Epoch, Event, Expected, Keep, Kept, NewEvent, Place, ReadLimit, Record, RecordKey,
    SavedLog, Space, Store, StoreError, Stored, Stretch, Survey, Trouble, Version,
};

pub use self::check::{SealError, check_plain};
pub use self::keys::Keys;
use self::value::{Belongs, OVERHEAD};

/// Events that are read from the engine at once, at most. It bounds how much is read in vain, because the
/// engine's bound has to leave room for the overhead of that many.
const ROUND: usize = 1024;

/// A sealed store.
pub struct Sealed {
    inner: Arc<dyn Store>,
    keys: Keys,
}

impl Sealed {
    /// Opens a sealed store, or makes an empty one sealed.
    ///
    /// # Errors
    /// When the store has plain records, when none of the keys fits, or when the store does not answer.
    pub async fn open(store: Arc<dyn Store>, keys: Keys) -> Result<Self, SealError> {
        check::check(store.as_ref(), &keys).await?;
        Ok(Self { inner: store, keys })
    }
}

fn open(keys: &Keys, belongs: Belongs, sealed: Bytes) -> Result<Bytes, StoreError> {
    value::open(keys, belongs, sealed).map_err(|unopened| unopened.of(belongs))
}

fn open_record(keys: &Keys, key: RecordKey, record: Record) -> Result<Record, StoreError> {
    let belongs = Belongs::Record { key, deadline: record.deadline };
    Ok(Record { value: open(keys, belongs, record.value)?, ..record })
}

fn seal_batch(
    keys: &Keys,
    session: SessionKey,
    mut batch: Vec<NewEvent>,
) -> Result<Vec<NewEvent>, StoreError> {
    for event in &mut batch {
        let (stream, place, at) = (event.stream, event.place, event.at);
        let belongs = match place {
            Place::Note => Belongs::Note { session, stream },
            Place::Middle | Place::End => Belongs::Event { session, stream, place, at },
        };
        // An empty body, which means that there is no message, is sealed as well: otherwise cutting a message off
        // would make one, and bytes could not be counted.
        event.body = value::seal(keys, belongs, &event.body)?;
    }
    Ok(batch)
}

fn belongs_of(session: SessionKey, stream: StreamId, event: &Event) -> Belongs {
    Belongs::Event { session, stream, place: event.place, at: event.at }
}

fn open_event(keys: &Keys, session: SessionKey, stream: StreamId, event: Event) -> Result<Event, StoreError> {
    let belongs = belongs_of(session, stream, &event);
    Ok(Event { body: open(keys, belongs, event.body)?, ..event })
}

fn seal_log(keys: &Keys, session: SessionKey, mut log: SavedLog) -> Result<SavedLog, StoreError> {
    for saved in &mut log.streams {
        let stream = saved.stream;
        if let Some(note) = &mut saved.note {
            *note = value::seal(keys, Belongs::Note { session, stream }, note)?;
        }
        for event in &mut saved.events {
            event.body = value::seal(keys, belongs_of(session, stream, event), &event.body)?;
        }
    }
    Ok(log)
}

/// What is kept, counted in plain bytes: every event is longer by the same.
fn plain_kept(kept: Kept) -> Kept {
    Kept { bytes: kept.bytes.saturating_sub(kept.events.saturating_mul(OVERHEAD)), ..kept }
}

fn sealed_bytes(plain: usize, events: usize) -> usize {
    plain.saturating_add(events.saturating_mul(OVERHEAD))
}

/// Reads in rounds until the limit, counted in plain bytes, is reached.
async fn read(
    inner: Arc<dyn Store>,
    keys: Keys,
    session: SessionKey,
    stream: StreamId,
    after: Position,
    limit: ReadLimit,
) -> Result<Stretch, StoreError> {
    let (mut stretch, mut bytes) = (Stretch::default(), 0usize);
    loop {
        let events = (limit.events - stretch.events.len()).min(ROUND);
        let left = limit.bytes.saturating_sub(bytes);
        let bound = ReadLimit { events, bytes: sealed_bytes(left, events) };
        let cursor = stretch.events.last().map_or(after, |event| event.position);
        let round = inner.read(session, stream, cursor, bound).await?;
        if stretch.events.is_empty() {
            stretch.trimmed = round.trimmed;
        } else if round.trimmed > cursor {
            // Trimmed between two rounds: whoever reads on from here learns of the gap.
            return Ok(stretch);
        }
        // A round that is not full came to the end, or to an event that does not fit: the bound has room for the
        // overhead of a full one.
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
/// How many events will be left is not known beforehand, so every round allows the overhead of as many as there
/// may be. It never forgets too much, and the next one knows better; two or three rounds are the rule.
async fn trim(
    inner: Arc<dyn Store>,
    first: Stored<Kept>,
    session: SessionKey,
    keep: Keep,
) -> Result<Kept, StoreError> {
    let mut kept = first.await?;
    while plain_kept(kept).bytes > keep.bytes {
        let bound = Keep { bytes: sealed_bytes(keep.bytes, kept.events), ..keep };
        let next = inner.trim(session, bound).await?;
        // It was over its bound, so something was forgotten. If not, it will not be by asking again.
        if next.trimmed <= kept.trimmed {
            return Ok(plain_kept(next));
        }
        kept = next;
    }
    Ok(plain_kept(kept))
}

impl Store for Sealed {
    fn put(
        &self,
        key: RecordKey,
        value: Bytes,
        expected: Expected,
        deadline: Option<Time>,
    ) -> Stored<Version> {
        match value::seal(&self.keys, Belongs::Record { key, deadline }, &value) {
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

    fn delete(&self, key: RecordKey, expected: Version) -> Stored<()> {
        self.inner.delete(key, expected)
    }

    fn expired(&self, space: Space, now: Time, limit: usize) -> Stored<Vec<(RecordKey, Version)>> {
        self.inner.expired(space, now, limit)
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

    fn claim(&self, session: SessionKey, node: NodeId, expected: Option<Epoch>) -> Stored<Epoch> {
        self.inner.claim(session, node, expected)
    }

    fn owner(&self, session: SessionKey) -> Stored<Option<(NodeId, Epoch)>> {
        self.inner.owner(session)
    }

    fn release(&self, session: SessionKey, epoch: Epoch) -> Stored<()> {
        self.inner.release(session, epoch)
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
    ) -> Stored<Stretch> {
        Box::pin(read(Arc::clone(&self.inner), self.keys.clone(), session, stream, after, limit))
    }

    fn trim(&self, session: SessionKey, keep: Keep) -> Stored<Kept> {
        let bound = Keep { bytes: sealed_bytes(keep.bytes, keep.events), ..keep };
        let first = self.inner.trim(session, bound);
        Box::pin(trim(Arc::clone(&self.inner), first, session, keep))
    }

    fn drop_session(&self, session: SessionKey) -> Stored<()> {
        self.inner.drop_session(session)
    }

    fn tail(&self, session: SessionKey) -> Stored<Position> {
        self.inner.tail(session)
    }

    fn survey(&self, session: SessionKey) -> Stored<Survey> {
        let (keys, found) = (self.keys.clone(), self.inner.survey(session));
        Box::pin(async move {
            let mut survey = found.await?;
            for known in &mut survey.streams {
                let belongs = Belongs::Note { session, stream: known.stream };
                known.note = known.note.take().map(|note| open(&keys, belongs, note)).transpose()?;
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

    fn capabilities(&self) -> Capabilities {
        let inner = self.inner.capabilities();
        Capabilities { max_value_bytes: inner.max_value_bytes.saturating_sub(OVERHEAD), ..inner }
    }

    fn trouble(&self) -> Option<Trouble> {
        self.inner.trouble()
    }
}

impl std::fmt::Debug for Sealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealed").field("keys", &self.keys).finish_non_exhaustive()
    }
}
