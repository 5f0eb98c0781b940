//! Reads logs: events of a stream, all streams, the last position.
//!
//! The leader says which messages a log has, any replica returns them, and the leader returns those that it misses. The head is
//! read again after the messages: messages that a trim removed in between are in that head (`head`).

use std::collections::BTreeMap;

use bytes::Bytes;
use tenure_session::id::{Position, SessionKey, StreamId};
use tenure_session::port::store::{EntryPlace, Event, ReadLimit, StoreError, StreamEvents, Survey, Surveyed};

use crate::fetch;
use crate::frame;
use crate::head::{Entry, Head};
use crate::log_cache::LogView;
use crate::names::Shard;
use crate::parts::Parts;
use crate::record_form::unreadable;
use crate::swap::there;
use crate::wire::{Doubt, Tries, Which};

/// Messages that are read at once.
const PAGE: usize = 256;
/// How often a read begins anew because the log was replaced meanwhile.
const ROUNDS: usize = 8;

/// A log as the leader knows it.
struct Extent {
    head: Head,
    /// The sequences of its first and last message; `None` without messages.
    messages: Option<(u64, u64)>,
}

/// Messages of a log that are read one page after the other.
struct Scan<'a> {
    parts: &'a Parts,
    shard: &'a Shard,
    subject: &'a str,
    /// The next sequence to read, and the last one.
    next: u64,
    last: u64,
}

impl Scan<'_> {
    /// The next messages; none at the end.
    async fn page(&mut self, tries: &mut Tries) -> Result<Vec<(u64, Bytes)>, StoreError> {
        if self.next > self.last {
            return Ok(Vec::new());
        }
        let wire = &self.parts.wire;
        let mut found: Vec<(u64, Bytes)> = loop {
            match fetch::next(wire, tries.until, self.shard, self.subject, self.next, PAGE).await {
                Ok(page) => {
                    break page.into_iter().map(|message| (message.sequence, message.payload)).collect();
                }
                Err(fault) => tries.again(fault, Doubt::None).await?,
            }
        };
        if found.is_empty() {
            // The replica is behind, or the rest was removed meanwhile: the leader knows.
            let kept = wire.get(tries, self.shard, Which::Next(self.subject, self.next)).await?;
            found.extend(kept.map(|kept| (kept.sequence, kept.payload)));
        }
        self.next = found.last().map_or(u64::MAX, |(sequence, _)| sequence + 1);
        Ok(found)
    }
}

fn decode(session: &SessionKey, head: &Head, message: (u64, Bytes)) -> Result<Vec<Entry>, StoreError> {
    let (sequence, payload) = message;
    let frame =
        frame::decode(&payload).ok_or_else(|| unreadable(&format!("the log of {}", session.label())))?;
    Ok(head.entries(sequence, frame))
}

impl Parts {
    /// The head of a log, and the sequence of its message.
    pub(crate) async fn head(
        &self,
        tries: &mut Tries,
        session: &SessionKey,
    ) -> Result<(Head, u64), StoreError> {
        let (shard, subject) = (self.names.shard(session), self.names.head(session));
        let Some(kept) = self.wire.last(tries, shard, &subject).await? else {
            return Ok((Head::default(), 0));
        };
        let sequence = kept.sequence;
        // A message without content says that the log was dropped.
        let Some(kept) = there(Some(kept)) else { return Ok((Head::default(), sequence)) };
        let head = Head::decode(&kept.payload)
            .ok_or_else(|| unreadable(&format!("the log of {}", session.label())))?;
        Ok((head, sequence))
    }

    async fn extent(&self, session: &SessionKey, subject: &str) -> Result<Extent, StoreError> {
        let shard = self.names.shard(session);
        let (mut one, mut two, mut three) = (self.wire.tries(), self.wire.tries(), self.wire.tries());
        let ((head, _), first, last) = tokio::try_join!(
            self.head(&mut one, session),
            self.wire.get(&mut two, shard, Which::Next(subject, 1)),
            self.wire.last(&mut three, shard, subject),
        )?;
        let messages = first.zip(last).map(|(first, last)| (first.sequence, last.sequence));
        Ok(Extent { head, messages })
    }

    fn scan<'a>(&'a self, session: &SessionKey, subject: &'a str, extent: &Extent, from: u64) -> Scan<'a> {
        let shard = self.names.shard(session);
        let (first, last) = extent.messages.unwrap_or((1, 0));
        Scan { parts: self, shard, subject, next: first.max(from), last }
    }

    /// The whole log: its head, and the entries after it, in order.
    pub(crate) async fn load(&self, session: &SessionKey) -> Result<LogView, StoreError> {
        let subject = self.names.events(session);
        for _ in 0..ROUNDS {
            let mut tries = self.wire.tries();
            let extent = self.extent(session, &subject).await?;
            let mut scan = self.scan(session, &subject, &extent, 0);
            let mut entries: Vec<Vec<Entry>> = Vec::new();
            loop {
                let page = scan.page(&mut tries).await?;
                if page.is_empty() {
                    break;
                }
                for message in page {
                    entries.push(decode(session, &extent.head, message)?);
                }
            }
            let (head, head_sequence) = self.head(&mut tries, session).await?;
            if !head.is_same_log(&extent.head) {
                continue;
            }
            let is_after = |entry: &Entry| entry.position > head.folded;
            let gone = entries.iter().filter(|message| !message.iter().any(is_after)).count();
            let folded = head.folded;
            let mut view = LogView::new(head, head_sequence, gone);
            for entry in entries.into_iter().flatten().filter(|entry| entry.position > folded) {
                view.add(entry);
            }
            return Ok(view);
        }
        Err(StoreError::Busy)
    }

    pub(crate) async fn survey(&self, session: SessionKey) -> Result<Survey, StoreError> {
        let subject = self.names.events(&session);
        for _ in 0..ROUNDS {
            let mut tries = self.wire.tries();
            let extent = self.extent(&session, &subject).await?;
            // Most sessions have no log at all.
            if extent.messages.is_none() && extent.head == Head::default() {
                return Ok(Survey::default());
            }
            let from = extent.head.sequence_after(extent.head.folded);
            let mut scan = self.scan(&session, &subject, &extent, from);
            let mut entries = Vec::new();
            loop {
                let page = scan.page(&mut tries).await?;
                if page.is_empty() {
                    break;
                }
                for message in page {
                    entries.extend(decode(&session, &extent.head, message)?);
                }
            }
            let (head, head_sequence) = self.head(&mut tries, &session).await?;
            if head.is_same_log(&extent.head) {
                return Ok(survey_of(&head, head_sequence, entries));
            }
        }
        Err(StoreError::Busy)
    }

    pub(crate) async fn tail(&self, session: SessionKey) -> Result<Position, StoreError> {
        let (shard, subject) = (self.names.shard(&session), self.names.events(&session));
        let (mut one, mut two) = (self.wire.tries(), self.wire.tries());
        let (last, (head, _)) =
            tokio::try_join!(self.wire.last(&mut one, shard, &subject), self.head(&mut two, &session))?;
        let entries = match last {
            Some(kept) => decode(&session, &head, (kept.sequence, kept.payload))?,
            None => Vec::new(),
        };
        Ok(entries.last().map_or(head.folded, |entry| entry.position.max(head.folded)))
    }

    pub(crate) async fn read(
        &self,
        session: SessionKey,
        stream: StreamId,
        after: Position,
        limit: ReadLimit,
    ) -> Result<StreamEvents, StoreError> {
        let subject = self.names.events(&session);
        for _ in 0..ROUNDS {
            let mut tries = self.wire.tries();
            let extent = self.extent(&session, &subject).await?;
            let mut stretch = StreamEvents::default();
            let mut last_entry = Position::START;
            if limit.events > 0 && extent.messages.is_some() {
                let start = after.max(extent.head.folded);
                let from = extent.head.sequence_after(start);
                let scan = self.scan(&session, &subject, &extent, from);
                last_entry =
                    collect(&session, scan, &mut tries, &extent.head, stream, start, limit, &mut stretch)
                        .await?;
            }
            let (head, _) = self.head(&mut tries, &session).await?;
            if !head.is_same_log(&extent.head) {
                continue;
            }
            let trimmed = match head.streams.get(&stream) {
                Some(known) => known.trimmed,
                None if head.trimmed == Position::START || last_entry > head.folded => Position::START,
                // Either nothing of the stream was trimmed, and its entries lie before `after`, or all of it.
                None if self.has_entries(&mut tries, &session, &head, stream).await? => Position::START,
                None => head.trimmed,
            };
            // Events that are missing from this stretch lie before its last event. A trim that has passed that event
            // meanwhile is reported by the next read.
            stretch.trimmed = stretch.events.last().map_or(trimmed, |last| trimmed.min(last.position));
            return Ok(stretch);
        }
        Err(StoreError::Busy)
    }

    /// Whether the stream has entries that the head does not stand for.
    async fn has_entries(
        &self,
        tries: &mut Tries,
        session: &SessionKey,
        head: &Head,
        stream: StreamId,
    ) -> Result<bool, StoreError> {
        let subject = self.names.events(session);
        let extent = self.extent(session, &subject).await?;
        let mut scan = self.scan(session, &subject, &extent, head.sequence_after(head.folded));
        loop {
            let page = scan.page(tries).await?;
            if page.is_empty() {
                return Ok(false);
            }
            for message in page {
                let entries = decode(session, head, message)?;
                if entries.iter().any(|entry| entry.entry.stream == stream && entry.position > head.folded) {
                    return Ok(true);
                }
            }
        }
    }
}

/// Collects the events of a stream after a position, up to the limit. Returns the last entry of the stream that was seen.
#[expect(clippy::too_many_arguments, reason = "one loop of one caller")]
async fn collect(
    session: &SessionKey,
    mut scan: Scan<'_>,
    tries: &mut Tries,
    head: &Head,
    stream: StreamId,
    after: Position,
    limit: ReadLimit,
    stretch: &mut StreamEvents,
) -> Result<Position, StoreError> {
    let (mut seen, mut bytes) = (Position::START, 0usize);
    loop {
        let page = scan.page(tries).await?;
        if page.is_empty() {
            return Ok(seen);
        }
        for message in page {
            for Entry { position, entry, .. } in decode(session, head, message)? {
                if entry.stream != stream || position <= head.folded {
                    continue;
                }
                seen = seen.max(position);
                if entry.place == EntryPlace::Note || position <= after {
                    continue;
                }
                bytes = bytes.saturating_add(entry.body.len());
                let is_full = stretch.events.len() == limit.events || bytes > limit.bytes;
                if is_full && !stretch.events.is_empty() {
                    return Ok(seen);
                }
                let (body, place, at) = (entry.body, entry.place, entry.at);
                stretch.events.push(Event { position, body, place, at });
            }
        }
    }
}

fn survey_of(head: &Head, head_sequence: u64, entries: Vec<Entry>) -> Survey {
    let of_head = head.streams.iter().map(|(stream, known)| {
        let surveyed =
            Surveyed { stream: *stream, last: known.trimmed, ended: false, note: known.note.clone() };
        (*stream, surveyed)
    });
    let mut streams: BTreeMap<StreamId, Surveyed> = of_head.collect();
    let mut next_stream = head.next_stream;
    let mut view = LogView::new(head.clone(), head_sequence, 0);
    for entry in entries.into_iter().filter(|entry| entry.position > head.folded) {
        let (stream, place) = (entry.entry.stream, entry.entry.place);
        let fresh = || Surveyed { stream, last: Position::START, ended: false, note: None };
        let known = streams.entry(stream).or_insert_with(fresh);
        next_stream = next_stream.max(stream.number().saturating_add(1));
        match place {
            EntryPlace::Note => known.note = Some(entry.entry.body.clone()),
            EntryPlace::Middle | EntryPlace::End => {
                known.last = entry.position;
                known.ended = place == EntryPlace::End;
                if known.ended {
                    known.note = None;
                }
            }
        }
        view.add(entry);
    }
    Survey { streams: streams.into_values().collect(), next_stream, kept: view.kept() }
}
